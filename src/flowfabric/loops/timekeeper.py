"""The loop in every engine process: it sleeps until something is due and then moves it.

It owns no state and needs no leader: each rule checks again under lock, rivals skip each other's
rows, so any number of processes may run it and any of them may die.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from flowfabric.engine.timing import DueLook
from flowfabric.engine.wakeups import DUE_TOPIC, Wakeups, wait_event
from flowfabric.errors import FlowFabricError
from flowfabric.ids import jitter
from flowfabric.limits import INSTANT_MS_MAX

logger = logging.getLogger("flowfabric.loops")

LOOK_AGAIN_MS = 2_000  # a lease of the shortest length taken elsewhere is found within TTL + 1 s
HOUSEKEEPING_S = 60.0
OUTAGE_PAUSE_S = 1.0


class Timed(Protocol):
    """What the loop needs of an engine."""

    wakeups: Wakeups
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
        housekeeping_in_s = HOUSEKEEPING_S * jitter()
        with self._engine.wakeups.listening((DUE_TOPIC,)) as woken:
            while True:
                pause_s = await self._turn(housekeeping=housekeeping_in_s <= 0)
                if housekeeping_in_s <= 0:
                    housekeeping_in_s = HOUSEKEEPING_S * (0.5 + jitter())
                await wait_event(woken, pause_s)
                housekeeping_in_s -= max(pause_s, 0.01)

    async def _turn(self, *, housekeeping: bool) -> float:
        """Do what is due; the seconds until the next look. The loop outlives any store outage."""
        engine = self._engine
        engine.next_look_at = INSTANT_MS_MAX  # whatever becomes due during this turn wakes it again
        try:
            look = await engine.next_due()
            if look.due_at is not None and look.due_at <= look.now:
                if await engine.move_due() + await engine.trim_retention():
                    return 0.0
                # What is due cannot be read: doctor reports it, everything else goes on.
                look = DueLook(look.now, None)
            if housekeeping:
                await engine.sweep()
        except FlowFabricError as error:
            if not self._outage:
                logger.warning("background work waits for the store: %s", error)
            self._outage = True
            return OUTAGE_PAUSE_S * (0.5 + jitter())
        self._outage = False
        pause_ms = LOOK_AGAIN_MS
        if look.due_at is not None:
            pause_ms = min(pause_ms, look.due_at - look.now + 1)
        engine.next_look_at = min(engine.next_look_at, look.now + pause_ms)
        return pause_ms / 1000
