"""The line of a worker to its store: it can be cut, break down and lose replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, cast

from flowfabric.api.backend import EngineBackend, LocalWorker
from flowfabric.api.groups import ReadGroup
from flowfabric.api.hints import Bell
from flowfabric.api.operation import Request
from flowfabric.errors import FlowFabricError
from flowfabric.model.group import Delivery
from flowfabric.model.record import replace
from flowfabric.model.results import BackendCapabilities
from flowfabric.testing.loop import VirtualLoop

R = TypeVar("R")


class Trouble(Protocol):
    """What happens to requests on their way."""

    async def before(self, line: Line, requests: Sequence[Request[Any]]) -> None:
        """Nothing was sent yet. It may raise, or never return."""
        ...

    async def after(self, line: Line, requests: Sequence[Request[Any]]) -> None:
        """The store has done it. It may raise, or never return."""
        ...


class Line(EngineBackend):
    """An engine as one worker, or the test itself, reaches it."""

    def __init__(self, engine: EngineBackend, loop: VirtualLoop, trouble: Trouble | None) -> None:
        self._engine = engine
        self._loop = loop
        self._trouble = trouble
        self.rung = asyncio.Event()  # events may have come
        self.waiting: set[asyncio.Future[None]] = set()  # calls that never return

    async def call(self, request: Request[R]) -> R:
        """There and back."""
        if self._trouble is not None:
            await self._trouble.before(self, (request,))
        if isinstance(request, ReadGroup):
            return cast("R", await self._next_events(request))
        reply = await self._counted(request)
        if self._trouble is not None:
            await self._trouble.after(self, (request,))
        return reply

    async def _next_events(self, request: ReadGroup) -> Delivery:
        """Wait until the test says that there may be some: the store would wait in real time."""
        while True:
            self.rung.clear()
            taken = await self._counted(replace(request, wait_ms=0))
            if taken.events:
                return taken
            await self.rung.wait()

    async def _counted(self, request: Request[R]) -> R:
        # A call that waits for something may wait for what only a test does.
        with self._loop.in_store(counts=getattr(request, "wait_ms", 0) == 0):
            return await self._engine.call(request)

    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """There and back, together."""
        if self._trouble is not None:
            await self._trouble.before(self, requests)
        with self._loop.in_store():
            replies = await self._engine.call_many(requests)
        if self._trouble is not None:
            await self._trouble.after(self, requests)
        return replies

    async def silence(self) -> None:
        """Never return: the process that called is dead."""
        forever: asyncio.Future[None] = self._loop.create_future()
        self.waiting.add(forever)
        await forever

    def listen(self, topics: Iterable[str]) -> AbstractContextManager[Bell]:
        """As the engine."""
        return self._engine.listen(topics)

    def follow(self, told: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """As the engine."""
        return self._engine.follow(told)

    def is_same_as(self, other: EngineBackend) -> bool:
        """Every line leads to the engine of its test."""
        return isinstance(other, Line) and other._engine is self._engine

    def present(self, worker: LocalWorker) -> AbstractContextManager[None]:
        """As the engine."""
        return self._engine.present(worker)

    def again(self) -> EngineBackend:
        """As the engine."""
        return self._engine.again()

    @property
    def home_namespace(self) -> str:
        """As the engine."""
        return self._engine.home_namespace

    def at_home_in(self, namespace: str) -> EngineBackend:
        """As the engine."""
        return self._engine.at_home_in(namespace)

    def backend_label(self) -> str:
        """As the engine."""
        return self._engine.backend_label()

    def capabilities(self) -> BackendCapabilities:
        """As the engine."""
        return self._engine.capabilities()

    async def start(self, *, migrate: bool = True) -> None:
        """It is started by the test."""

    async def close(self) -> None:
        """It is closed by the test."""
