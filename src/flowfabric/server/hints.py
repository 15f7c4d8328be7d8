"""Hints over HTTP: a request that ends when one of its topics rings.

A client is between two requests now and then. Each ring has a number, and a client tells the last
one it has heard, so that what rang meanwhile is told at once. Hints may be lost all the same.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.hints import HintsAsked, HintsHeard, wait_event

_REMEMBERED: Final = 20_000  # topics


class HintLog:
    """The number of the last ring of each topic."""

    def __init__(self, engine: EngineBackend, origin: str) -> None:
        self._engine = engine
        self._origin = origin
        self._number = 0
        self._last: OrderedDict[str, int] = OrderedDict()
        self._forget: Callable[[], None] | None = None

    def start(self) -> None:
        """Hear from now on."""
        self._forget = self._engine.follow(self._hear)

    def stop(self) -> None:
        """Hear no more."""
        if self._forget is not None:
            self._forget()
            self._forget = None

    def _hear(self, topics: Mapping[str, int]) -> None:
        for topic in topics:
            self._number += 1
            self._last[topic] = self._number
            self._last.move_to_end(topic)
        while len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)

    async def heard(self, asked: HintsAsked, stopping: asyncio.Event) -> HintsHeard:
        """What rang since the client's last answer, or what rings first."""
        if asked.origin not in (None, self._origin):
            # Another server answered last: whatever rang meanwhile is not known here.
            return HintsHeard(topics=tuple(asked.topics), origin=self._origin, number=self._number)
        after = self._number if asked.after is None else asked.after
        with self._engine.listen(asked.topics) as bell:
            rang = self._since(after, asked.topics)
            if not rang and asked.wait_ms > 0:
                ended = asyncio.ensure_future(stopping.wait())
                ended.add_done_callback(lambda _: bell.set())
                try:
                    await wait_event(bell, asked.wait_ms / 1000)
                finally:
                    ended.cancel()
                rang = self._since(after, asked.topics)
            return HintsHeard(topics=rang, origin=self._origin, number=self._number)

    def _since(self, after: int, topics: Sequence[str]) -> tuple[str, ...]:
        last = self._last
        return tuple(
            topic
            for topic in topics
            if last.get(topic, 0) > after or last.get(_all_of(topic), 0) > after
        )


def _all_of(topic: str) -> str:
    """What rings in the place of too many topics of a kind."""
    return f"{topic.partition(':')[0]}:*"
