"""Looking again when something has happened: once for all that want to see the same.

A watch is a look at the store that is taken again when one of its topics rings. Topics ring by
events and by hints; while nothing happens no look is taken. All readers of a watch share its looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from flowfabric.api.backend import EngineBackend
from flowfabric.api.events import NOW, SubscribeEvents
from flowfabric.api.hints import end_topic, flow_topic, stream_topic
from flowfabric.clock import stopwatch
from flowfabric.errors import FlowFabricError, StoreError
from flowfabric.ids import new_name
from flowfabric.limits import PAGE_MAX
from flowfabric.model.feed import Event, EventKind
from flowfabric.trouble import is_passing

_LOGGER = logging.getLogger("flowfabric.server")
_PACE_S: Final = 0.25  # between two looks of a watch: what happens together is shown together
_SHARE: Final = 4  # a look that takes long is taken so many times more seldom
_PAUSE_S: Final = 2.0  # before another look, where the store was away
_WAIT_MS: Final = 30_000
_EXECUTION: Final = (EventKind.LEASE, EventKind.SIGNAL, EventKind.OPERATOR, EventKind.COMPLETION)
_OF_FLOWS: Final = (EventKind.FLOW, EventKind.OPERATOR)
_TICK: Final = "tick:"
_PACE: Final = "pace:"
# Which topics ring with an event of a kind, besides that of its execution and its flow.
_OF_KIND: Final[Mapping[EventKind, tuple[str, ...]]] = {
    EventKind.LEASE: ("runs", "approvals", "lanes"),
    EventKind.SIGNAL: ("runs", "approvals"),
    EventKind.OPERATOR: ("runs", "approvals", "lanes", "audit", "budgets"),
    EventKind.COMPLETION: ("runs", "approvals", "lanes", "failures"),
    EventKind.FLOW: ("flows",),
    EventKind.BUDGET: ("budgets",),
    EventKind.WORKER: ("workers",),
}


def topics_of(event: Event) -> set[str]:
    """What rings with an event."""
    found = set(_OF_KIND[event.kind])
    if event.kind in _EXECUTION:
        found.add(f"execution:{event.subject}")
    if event.kind in _OF_FLOWS:
        found.add(f"flow:{event.subject}")
    if event.kind is EventKind.LEASE and event.subject.startswith("{fp:"):
        # it names no flow, but the members of one are all on its partition
        found.add(f"partition:{event.subject[4:].partition('}')[0]}")
    for name, topic in (("flow_id", "flow"), ("execution_id", "execution")):
        if isinstance(value := event.details.get(name), str):
            found.add(f"{topic}:{value}")
    return found


class Viewer(Protocol):
    """What is told of each look."""

    def see(self, watch: Watch) -> None:
        """The watch has looked."""
        ...


class Watch:
    """One look that is taken again and again. `seen` is what the last one saw, under `version`;
    `trouble` says why the last one saw nothing."""

    def __init__(self, name: str, topics: Iterable[str], look: Callable[[], Awaitable[object]]):
        self.name = name
        self.topics = frozenset(topics)
        self.every_s = min((_seconds(each) for each in self.topics if each[:5] == _TICK), default=0)
        self.pace_s = max((_seconds(each) for each in self.topics if each[:5] == _PACE), default=0)
        self.seen: object = None
        self.version = 0
        self.trouble: FlowFabricError | None = None
        self.viewers: set[Viewer] = set()
        self.bell = asyncio.Event()
        self.has_looked = asyncio.Event()
        self._look = look

    @property
    def more(self) -> tuple[str, ...]:
        """Topics that are known by what was seen."""
        found: tuple[str, ...] = getattr(self.seen, "topics", ())
        return found

    @property
    def place(self) -> str:
        """What was seen last, as an id that a viewer hands back when it comes again."""
        return f"{self.name}.{self.version}"

    async def look(self) -> None:
        """Take a look."""
        try:
            self.seen, self.trouble = await self._look(), None
        except FlowFabricError as error:
            self.trouble = error
        except Exception as error:
            _LOGGER.exception("a live page cannot be shown", exc_info=error)
            self.trouble = StoreError("a defect of the server; its log has the cause")
        self.version += 1
        self.has_looked.set()

    async def go_on(self) -> None:
        """Look, and again whenever it rings, and tell the viewers."""
        await self.look()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s()):
                    await self.bell.wait()
            self.bell.clear()
            began = stopwatch()
            await self.look()
            for each in tuple(self.viewers):
                each.see(self)
            await asyncio.sleep(max(_PACE_S, self.pace_s, _SHARE * (stopwatch() - began)))

    def _patience_s(self) -> float | None:
        if self.trouble is not None and is_passing(self.trouble):
            return _PAUSE_S
        return None if getattr(self.seen, "is_quiet", False) else self.every_s or None


def _seconds(topic: str) -> float:
    """`tick:5s` rings by itself; `pace:1s` is the least time between two looks."""
    return float(topic.partition(":")[2].removesuffix("s"))


class Watches:
    """All watches of a server, and what makes them ring: one reading of the feed for all."""

    def __init__(self, engine: EngineBackend) -> None:
        self._engine = engine
        self._open: dict[Hashable, tuple[Watch, asyncio.Task[None]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._forget: Callable[[], None] | None = None

    def __len__(self) -> int:
        """How many there are."""
        return len(self._open)

    async def watch(
        self, key: Hashable, topics: Iterable[str], look: Callable[[], Awaitable[object]]
    ) -> Watch:
        """The watch of this key, after a first look. It goes on until it is left."""
        if key not in self._open:
            self._hear()  # before the first look: what happens meanwhile makes another one
            made = Watch(new_name("w"), topics, look)
            self._open[key] = (made, asyncio.create_task(made.go_on(), name="flowfabric-watch"))
        found = self._open[key][0]
        try:
            await found.has_looked.wait()
        except asyncio.CancelledError:
            self.leave(key, found)
            raise
        return found

    async def follow(self, key: Hashable, watch: Watch, viewer: Viewer) -> None:
        """Tell the viewer of each look, for as long as this is awaited."""
        watch.viewers.add(viewer)
        try:
            await asyncio.Event().wait()
        finally:
            watch.viewers.discard(viewer)
            self.leave(key, watch)

    def leave(self, key: Hashable, watch: Watch) -> None:
        """Look no more if no viewer is left."""
        if watch.viewers or self._open.get(key, (None,))[0] is not watch:
            return
        self._open.pop(key)[1].cancel()
        if not self._open:
            self._hear_no_more()

    # --- what rings ----------------------------------------------------------------------------

    def ring(self, topics: Iterable[str]) -> None:
        """Something happened to these."""
        rang = set(topics)
        for watch, _ in self._open.values():
            if not rang.isdisjoint((*watch.topics, *watch.more)):
                watch.bell.set()

    def _hear(self) -> None:
        if self._reading is None:
            self._forget = self._engine.follow(self._hinted)
            self._reading = asyncio.create_task(self._read(), name="flowfabric-watching")

    def _hear_no_more(self) -> None:
        if self._forget is not None:
            self._forget()
        if self._reading is not None:
            self._reading.cancel()
        self._reading = self._forget = None

    def _hinted(self, hints: Mapping[str, int]) -> None:
        """Hints come before the feed has the event, and for what is no event: new work, frames."""
        for hint in hints:
            kind, _, name = hint.partition(":")
            if kind == "lane":
                self.ring(("runs", "lanes"))
            elif hint in (end_topic(name), stream_topic(name)):
                self.ring((f"execution:{name}",))
            elif hint == flow_topic(name):
                self.ring((f"flow:{name}",))

    async def _read(self) -> None:
        """The feed, for as long as there is a watch."""
        cursor: str = NOW
        while True:
            wanted = SubscribeEvents(after=cursor, limit=PAGE_MAX, wait_ms=_WAIT_MS)
            try:
                page = await self._engine.call(wanted)
            except FlowFabricError:
                await asyncio.sleep(_PAUSE_S)
                cursor = NOW
                self._ring_all()  # what happened meanwhile is not known
                continue
            if cursor == NOW and page.events:
                self._ring_all()
            cursor = page.cursor
            self.ring(topic for event in page.events for topic in topics_of(event))
            if page.events:
                await asyncio.sleep(_PACE_S)

    def _ring_all(self) -> None:
        for watch, _ in self._open.values():
            watch.bell.set()
