"""Small transactions on Postgres: how few round trips they take, and that it is safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import (
    ExecutionNotActive,
    LeaseRevoked,
    OutcomeUnknown,
    StaleLease,
    StoreUnavailable,
)
from flowfabric.model.event import OperatorEvent
from flowfabric.model.journal import EntryKind, NewEntry
from flowfabric.model.results import Claimed, Created, Duplicate
from flowfabric.stores.base import Changes
from flowfabric.stores.logs import LOG_OF
from flowfabric.stores.postgres import arrays, connections, images, store
from flowfabric.stores.postgres.session import PLANNER
from flowfabric.stores.postgres.small import insert_of
from flowfabric.stores.postgres.store import HOLD_S
from flowfabric.stores.postgres.transaction import PostgresTransaction
from tests.support.journal import entry

CONFIG = EngineConfig(loops=False, poll_interval_ms=3_600_000)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The beginning of every statement."""
    statements: list[str] = []

    def watched(original: Any) -> Any:
        async def call(self: Any, text: str, *args: Any, **options: Any) -> Any:
            statements.append(" ".join(text.split())[:400])
            return await original(self, text, *args, **options)

        return call

    for name in ("execute", "fetch", "fetchval", "copy_records_to_table"):
        monkeypatch.setattr(asyncpg.Connection, name, watched(getattr(asyncpg.Connection, name)))
    return statements


async def claim(engine: Engine, limit: int = 10) -> list[Claimed]:
    return await engine.claim(
        lanes=("default",), worker_id="w", worker_instance_id="i", limit=limit
    )


def words(sent: list[str]) -> list[str]:
    """What was sent but for hints, and forget it."""
    hints = ("pg_notify", "LISTEN")  # on a connection of their own, whenever that is there
    seen = [text.split()[0].strip(";") for text in sent if not any(word in text for word in hints)]
    sent.clear()
    return seen


def test_a_lone_cycle_takes_eight_trips(postgres_url: str, sent: list[str]) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=CONFIG) as engine:
            await engine.create_execution(execution_kind="k")
            (first,) = await claim(engine)
            await engine.complete(first.handle)  # the routes are known from now on
            words(sent)
            await engine.create_execution(execution_kind="k", tags={"a.b": "1"})
            assert words(sent) == ["SELECT", "WITH"]  # clock and catalog; the rows
            (second,) = await claim(engine)
            assert words(sent) == ["SELECT", "SELECT", "WITH"]  # clock and catalog; search; lease
            await engine.complete(second.handle, result=b"r")
            assert words(sent) == ["SELECT", "WITH"]  # look; end
            outcome = await engine.wait_for_outcome(execution_id=second.execution_id)
            assert outcome.result == b"r"
            assert words(sent) == ["SELECT"]
            assert await claim(engine) == []
            assert words(sent) == ["SELECT", "SELECT"]
            created = await engine.create_execution(execution_kind="k", idempotency_key="x")
            assert words(sent) == ["SELECT", "SELECT", "SELECT", "WITH"]
            again = await engine.create_execution(execution_kind="k", idempotency_key="x")
            assert again.execution_id == created.execution_id
            assert words(sent) == ["SELECT"] * 3

    asyncio.run(story())


def test_several_at_once_are_held(postgres_url: str, sent: list[str]) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=CONFIG) as engine:
            await engine.create_executions([NewExecution(execution_kind="k") for _ in range(30)])
            words(sent)
            claimed = await claim(engine, 30)
            assert len(claimed) == 30
            held = ["BEGIN", "SELECT", "SELECT", "WITH", "COMMIT"]
            assert words(sent) == ["SELECT", "SELECT", *held]  # in vain without, then with locks
            await engine.renew_many([each.handle for each in claimed])
            assert words(sent) == ["BEGIN", "SELECT", "UPDATE", "COMMIT"]

    asyncio.run(story())


def test_a_pooler_sees_every_transaction_begin_and_its_settings(
    postgres_url: str, sent: list[str]
) -> None:
    async def story() -> None:
        config = EngineConfig(loops=False, statement_cache_size=0)
        async with open_engine(postgres_url, config=config) as engine:
            await engine.create_execution(execution_kind="k")
            words(sent)
            await engine.create_execution(execution_kind="k")
            (claimed,) = await claim(engine, 1)
            await engine.complete(claimed.handle)
            create = ["BEGIN", "SELECT", "WITH", "COMMIT"]
            claims = ["BEGIN", "SELECT", "SELECT", "WITH", "COMMIT"]
            begins = [text for text in sent if text.startswith("BEGIN")]
            for setting in ("lock_timeout", "statement_timeout", *PLANNER):
                assert all(f"SET LOCAL {setting} = " in text for text in begins)
            assert words(sent) == [*create, *claims, *create]

    asyncio.run(story())


# --- rivals ------------------------------------------------------------------------------------


def before_the_next_commit(
    monkeypatch: pytest.MonkeyPatch, happening: Callable[[], Awaitable[Any]]
) -> None:
    commit = PostgresTransaction.commit

    async def late(self: PostgresTransaction) -> None:
        monkeypatch.setattr(PostgresTransaction, "commit", commit)
        await happening()
        await commit(self)

    monkeypatch.setattr(PostgresTransaction, "commit", late)


def test_an_execution_that_moved_on_is_decided_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.0)

    async def story() -> None:
        async with (
            open_engine(postgres_url, config=CONFIG) as one,
            open_engine(postgres_url, config=CONFIG) as two,
        ):
            await one.create_execution(execution_kind="k")
            taken: list[Claimed] = []

            async def rival_claims() -> None:
                taken.extend(await claim(two))

            before_the_next_commit(monkeypatch, rival_claims)
            assert await claim(one) == []
            (claimed,) = taken

            async def rival_cancels() -> None:
                await two.cancel_execution(
                    execution_id=claimed.execution_id, reason="r", source="operator_override"
                )

            before_the_next_commit(monkeypatch, rival_cancels)
            with pytest.raises(ExecutionNotActive):
                await one.complete(claimed.handle, result=b"r")
            stored = await one.store.dump()
            assert [event.outcome.value for event in stored["completion_events"]] == ["cancelled"]
            assert [attempt.result for attempt in stored["attempts"]] == [None]
            assert len(stored["lease_events"]) == 1

    asyncio.run(story())


def test_an_expired_key_that_is_swept_meanwhile_is_taken_anew(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was found without a lock: before it is replaced it must be held."""
    save = PostgresTransaction.save

    async def story() -> None:
        async with (
            open_engine(postgres_url, config=CONFIG) as one,
            open_engine(postgres_url, config=CONFIG) as two,
        ):
            await one.create_execution(execution_kind="k", idempotency_key="x")
            rival = await asyncpg.connect(postgres_url)
            await rival.execute("UPDATE ff_idempotency SET expires_at = 1")
            await rival.close()

            async def late(self: PostgresTransaction, changes: Changes) -> None:
                monkeypatch.setattr(PostgresTransaction, "save", save)
                assert await two.sweep() == 1
                await save(self, changes)

            monkeypatch.setattr(PostgresTransaction, "save", late)
            second = await one.create_execution(execution_kind="k", idempotency_key="x")
            assert isinstance(second, Created)
            again = await two.create_execution(execution_kind="k", idempotency_key="x")
            assert again == Duplicate(second.execution_id)

    asyncio.run(story())


# --- outages -----------------------------------------------------------------------------------


@asynccontextmanager
async def cut_off(url: str, table: str, mode: str) -> AsyncIterator[None]:
    """Whoever waits for the table loses the connection."""
    rival = await asyncpg.connect(url)

    async def cut() -> None:
        waiting = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted"
        while not await rival.fetch(waiting):
            await rival.execute("SELECT pg_sleep(0.01)")

    try:
        async with rival.transaction():
            await rival.execute(f"LOCK TABLE {table} IN {mode} MODE")
            cutting = asyncio.create_task(cut())
            yield
            await cutting
    finally:
        await rival.close()


def test_a_connection_lost_in_the_one_statement_leaves_the_outcome_unknown(
    postgres_url: str,
) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=CONFIG) as engine:
            await engine.create_execution(execution_kind="k")
            (claimed,) = await claim(engine)
            async with cut_off(postgres_url, "ff_exec_core", "EXCLUSIVE"):
                with pytest.raises(OutcomeUnknown):
                    await engine.create_execution(execution_kind="k")
            async with cut_off(postgres_url, "ff_exec_core", "EXCLUSIVE"):
                with pytest.raises(OutcomeUnknown):
                    await engine.complete(claimed.handle)
            await engine.complete(claimed.handle)

    asyncio.run(story())


def test_a_connection_lost_before_it_has_changed_nothing(postgres_url: str) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=CONFIG) as engine:
            await engine.create_execution(execution_kind="k")
            async with cut_off(postgres_url, "ff_partition_config", "ACCESS EXCLUSIVE"):
                with pytest.raises(StoreUnavailable):
                    await engine.create_execution(execution_kind="k")
            assert await engine.count_executions() == {"default": {"waiting": 1}}

    asyncio.run(story())


# --- rows --------------------------------------------------------------------------------------


def test_heavy_payloads_are_copied(postgres_url: str, sent: list[str]) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=CONFIG) as engine:
            payload = b"x" * 1_000_000
            requests = [NewExecution(execution_kind="k", input_payload=payload) for _ in range(18)]
            await engine.create_executions(requests)
            assert "ff_exec_body" in sent
            claimed = await claim(engine, 20)
            assert [each.payload for each in claimed] == [payload] * 18

    asyncio.run(story())


def test_values_that_rows_share_travel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_shaped", set())  # other tests of this process may have filled it
    write = insert_of(LOG_OF[OperatorEvent])
    row = ("s", "cancelled", None, "n", None, 1, "ann")
    alike = [(value,) * arrays.SHAPED_FROM_ROWS for value in row]
    assert write.shape([(value,) for value in row]) == (True,) * 7
    assert write.shape(alike) == write.plain  # without any array nobody could count the rows
    differing = (("t", *alike[0][1:]), *alike[1:])
    assert write.shape(differing) == (False, *[True] * 6)
    sql, values = arrays.one_statement([(write, differing)])
    assert sql.count("[]") == 1
    assert values[1:] == ["cancelled", None, "n", None, 1, "ann"]


# --- connections -------------------------------------------------------------------------------


class Wire:
    """Stands in for a connection."""

    def __init__(self) -> None:
        self.closed = False

    def is_closed(self) -> bool:
        return self.closed

    def terminate(self) -> None:
        self.closed = True

    async def close(self) -> None:
        self.closed = True


def test_a_connection_that_is_made_while_the_others_are_closed_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that is starting is asked again for longer than a close waits."""

    async def story() -> None:
        made, may_answer = Wire(), asyncio.Event()

        async def connect() -> Wire:
            await may_answer.wait()
            return made

        monkeypatch.setattr(connections, "CLOSE_S_MAX", 0.0)
        pool = connections.Connections(connect, 2, acquire_timeout_s=60)

        async def use() -> None:
            async with pool.one() as connection:
                assert connection is made

        using = asyncio.create_task(use())
        await asyncio.sleep(0)
        await pool.close()
        may_answer.set()
        await using
        assert made.closed

    asyncio.run(story())


def test_connections_are_shared_reused_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        made: list[Wire] = []

        async def connect() -> Wire:
            made.append(Wire())
            return made[-1]

        pool = connections.Connections(connect, 2, acquire_timeout_s=60)
        async with pool.one() as first, pool.one() as second:
            waiting = asyncio.create_task(_use(pool))
            await asyncio.sleep(0)
            assert first is not second
            assert not waiting.done()
        assert await waiting in made
        assert len(made) == 2
        cancelled = asyncio.create_task(_use(pool, seconds=60))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert sum(wire.closed for wire in made) == 1  # cut off in the middle: not used again
        monkeypatch.setattr(connections, "IDLE_S_MAX", -1.0)
        kept = await _use(pool)
        assert kept.closed
        await pool.close()
        assert all(wire.closed for wire in made)

    async def _use(pool: connections.Connections, seconds: float = 0.0) -> Wire:
        async with pool.one() as wire:
            await asyncio.sleep(seconds)
            found: Wire = wire
            return found

    asyncio.run(story())


def test_the_first_checkpoint_takes_two_trips_and_each_further_one_takes_one(
    postgres_url: str, sent: list[str]
) -> None:
    """A look without a lock, then a statement that holds the row as it was seen, and inserts. What
    was seen will do for the next, until this process writes the row itself."""

    async def story() -> None:
        async with open_engine(postgres_url, config=CONFIG) as engine:
            await engine.create_execution(execution_kind="k")
            (claimed,) = await claim(engine)
            handle = claimed.handle
            words(sent)
            for at in range(4):
                assert (await engine.checkpoint(handle, entries=[entry(at)])).position == at
                assert words(sent) == (["WITH"] if at else ["SELECT", "WITH"])
            page = await engine.read_journal(execution_id=claimed.execution_id)
            times = [each.recorded_at for each in page.entries]
            assert times == sorted(times)
            assert times[-1] - times[0] < 1_000
            await engine.renew(handle)
            words(sent)
            for at in (4, 5):
                await engine.checkpoint(handle, entries=[entry(at)])
            assert words(sent) == ["SELECT", "WITH", "WITH"]
            told = NewEntry(position=6, key="submit:k", kind=EntryKind.SUBMIT, value=b"1")
            new = NewExecution(execution_kind="k")
            await engine.create_executions([new], handle=handle, entries=[told])
            assert len((await engine.read_journal(execution_id=claimed.execution_id)).entries) == 7

    asyncio.run(story())


async def taken(engine: Engine) -> Claimed:
    """An execution that lost its lease, once it may be claimed again."""
    while not (claims := await claim(engine)):
        await asyncio.sleep(0.01)
        await engine.tick()
    return claims[0]


def test_what_is_known_of_an_execution_is_never_more_than_a_guess(
    postgres_url: str, sent: list[str]
) -> None:
    """Another process ends the lease, renews it, or gives it to another worker: its owner is
    refused, and the new one is not."""

    async def story() -> None:
        async with (
            open_engine(postgres_url, config=CONFIG) as engine,
            open_engine(postgres_url, config=CONFIG) as other,
        ):
            await engine.create_execution(execution_kind="k")
            (first,) = await claim(engine)
            for at in (0, 1):
                await engine.checkpoint(first.handle, entries=[entry(at)])
            await other.revoke_lease(execution_id=first.execution_id, reason="lost")
            with pytest.raises(LeaseRevoked):
                await engine.checkpoint(first.handle, entries=[entry(2)])
            second = await taken(other)
            with pytest.raises(StaleLease):
                await engine.checkpoint(first.handle, entries=[entry(2)])
            for at in (2, 3, 4):  # the same again is answered, and recorded once
                await engine.checkpoint(second.handle, entries=[entry(at)])
                await engine.checkpoint(second.handle, entries=[entry(at)])
            await asyncio.sleep(HOLD_S)
            await engine.checkpoint(second.handle, entries=[entry(5)])
            await other.revoke_lease(execution_id=first.execution_id, reason="lost")
            third = await taken(other)
            words(sent)
            await engine.checkpoint(third.handle, entries=[entry(6)])
            # Refused by what was known, which nobody is told: it is decided again with locks.
            assert words(sent) == ["BEGIN", "SELECT", "SELECT", "INSERT", "COMMIT"]
            page = await engine.read_journal(execution_id=first.execution_id)
            assert [each.position for each in page.entries] == list(range(7))

    asyncio.run(story())


def test_a_clock_that_is_not_as_believed_is_asked_again(
    postgres_url: str, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=CONFIG) as engine:
            await engine.create_execution(execution_kind="k")
            (claimed,) = await claim(engine)
            await engine.checkpoint(claimed.handle, entries=[entry(0)])
            known = images.Images.now
            monkeypatch.setattr(images.Images, "now", lambda self: (known(self) or 0) + 5_000)
            words(sent)
            await engine.checkpoint(claimed.handle, entries=[entry(1)])
            assert words(sent) == ["WITH", "BEGIN", "SELECT", "SELECT", "INSERT", "COMMIT"]
            page = await engine.read_journal(execution_id=claimed.execution_id)
            first, second = (each.recorded_at for each in page.entries)
            assert second - first < 4_000

    asyncio.run(story())
