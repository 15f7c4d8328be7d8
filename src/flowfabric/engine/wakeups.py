"""Waiting for something to happen, with hints that shorten the wait."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flowfabric.stores.base import EVERYBODY

DUE_TOPIC = "due"


def lane_topic(lane_id: str) -> str:
    """Work began to wait on a lane."""
    return f"lane:{lane_id}"


def end_topic(execution_id: str) -> str:
    """An execution ended."""
    return f"done:{execution_id}"


def flow_topic(flow_id: str) -> str:
    """All members of a flow have ended."""
    return f"flow:{flow_id}"


class Bell(asyncio.Event):
    """Rings for one waiter, who may be told at once what there is to see."""

    told: Any = None


class Wakeups:
    """Who waits for what in this process."""

    def __init__(self) -> None:
        self._waiters: defaultdict[str, set[Bell]] = defaultdict(set)

    @contextmanager
    def listening(self, topics: Iterable[str]) -> Iterator[Bell]:
        """An event that is set when any of the topics is hinted at; take it before you look, so
        that nothing happens between the look and the wait."""
        event, names = Bell(), tuple(topics)
        for name in names:
            self._waiters[name].add(event)
        try:
            yield event
        finally:
            for name in names:
                self._waiters[name].discard(event)
                if not self._waiters[name]:
                    del self._waiters[name]

    def is_awaited(self, topic: str) -> bool:
        """Whether somebody listens to it just now."""
        return topic in self._waiters

    def tell(self, topic: str, what: Any) -> None:
        """Save those who wait for the topic the look: this is what they would see."""
        for bell in self._waiters.get(topic, ()):
            bell.told = what

    def wake(self, topics: Mapping[str, int]) -> None:
        """Something may have happened: everybody who waits for it looks again."""
        for name in topics:
            if name in EVERYBODY:
                self._wake_all(name[:-1])
            else:
                for event in tuple(self._waiters.get(name, ())):
                    event.set()

    def _wake_all(self, prefix: str) -> None:
        for name, events in tuple(self._waiters.items()):
            if name.startswith(prefix):
                for event in events:
                    event.set()


async def wait_event(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether the event came within the time."""
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
