"""The loop in every engine process: it sleeps until something is due and then moves it.

It owns no state and needs no leader: each rule checks again under lock, rivals skip each other's
rows, so any number of processes may run it and any of them may die.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from flowfabric.clock import monotonic
from flowfabric.engine.here import WorkersHere
from flowfabric.engine.timing import DueLook
from flowfabric.engine.wakeups import DUE_TOPIC, Wakeups, wait_event
from flowfabric.errors import FlowFabricError
from flowfabric.ids import jitter
from flowfabric.limits import DUE_BATCH, INSTANT_MS_MAX

logger = logging.getLogger("flowfabric.loops")

LOOK_AGAIN_MS = 2_000  # a lease of the shortest length taken elsewhere is found within TTL + 1 s
HOUSEKEEPING_S = 60.0
OUTAGE_PAUSE_S = 1.0
PIECES_MAX = 100  # of one long piece of work between two looks at all that is due


class Timed(Protocol):
    """What the loop needs of an engine."""

    wakeups: Wakeups
    workers_here: WorkersHere
    next_look_at: int

    async def move_due(self) -> int: ...
    async def trim_retention(self) -> int: ...
    async def sweep(self) -> int: ...
    async def next_due(self) -> DueLook: ...


class Timekeeper:
    """Runs `move_due` whenever something is due, and housekeeping now and then."""

    def __init__(self, engine: Timed) -> None:
        self._engine = engine
        self._task: asyncio.Task[None] | None = None
        self._outage = False

    def start(self) -> None:
        """Begin in the running event loop."""
        self._task = asyncio.create_task(self._run(), name="flowfabric-timekeeper")

    async def stop(self) -> None:
        """End, whatever it is doing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        housekeeping_at = monotonic() + HOUSEKEEPING_S * jitter()
        with self._engine.wakeups.listening((DUE_TOPIC,)) as woken:
            while True:
                pause_s = await self._survive(self._turn)
                if monotonic() >= housekeeping_at:
                    await self._survive(self._sweep)
                    housekeeping_at = monotonic() + HOUSEKEEPING_S * (0.5 + jitter())
                await wait_event(woken, pause_s)

    async def _survive(self, work: Callable[[], Awaitable[float]]) -> float:
        """The loop outlives any outage of the store; one is logged once."""
        try:
            pause_s = await work()
        except FlowFabricError as error:
            if not self._outage:
                logger.warning("background work waits for the store: %s", error)
            self._outage = True
            return OUTAGE_PAUSE_S * (0.5 + jitter())
        self._outage = False
        return pause_s

    async def _turn(self) -> float:
        """Do what is due; the seconds until the next look."""
        engine = self._engine
        engine.next_look_at = INSTANT_MS_MAX  # whatever becomes due during this turn wakes it again
        look = await engine.next_due()
        due_at = look.due_at
        if due_at is not None and due_at <= look.now:
            await engine.workers_here.catch_up()
            if await self._move_due(look.now) + await engine.trim_retention():
                return 0.0
            due_at = None  # what is due cannot be read: doctor reports it, all else goes on
        pause_ms = LOOK_AGAIN_MS
        if due_at is not None:
            pause_ms = min(pause_ms, due_at - look.now + 1)
        engine.next_look_at = min(engine.next_look_at, look.now + pause_ms)
        return pause_ms / 1000

    async def _move_due(self, now: int) -> int:
        """Move what is due, and go straight on with what that leaves to be done at once, such as
        the rest of a wide cascade: a look at all due times costs more than trying."""
        engine, started, moved = self._engine, monotonic(), 0
        for _ in range(PIECES_MAX):
            piece = await engine.move_due()
            moved += piece
            passed_ms = int((monotonic() - started) * 1000)
            if not piece or engine.next_look_at > now + passed_ms:
                break
            engine.next_look_at = INSTANT_MS_MAX
        return moved

    async def _sweep(self) -> float:
        """Delete what has outlived its use, a batch at a time until little is left."""
        while await self._engine.sweep() >= DUE_BATCH:
            continue
        return 0.0
