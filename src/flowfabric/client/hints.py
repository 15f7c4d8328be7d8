"""Hints from a server: one request is kept waiting for all topics that are listened to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from flowfabric.api.hints import Bell, HintsAsked, HintsHeard
from flowfabric.client.pauses import Polls
from flowfabric.clock import monotonic
from flowfabric.errors import FlowFabricError, OutcomeUnknown
from flowfabric.model.record import from_msgpack, to_msgpack

_MARGIN_S: Final = 10.0
_PAUSE_S: Final = 0.5
_PAUSE_MAX_S: Final = 10.0

Hear = Callable[[bytes, float], Awaitable[bytes]]
Told = Callable[[Mapping[str, int]], None]


class HintFeed:
    """The bells of this process that ring by a server's hints. Losing hints costs time only."""

    def __init__(self, hear: Hear, polls: Polls) -> None:
        self._hear = hear
        self._polls = polls
        self._bells: defaultdict[str, set[Bell]] = defaultdict(set)
        self._followers: list[Told] = []
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._after: int | None = None
        self._origin: str | None = None

    @contextmanager
    def listen(self, topics: Iterable[str]) -> Iterator[Bell]:
        """A bell for these topics."""
        bell, names = Bell(), tuple(topics)
        for name in names:
            self._bells[name].add(bell)
        self._add()
        try:
            yield bell
        finally:
            for name in names:
                self._bells[name].discard(bell)
                if not self._bells[name]:
                    del self._bells[name]

    def follow(self, told: Told) -> Callable[[], None]:
        """Tell of each ring of a topic that is listened to."""
        self._followers.append(told)
        return lambda: self._followers.remove(told) if told in self._followers else None

    def _add(self) -> None:
        """What is new is asked for at once, with another request."""
        self._changed.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Hear no more."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    async def _run(self) -> None:
        pause_s = _PAUSE_S
        while topics := tuple(sorted(self._bells)):
            self._changed.clear()
            answer = asyncio.ensure_future(self._ask(topics))
            changed = asyncio.ensure_future(self._new_topics(set(topics)))
            try:
                await asyncio.wait((answer, changed), return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    self._ring(from_msgpack(answer.result(), HintsHeard, field="hints"))
                    pause_s = _PAUSE_S
            except FlowFabricError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            finally:
                for each in (answer, changed):
                    each.cancel()
                    with suppress(asyncio.CancelledError, FlowFabricError):
                        await each

    async def _ask(self, topics: tuple[str, ...]) -> bytes:
        wait_ms = self._polls.ms
        asked = HintsAsked(topics=topics, after=self._after, origin=self._origin, wait_ms=wait_ms)
        began = monotonic()
        try:
            return await self._hear(to_msgpack(asked), wait_ms / 1000 + _MARGIN_S)
        except OutcomeUnknown:
            self._polls.was_cut(monotonic() - began)
            raise

    async def _new_topics(self, asked: set[str]) -> None:
        """Return when a topic is listened to that was not asked for."""
        while self._bells.keys() <= asked:
            await self._changed.wait()
            self._changed.clear()

    def _ring(self, heard: HintsHeard) -> None:
        self._after, self._origin = heard.number, heard.origin
        rung = dict.fromkeys(heard.topics, 1)
        if not rung:
            return
        for name in heard.topics:
            for bell in tuple(self._bells.get(name, ())):
                bell.set()
        for told in tuple(self._followers):
            told(rung)
