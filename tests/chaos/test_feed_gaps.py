"""No event is missed: writers whose transactions overlap, readers and consumers that are killed.

At night: FF_GAP_EVENTS=50000 FF_GAP_WRITERS=8 FF_GAP_READERS=4 FF_CHAOS_KILLS=100.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from tests.chaos.feed_process import KINDS, SUBJECTS, WANTED
from tests.chaos.processes import PATIENCE_S, Crew, WorkerProcess, crew
from tests.property.budget import budget

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

PROCESS = "tests.chaos.feed_process"
EVENTS = budget("FF_GAP_EVENTS", 1_800)
WRITERS = budget("FF_GAP_WRITERS", 3)
READERS = budget("FF_GAP_READERS", 2)
KILLS = budget("FF_CHAOS_KILLS", 6)
GROUPS = ("one", "two")
CONSUMERS = 2  # of each group
QUIET = EngineConfig(loops=False)


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'chaos.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


class Subscriber:
    """A reader that is killed and reads on after the last page that was heard of."""

    def __init__(self, members: Crew) -> None:
        self._members = members
        self._pages: list[list[str]] = []
        self._process = self._begin()

    def _begin(self) -> WorkerProcess:
        after = self._pages[-1][1] if self._pages else "none"
        return self._members.hire("subscribe", PROCESS, after)

    @property
    def seen(self) -> list[str]:
        """Every event, over all lives."""
        pages = [*self._pages, *(line for line in self._process.said if line[0] == "saw")]
        return [event for page in pages for event in page[2].split(",")]

    def die(self) -> None:
        self._members.kill(self._process)
        self._pages += [line for line in self._process.said if line[0] == "saw"]
        self._process = self._begin()


class Consumers:
    """The consumers of one group, of which any is killed and replaced."""

    def __init__(self, members: Crew, group: str) -> None:
        self._members = members
        self._group = group
        self._dead: list[WorkerProcess] = []
        self._alive = [self._begin() for _ in range(CONSUMERS)]

    def _begin(self) -> WorkerProcess:
        return self._members.hire("consume", PROCESS, self._group)

    @property
    def handled(self) -> dict[str, int]:
        """When each event was handled first."""
        found: dict[str, int] = {}
        for process in (*self._dead, *self._alive):
            for line in process.said:
                if line[0] == "handled":
                    for event in line[2].split(","):
                        found[event] = min(int(line[1]), found.get(event, int(line[1])))
        return found

    def die(self) -> None:
        victim = random.choice(self._alive)
        self._alive.remove(victim)
        self._members.kill(victim)
        self._dead.append(victim)
        self._alive.append(self._begin())


async def prepare(url: str) -> None:
    async with open_engine(url, config=QUIET) as engine:
        for group in GROUPS:
            await engine.create_consumer_group(
                group_id=group, kinds=KINDS, filter=WANTED, after=None, redeliver_ms=1_000
            )


async def are_done(url: str) -> None:
    """Everything is acknowledged."""
    async with open_engine(url, config=QUIET) as engine, asyncio.timeout(PATIENCE_S):
        while True:
            found = (await engine.list_consumer_groups()).items
            if all(group.outstanding == 0 and group.lag_ms == 0 for group in found):
                return
            await asyncio.sleep(0.1)


def committed_by(writers: list[WorkerProcess]) -> set[str]:
    return {
        f"{writer.name}:{number}"
        for writer in writers
        for line in writer.said
        if line[0] == "committed"
        for number in range(int(line[1]), int(line[2]) + 1)
    }


def has_committed(writers: list[WorkerProcess], count: int) -> bool:
    return len(committed_by(writers)) >= count


def in_order(events: list[str]) -> bool:
    """Whether the events of each writer rise."""
    last: dict[str, int] = defaultdict(lambda: -1)
    for event in events:
        writer, number = event.split(":")
        if int(number) <= last[writer]:
            return False
        last[writer] = int(number)
    return True


def out_of_order(handled: dict[str, int]) -> list[str]:
    """Events that were handled before an earlier one about the same subject."""
    found, latest = [], defaultdict[str, int](int)
    for event in sorted(handled, key=lambda each: int(each.split(":")[1])):
        writer, number = event.split(":")
        subject = f"{writer}-{int(number) % SUBJECTS}"
        if handled[event] < latest[subject]:
            found.append(event)
        latest[subject] = max(latest[subject], handled[event])
    return found


def test_every_committed_event_is_seen_once_and_handled(url: str) -> None:
    asyncio.run(prepare(url))
    with crew(url) as members:
        writers = [members.hire("write", PROCESS, str(EVENTS // WRITERS)) for _ in range(WRITERS)]
        subscribers = [Subscriber(members) for _ in range(READERS)]
        groups = [Consumers(members, group) for group in GROUPS]
        readers: list[Subscriber | Consumers] = [*subscribers, *groups]
        for kill in range(KILLS):
            wanted = (kill + 1) * EVENTS // (KILLS + 2) // 2
            members.wait_until(partial(has_committed, writers, wanted), "writers write")
            random.choice(readers).die()
        members.wait_until(lambda: all(each.heard("finished") for each in writers), "writers end")
        committed = committed_by(writers)
        members.wait_until(
            lambda: all(len(each.seen) >= len(committed) for each in subscribers), "all are seen"
        )
        members.wait_until(
            lambda: all(each.handled.keys() >= committed for each in groups), "all are handled"
        )
        asyncio.run(are_done(url))
        members.listen(0)
        for subscriber in subscribers:
            assert sorted(subscriber.seen) == sorted(committed)
            assert in_order(subscriber.seen)
        assert all(each.seen == subscribers[0].seen for each in subscribers)
        for group in groups:
            assert group.handled.keys() == committed
            assert out_of_order(group.handled) == []
