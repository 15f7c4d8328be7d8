"""Concurrent clients see one execution after the other, never two truths (I2, I3, I4, I6).

Answers of calls that overlapped are explained by some order of the same calls on the kernel alone.
Lapsing leases and ending delays may happen silently in between. FF_LINCHECK_CALLS=1000000 at night.
"""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from flowfabric.assemble import open_engine
from flowfabric.engine.engine import Engine
from flowfabric.errors import ContentionError, StateError
from flowfabric.model.event import LeaseEventType
from flowfabric.model.results import Claimed, Created
from flowfabric.stores.drive import drive
from flowfabric.stores.postgres import arrays
from flowfabric.stores.postgres import view as postgres_view
from flowfabric.stores.sqlite.store import SqliteStore
from flowfabric.stores.sqlite.view import SqliteView
from tests.property.budget import budget
from tests.property.crowd import CONFIG, Crowd, Verdict
from tests.support.databases import PostgresServer

CALLS = budget("FF_LINCHECK_CALLS", 3_000)
ENGINES = 8


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'crowd.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


def judged(crowd: Crowd) -> Verdict:
    return asyncio.run(crowd.run())


def check(crowd: Crowd) -> Verdict:
    verdict = judged(crowd)
    for name in verdict.unexplained[:1]:
        raise AssertionError(
            f"{len(verdict.unexplained)} of {verdict.objects} histories are inexplicable; "
            f"{name}:\n{crowd.history(name)}"
        )
    assert not verdict.store_errors
    return verdict


def test_concurrent_clients_see_one_order(url: str) -> None:
    seed = random.randrange(1 << 30)
    crowd = Crowd(url, engines=ENGINES, calls=CALLS, seed=seed)
    verdict = check(crowd)
    assert verdict.calls > CALLS / 3, f"seed {seed}: {verdict}"


def test_twenty_clients_with_colliding_transactions(url: str) -> None:
    """Storage conflicts are retried; none surfaces, none leaves half a change."""
    crowd = Crowd(url, engines=10, calls=CALLS // 3, seed=random.randrange(1 << 30))
    check(crowd.with_conflicts(0.1))


# --- two workers, one execution -----------------------------------------------------------------


def test_two_workers_race_for_each_of_a_thousand(url: str) -> None:
    """One lease per epoch; the loser is told that it lost."""
    asyncio.run(_race(url, 1_000))


async def _race(url: str, number: int) -> None:
    async with open_engine(url, config=CONFIG) as one, open_engine(url, config=CONFIG) as other:
        requests: list[Any] = [{"execution_kind": "work"}] * number
        created = await one.create_executions(requests)
        ids = [each.execution_id for each in created if isinstance(each, Created)]
        taken = await asyncio.gather(_take(one, ids), _take(other, ids))
        for execution_id, left, right in zip(ids, *taken, strict=True):
            won = [each for each in (left, right) if isinstance(each, Claimed)]
            assert len(won) == 1, execution_id
            assert won[0].lease_epoch == 1
        events = (await one.store.dump())["lease_events"]
        acquired = [e.execution_id for e in events if e.event_type is LeaseEventType.ACQUIRED]
        assert sorted(acquired) == sorted(ids)


async def _take(engine: Engine, ids: list[str]) -> list[Any]:
    async def take(execution_id: str) -> Any:
        try:
            return await engine.issue_grant_and_claim(
                execution_id=execution_id, lane_id="default", lease_duration_ms=60_000
            )
        except (ContentionError, StateError) as lost:
            return lost

    taken: list[Any] = []
    for start in range(0, len(ids), 20):
        taken += await asyncio.gather(*map(take, ids[start : start + 20]))
    return taken


# --- the checker is only worth what it notices -------------------------------------------------

CROWDS = 8  # a race takes luck: one crowd in ten runs past a fault, not eight in a row


def is_noticed(
    place: Callable[[], AbstractContextManager[str]], *, calls: int = 1_000, about: str = ""
) -> bool:
    """Whether some crowd, each in an empty store, sees what no order of calls explains."""
    for seed in range(CROWDS):
        with place() as url:
            verdict = judged(Crowd(url, engines=ENGINES, calls=calls, seed=seed))
        if any(name.startswith(about) for name in verdict.unexplained):
            return True
    return False


def test_missing_row_locks_are_noticed(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: Postgres without FOR UPDATE."""
    patched = 0
    for name, sql in postgres_view.SQL.items():
        unlocked = sql.replace(" FOR UPDATE OF c SKIP LOCKED", "")
        unlocked = unlocked.replace(" FOR UPDATE SKIP LOCKED", "").replace(" FOR UPDATE OF c", "")
        patched += unlocked != sql
        monkeypatch.setitem(postgres_view.SQL, name, unlocked)
    assert patched >= 4
    assert is_noticed(postgres.database)


def test_an_upsert_of_keys_is_noticed(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: an absent row cannot be locked, and an upsert hides that a rival inserted it."""
    honest = arrays.Write.sql
    upsert = " ON CONFLICT (namespace, idempotency_key) DO UPDATE SET execution_id = "

    def sql(write: arrays.Write, shape: arrays.Shape, first: int) -> str:
        text = honest(write, shape, first)
        keys = text.startswith("INSERT INTO ff_idempotency")
        return f"{text}{upsert}excluded.execution_id" if keys else text

    monkeypatch.setattr(arrays.Write, "sql", sql)
    monkeypatch.setattr(arrays, "_joined", arrays._joined.__wrapped__)  # what it knows is honest
    assert is_noticed(postgres.database, about="key-")


def test_a_version_nobody_compares_is_noticed(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: what was decided without a lock is written whatever the row has become."""
    honest = arrays._guarded

    def careless(parts: arrays.Parts) -> str:
        return re.sub(r"t\.xmin = (\S+)::xid", r"\1 IS NOT NULL", honest(parts))

    monkeypatch.setattr(arrays, "_guarded", careless)
    assert is_noticed(postgres.database)


def test_missing_transactions_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: SQLite statements that each commit by themselves."""

    async def careless(store: SqliteStore, work: Callable[[Any], Awaitable[Any]]) -> Any:
        def job(connection: sqlite3.Connection) -> Any:
            view = SqliteView(connection, store._clock.now_ms(), store._book)
            result = drive(work(view))
            store._book = view.book
            return result

        return await store._write(job)

    files = (f"sqlite:///{tmp_path / f'crowd-{number}.db'}" for number in range(CROWDS))
    monkeypatch.setattr(SqliteStore, "transact", careless)
    assert is_noticed(lambda: nullcontext(next(files)), calls=1_500)
