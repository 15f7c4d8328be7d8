"""Requests that wait: for as long as their client is there and the server goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar, cast

from flowfabric.api.backend import EngineBackend
from flowfabric.api.executions import ReadOutcomes, WaitForOutcome
from flowfabric.api.hints import Bell, end_topic, wait_event
from flowfabric.clock import stopwatch
from flowfabric.errors import FlowFabricError, WaitTimeout
from flowfabric.model.results import Outcome
from flowfabric.server.exchange import Call, Gone

T = TypeVar("T")

_LOOK_S: Final = 5.0  # how late an end is told when every hint is lost
_LOOKED_AT: Final = 1_000  # executions of one look


class Stopping(Exception):
    """The server stops: what waits is answered with what there is."""


class Patience:
    """The requests of one server that wait."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._ends: set[asyncio.Future[None]] = set()
        self._watch: asyncio.Task[None] | None = None

    async def while_there(self, call: Call, work: Awaitable[T]) -> T:
        """The result of work; `Gone` when the client goes first, `Stopping` when the server ends.
        Nothing of the work goes on then."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(call.until_gone())
        with self._told_of_end() as ending:
            try:
                await asyncio.wait((task, gone, ending), return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
                raise Gone if gone.done() else Stopping
            finally:
                for each in (gone, task):
                    if not each.done():
                        each.cancel()
                        with suppress(asyncio.CancelledError, FlowFabricError):
                            await each

    @contextmanager
    def _told_of_end(self) -> Iterator[asyncio.Future[None]]:
        """One task hears of the end for all: thousands wait at a time."""
        ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends.add(ending)
        if self._watch is None:
            self._watch = asyncio.create_task(self._tell())
        try:
            yield ending
        finally:
            self._ends.discard(ending)
            if not self._ends:
                self._watch.cancel()
                self._watch = None

    async def _tell(self) -> None:
        await self._stopping.wait()
        for each in tuple(self._ends):
            if not each.done():
                each.set_result(None)


class Endings:
    """Waits for the ends of executions: each for its hint, and one look now and then for all."""

    def __init__(self, engine: EngineBackend) -> None:
        self._engine = engine
        self._bells: dict[str, set[Bell]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def outcome(self, execution_id: str, wait_ms: int) -> Outcome:
        """How an execution ended; `WaitTimeout` if it has not by then."""
        until = stopwatch() + wait_ms / 1000
        with self._awaited(execution_id) as bell:
            while True:
                if bell.told is not None:
                    return cast("Outcome", bell.told)
                try:
                    return await self._engine.call(
                        WaitForOutcome(execution_id=execution_id, wait_ms=0)
                    )
                except WaitTimeout:
                    if (left := until - stopwatch()) <= 0:
                        raise
                await wait_event(bell, left)

    @contextmanager
    def _awaited(self, execution_id: str) -> Iterator[Bell]:
        with self._engine.listen((end_topic(execution_id),)) as bell:
            bells = self._bells.setdefault(execution_id, set())
            bells.add(bell)
            if self._looking is None:
                self._looking = asyncio.create_task(self._look())
            try:
                yield bell
            finally:
                bells.discard(bell)
                if not bells:
                    self._bells.pop(execution_id, None)
                if not self._bells and self._looking is not None:
                    self._looking.cancel()
                    self._looking = None

    async def _look(self) -> None:
        """Hints may be lost: look at all that are waited for, a thousand at a time."""
        while True:
            await asyncio.sleep(_LOOK_S)
            ids = list(self._bells)
            for start in range(0, len(ids), _LOOKED_AT):
                some = ids[start : start + _LOOKED_AT]
                with suppress(FlowFabricError):
                    found = await self._engine.call(ReadOutcomes(execution_ids=some))
                    for execution_id, outcome in found.items():
                        self._tell(execution_id, outcome)

    def _tell(self, execution_id: str, outcome: Outcome) -> None:
        for bell in self._bells.get(execution_id, ()):
            bell.told = outcome
            bell.set()
