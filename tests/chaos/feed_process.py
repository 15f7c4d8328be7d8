"""A writer, subscriber or consumer of events, to be killed: python -m tests.chaos.feed_process …

A writer commits numbered events in transactions of random length, of which some stay open for a
while and some are rolled back; it says `committed FIRST LAST` and in the end `finished`. A
subscriber reads on after a cursor; it says `saw CURSOR EVENTS`. A consumer shares a group; it says
`handled NANOSECONDS EVENTS` and acknowledges all of it, a part, or nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

import asyncpg

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import DeliveryExpired
from flowfabric.model.feed import Event, EventFilter
from flowfabric.stores.postgres.arrays import GATE
from tests.chaos.worker_process import say

KINDS = ("operator",)
SUBJECTS = 50  # of each writer
WANTED = EventFilter(namespace="gap", event_types=("held",))
INSERT = "INSERT INTO ff_operator_event (subject, event_type, namespace, occurred_at, actor)"
Rows = list[tuple[str, int, str]]


def named(events: Iterable[Event]) -> str:
    """Each as its writer and number."""
    return ",".join(event.details["actor"] for event in events)


def ranges(total: int, chance: random.Random) -> Iterator[tuple[int, int]]:
    first = 0
    while first < total:
        last = min(total, first + chance.randint(1, 60)) - 1
        yield first, last
        first = last + 1


async def write(url: str, name: str, total: int) -> None:
    """Transaction after transaction; each number is used once, rolled back or not."""
    chance = random.Random(name)
    async with connected(url) as put:
        for first, last in ranges(total, chance):
            at = int(time.time() * 1000)
            rows = [(f"{name}-{n % SUBJECTS}", at, f"{name}:{n}") for n in range(first, last + 1)]
            pause = chance.choice((0.0, 0.0, 0.0, 0.005, 0.02))
            if url.startswith("postgresql") and chance.random() < 0.01:
                pause = 1.5
            keeps = chance.random() > 0.1
            await put(rows, pause, keeps)
            if keeps:
                say("committed", first, last)
    say("finished")
    await asyncio.Event().wait()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Callable[[Rows, float, bool], Awaitable[None]]]:
    """How a writer writes, without an engine: it chooses when its transactions end."""
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(url)
        # As an engine does it: it says which number was the last, and draws then.
        sql = f"WITH {GATE} {INSERT} SELECT $1, 'held', 'gap', $2, $3 FROM gate"

        async def put(rows: Rows, pause: float, keeps: bool) -> None:
            transaction = connection.transaction()
            await transaction.start()
            await connection.executemany(sql, rows)
            await asyncio.sleep(pause)
            await (transaction.commit() if keeps else transaction.rollback())

        yield put
        await connection.close()
        return
    plain = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=120, isolation_level=None)
    statement = f"{INSERT} VALUES (?, 'held', 'gap', ?, ?)"

    async def put_plain(rows: Rows, pause: float, keeps: bool) -> None:
        plain.execute("BEGIN IMMEDIATE")
        plain.executemany(statement, rows)
        await asyncio.sleep(pause)
        plain.execute("COMMIT" if keeps else "ROLLBACK")
        await asyncio.sleep(0.001)  # others get the lock

    yield put_plain
    plain.close()


async def subscribe(engine: Engine, after: str) -> None:
    """Read on for ever."""
    cursor = None if after == "none" else after
    while True:
        page = await engine.subscribe_events(
            kinds=KINDS,
            filter=WANTED,
            after=cursor,
            limit=random.randint(1, 300),
            wait_ms=1_000,
        )
        cursor = page.cursor
        if page.events:
            say("saw", cursor, named(page.events))


async def consume(engine: Engine, name: str, group: str) -> None:
    """Handle what is handed out, for ever."""
    while True:
        taken = await engine.read_group(
            group_id=group, consumer=name, limit=random.randint(1, 300), wait_ms=1_000
        )
        if not taken.events:
            continue
        mood = random.random()
        handled = taken.events
        if mood < 0.1:
            handled = handled[: random.randint(1, len(handled))]
        say("handled", time.monotonic_ns(), named(handled))
        if mood > 0.97:
            continue  # forgotten
        try:
            await engine.ack_group(
                group_id=group,
                consumer=name,
                delivery=taken.delivery,
                up_to=handled[-1].cursor,
            )
        except DeliveryExpired:
            say("late")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("mode")
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    if asked.mode == "write":
        await write(asked.url, asked.name, int(asked.words[0]))
    config = EngineConfig(pool_size=2, loops=False)
    async with open_engine(asked.url, config=config) as engine:
        if asked.mode == "subscribe":
            await subscribe(engine, *asked.words)
        else:
            await consume(engine, asked.name, *asked.words)


if __name__ == "__main__":
    asyncio.run(main())
