"""Events of PostgreSQL transactions that commit in another order than they began."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import asyncpg

from flowfabric.model.feed import Event
from flowfabric.stores.postgres import view
from flowfabric.stores.postgres.arrays import GATE
from tests.support.lab import Lab

if TYPE_CHECKING:
    import pytest

# As an engine does it: it says which number was the last, and draws then.
INSERT = (
    f"WITH {GATE} INSERT INTO ff_operator_event"
    " (subject, event_type, namespace, occurred_at, actor)"
    " SELECT $1, 'held', 'n', $2, '' FROM gate"
)


async def rest(lab: Lab, after: str | None) -> tuple[list[Event], str | None]:
    """Everything behind a cursor, and the cursor behind that."""
    found: list[Event] = []
    while True:
        page = await lab.engine.read_events(kinds=("operator",), after=after, limit=7)
        found += page.events
        after = page.cursor
        if page.is_end:
            return found, after


def late_commit(postgres_url: str) -> list[str]:
    """An event whose transaction draws its number first and commits last; read in between."""
    lab = Lab(postgres_url)
    lab.open()

    async def story() -> list[str]:
        early, late = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
        slow = late.transaction()
        await slow.start()
        await late.execute(INSERT, "late", 1)
        await early.execute(INSERT, "early", 2)
        seen, cursor = await rest(lab, None)
        await slow.commit()
        more, _ = await rest(lab, cursor)
        await early.close()
        await late.close()
        return [event.subject for event in (*seen, *more)]

    try:
        return lab.run(story())
    finally:
        lab.close()


def test_an_event_that_commits_late_is_not_skipped(postgres_url: str) -> None:
    assert sorted(late_commit(postgres_url)) == ["early", "late"]


def test_a_missing_horizon_is_noticed(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: readers do not wait for open transactions, and go on by number."""
    monkeypatch.setattr(view, "_HORIZON", "SELECT last_value FROM ff_event_id")
    assert "late" not in late_commit(postgres_url)


def test_events_come_in_the_order_in_which_they_were_written(postgres_url: str) -> None:
    """Not in that of their transactions: an older one may have waited for a younger one's lock."""
    lab = Lab(postgres_url)
    lab.open()

    async def story() -> list[str]:
        older, younger = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
        slow = older.transaction()
        await slow.start()
        await older.execute("SELECT pg_current_xact_id()")
        await younger.execute(INSERT, "first", 2)
        await older.execute(INSERT, "second", 1)
        await slow.commit()
        found, _ = await rest(lab, None)
        await older.close()
        await younger.close()
        return [event.subject for event in found]

    try:
        assert lab.run(story()) == ["first", "second"]
    finally:
        lab.close()


def test_a_transaction_of_another_program_delays_no_event(postgres_url: str) -> None:
    lab = Lab(postgres_url)
    lab.open()

    async def story() -> list[str]:
        idle, writer = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
        open_one = idle.transaction()
        await open_one.start()
        await idle.execute("SELECT pg_current_xact_id()")
        await writer.execute(INSERT, "told", 1)
        found, _ = await rest(lab, None)
        await open_one.rollback()
        await idle.close()
        await writer.close()
        return [event.subject for event in found]

    try:
        assert lab.run(story()) == ["told"]
    finally:
        lab.close()


async def written(
    connection: asyncpg.Connection, names: list[str], at: int, chance: random.Random
) -> bool:
    """Events in one transaction, which may be held open for a while, or be rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    for name in names:
        await connection.execute(INSERT, name, at)
        await asyncio.sleep(0)
    if chance.random() < 0.2:
        await transaction.rollback()
        return False
    if chance.random() < 0.3:
        await asyncio.sleep(0.02)
    await transaction.commit()
    return True


def test_readers_see_each_event_once_while_transactions_overlap(postgres_url: str) -> None:
    """Some are held open over several others, some roll back; readers die and resume."""
    lab = Lab(postgres_url)
    lab.open()
    committed: set[str] = set()
    chance = random.Random(7)

    async def write(number: int) -> None:
        connection = await asyncpg.connect(postgres_url)
        for at in range(40):
            names = [f"{number}-{at}-{each}" for each in range(chance.randint(1, 4))]
            if await written(connection, names, at, chance):
                committed.update(names)
        await connection.close()

    async def read(done: asyncio.Event) -> list[str]:
        seen: list[str] = []
        cursor: str | None = None
        while True:
            is_last = done.is_set()
            found, cursor = await rest(lab, cursor)
            seen += [event.subject for event in found]
            if is_last:
                return seen

    async def story() -> list[list[str]]:
        done = asyncio.Event()
        readers = [asyncio.create_task(read(done)) for _ in range(3)]
        await asyncio.gather(*(write(number) for number in range(6)))
        done.set()
        return list(await asyncio.gather(*readers))

    try:
        for seen in lab.run(story()):
            assert len(seen) == len(set(seen))
            assert set(seen) == committed
    finally:
        lab.close()
