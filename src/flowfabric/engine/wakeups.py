"""Waiting for an event, with hints that shorten the wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from flowfabric.api.hints import Bell
from flowfabric.stores.base import EVERYBODY

DUE_TOPIC = "due"


class Wakeups:
    """The open waits of this process."""

    def __init__(self) -> None:
        self._waiters: defaultdict[str, set[Bell]] = defaultdict(set)

    @contextmanager
    def listening(self, topics: Iterable[str]) -> Iterator[Bell]:
        """An event that is set when any of the topics is hinted at; subscribe before you read, so
        that nothing is missed between the read and the wait."""
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
        """Whether there is a listener for the topic."""
        return topic in self._waiters

    def tell(self, topic: str, what: object) -> None:
        """Hand waiters of the topic the value that a read would return."""
        for bell in self._waiters.get(topic, ()):
            bell.told = what

    def wake(self, topics: Mapping[str, int]) -> None:
        """Something may have happened: every waiter of a topic reads again."""
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
