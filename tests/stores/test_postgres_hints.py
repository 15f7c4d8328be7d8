"""Hints through the server come back by themselves after any loss.

The poll interval is an hour: what a test waits for can only have come by a hint.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import asyncpg
import pytest

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.stores.base import EVERY_END, EVERY_FLOW_END, EVERY_STREAM, EVERYBODY
from flowfabric.stores.postgres import hints
from flowfabric.stores.postgres.hints import CHANNEL, payload_of
from tests.support.doorman import Doorman

SLOW_POLL = EngineConfig(loops=False, poll_interval_ms=3_600_000)
LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND query ILIKE 'LISTEN%' AND pid <> pg_backend_pid()"
)


def waiting_claim(engine: Engine, lane: str = "default") -> asyncio.Task[Any]:
    return asyncio.create_task(
        engine.claim(lanes=(lane,), worker_id="w", worker_instance_id="i", limit=1, wait_ms=600_000)
    )


class Nowhere:
    """A server that is never reached."""

    def __init__(self) -> None:
        self.was_asked = asyncio.Event()

    async def connect(self) -> Any:
        self.was_asked.set()
        raise ConnectionRefusedError


@pytest.mark.parametrize(
    ("listens", "topic", "left"),
    [
        (True, "done:{}", {"lane:mail": 1, EVERY_END: 1, EVERY_FLOW_END: 1, EVERY_STREAM: 1}),
        (True, "lane:{}", EVERYBODY),
        (False, "done:{}", {}),
    ],
    ids=["ends", "lanes", "deaf"],
)
def test_hints_that_cannot_be_sent_do_not_pile_up(
    listens: bool, topic: str, left: dict[str, int]
) -> None:
    async def story() -> None:
        server = Nowhere()
        kept = hints.ListenHints(server.connect)
        if listens:
            kept.start()
            await server.was_asked.wait()
        kept.publish({"lane:mail": 1})
        for number in range(hints.WAITING_MAX):
            kept.publish({topic.format(number): 1})
        assert kept.waiting == left
        await kept.stop()

    asyncio.run(story())


class Heard:
    """Every hint that arrives at an engine, and a way to wait for the next."""

    def __init__(self, engine: Engine) -> None:
        self.topics: list[str] = []
        self._more = asyncio.Event()
        engine.store.hints.subscribe(self._hear)

    def _hear(self, topics: Any) -> None:
        self.topics += topics
        self._more.set()

    async def wait_for(self, topic: str) -> None:
        while topic not in self.topics:
            self._more.clear()
            await self._more.wait()


async def listening(connection: Any, number: int) -> list[int]:
    """The server's processes that listen, once there are so many."""
    found: list[Any] = []
    while len(found) < number:
        found = await connection.fetch(LISTENERS)
    return [row["pid"] for row in found]


@pytest.mark.parametrize("how", ["terminated", "cut"])
def test_an_idle_listener_that_loses_its_connection_listens_again(
    postgres_url: str, how: str
) -> None:
    async def story() -> None:
        async with Doorman(postgres_url).on_duty() as door:
            worker = open_engine(door.url, config=SLOW_POLL)
            heard = Heard(worker)
            side = await asyncpg.connect(postgres_url)
            await worker.start()
            (pid,) = await listening(side, 1)
            heard.topics.clear()
            if how == "terminated":
                await side.execute("SELECT pg_terminate_backend($1, 60000)", pid)
            else:
                door.cut_all()
            await heard.wait_for("lane:*")  # it tells all who wait to look once
            assert await listening(side, 1) != [pid]
            async with open_engine(postgres_url, config=SLOW_POLL) as submitter:
                await listening(side, 2)
                await submitter.create_execution(execution_kind="k")
                await heard.wait_for("lane:default")
            await worker.close()
            await side.close()

    asyncio.run(story())


def test_work_that_came_while_not_listening_is_found_at_the_reconnect(postgres_url: str) -> None:
    async def story() -> None:
        side = await asyncpg.connect(postgres_url)
        async with (
            Doorman(postgres_url).on_duty() as door,
            open_engine(door.url, config=SLOW_POLL) as worker,
        ):
            (pid,) = await listening(side, 1)
            waiting = waiting_claim(worker)
            while not worker.wakeups.is_awaited("lane:default"):
                await worker.server_time_ms()
            await worker.batches.idle()  # its first look is over
            door.refusal = "57P03"
            await side.execute("SELECT pg_terminate_backend($1, 60000)", pid)
            async with open_engine(postgres_url, config=SLOW_POLL) as submitter:
                await submitter.create_execution(execution_kind="k")
            await door.someone_was_refused.wait()
            assert not waiting.done()
            door.refusal = None
            assert len(await waiting) == 1
        await side.close()

    asyncio.run(story())


def test_hints_that_could_not_be_sent_are_sent_after_the_reconnect(postgres_url: str) -> None:
    async def story() -> None:
        async with (
            Doorman(postgres_url).on_duty() as door,
            open_engine(postgres_url, config=SLOW_POLL) as worker,
            open_engine(door.url, config=SLOW_POLL) as submitter,
        ):
            side = await asyncpg.connect(postgres_url)
            await listening(side, 2)
            heard = Heard(worker)
            door.cut_all()
            submitter.store.hints.publish({"lane:late": 1})
            await heard.wait_for("lane:late")
            await side.close()

    asyncio.run(story())


class Unlucky:
    """A connection whose protocol met an end it did not expect."""

    def __init__(self) -> None:
        self.was_dropped = False

    def add_termination_listener(self, callback: Any) -> None: ...

    async def add_listener(self, channel: str, callback: Any) -> None:
        raise asyncpg.InternalClientError("got result for unknown protocol state 3")

    def terminate(self) -> None:
        self.was_dropped = True


def test_no_error_of_the_driver_ends_the_listener(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        unlucky: list[Unlucky] = []

        async def connect() -> Any:
            if len(unlucky) < 3:
                unlucky.append(Unlucky())
                return unlucky[-1]
            return await asyncpg.connect(postgres_url)

        listener = hints.ListenHints(connect)
        woken = asyncio.Event()
        listener.subscribe(lambda topics: woken.set())
        listener.start()
        await woken.wait()
        await listener.stop()
        assert [each.was_dropped for each in unlucky] == [True] * 3

    with caplog.at_level(logging.WARNING, logger="flowfabric.hints"):
        asyncio.run(story())
    assert len([each for each in caplog.records if "InternalClientError" in each.message]) == 1


def test_a_silent_connection_is_asked_for_a_sign_of_life(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall that forgot it answers nothing: no end is ever told."""
    monkeypatch.setattr(hints, "SIGN_OF_LIFE_S", 0.05)

    class Silent:
        asked = 0

        def add_termination_listener(self, callback: Any) -> None: ...

        async def add_listener(self, channel: str, callback: Any) -> None: ...

        def is_closed(self) -> bool:
            return False

        async def execute(self, sql: str, *values: Any) -> None:
            Silent.asked += 1
            raise TimeoutError

        def terminate(self) -> None: ...

    async def story() -> None:
        async def connect() -> Any:
            return await asyncpg.connect(postgres_url) if Silent.asked else Silent()

        listener = hints.ListenHints(connect)
        times = 0
        woken = asyncio.Event()

        def wake(topics: Any) -> None:
            nonlocal times
            times += 1
            if times == 2:
                woken.set()

        listener.subscribe(wake)
        listener.start()
        await woken.wait()
        await listener.stop()
        assert Silent.asked == 1

    asyncio.run(story())


def test_a_hint_does_not_wait_for_the_disk(postgres_url: str) -> None:
    """It may be lost; the commits that come later on its connection may not."""
    said: list[tuple[Any, ...]] = []
    told = asyncio.Event()

    class Overheard(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
        async def execute(self, query: str, *values: Any, **options: Any) -> str:
            if CHANNEL in values:
                said.append((query, *values))
                told.set()
            return str(await super().execute(query, *values, **options))

    async def story() -> None:
        async def connect() -> Any:
            return await asyncpg.connect(postgres_url, connection_class=Overheard)

        listener = hints.ListenHints(connect)
        listener.start()
        listener.publish({"lane:mail": 1})
        async with asyncio.timeout(60):
            await told.wait()
        await listener.stop()
        side = await asyncpg.connect(postgres_url)
        await side.execute("SET synchronous_commit = on")  # the server of the tests has it off
        async with side.transaction():
            await side.execute(*said[0])
            during = await side.fetchval("SHOW synchronous_commit")
        assert (during, await side.fetchval("SHOW synchronous_commit")) == ("off", "on")
        await side.close()

    asyncio.run(story())


def test_a_foreign_message_wakes_no_waiter_and_does_no_harm(postgres_url: str) -> None:
    async def story() -> None:
        engine = open_engine(postgres_url, config=SLOW_POLL)
        heard = Heard(engine)
        async with engine:
            side = await asyncpg.connect(postgres_url)
            await heard.wait_for("lane:*")
            heard.topics.clear()
            for junk in ("", "{", "[1]", '{"from": "x"}', '{"from": "x", "topics": 5}'):
                await side.execute("SELECT pg_notify($1, $2)", CHANNEL, junk)
            real = payload_of({"lane:a": 1}, "somebody")
            await side.execute("SELECT pg_notify($1, $2)", CHANNEL, real)
            await heard.wait_for("lane:a")
            assert heard.topics == ["lane:a"]
            await side.close()

    asyncio.run(story())


def test_a_message_with_too_many_topics_still_reaches_every_waiter() -> None:
    ends = {f"done:{number:040}": 1 for number in range(200)}
    assert '"lane:a"' in payload_of({**ends, "lane:a": 1}, "o")
    lanes = {f"lane:{number:060}": 1 for number in range(200)}
    message = payload_of({**ends, **lanes}, "o")
    assert len(message) < 8000
    assert all(topic in message for topic in EVERYBODY)
