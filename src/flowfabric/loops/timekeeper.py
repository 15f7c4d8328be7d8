"""The loop in every engine process: it sleeps until something is due and then moves it.

It owns no state and needs no leader: each rule checks again under lock, rivals skip each other's
rows, so any number of processes may run it and any of them may die.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from flowfabric.engine.wakeups import DUE_TOPIC, Wakeups, wait_event
from flowfabric.errors import FlowFabricError
from flowfabric.ids import jitter

logger = logging.getLogger("flowfabric.loops")

LOOK_AGAIN_S = 2.0  # a lease of the shortest length taken elsewhere is found within TTL + 1 s
HOUSEKEEPING_S = 60.0
OUTAGE_PAUSE_S = 1.0


class Timed(Protocol):
    """What the loop needs of an engine."""

    wakeups: Wakeups
    next_due_hint: int | None

    async def move_due(self) -> int: ...
    async def trim_retention(self) -> int: ...
    async def sweep(self) -> int: ...
    async def next_due(self) -> int | None: ...


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
        try:
            due_in_ms = await self._engine.next_due()
            if due_in_ms == 0:
                moved = await self._engine.move_due() + await self._engine.trim_retention()
                if moved:
                    return 0.0
                due_in_ms = None  # what is due cannot be read: doctor reports it, others go on
            if housekeeping:
                await self._engine.sweep()
        except FlowFabricError as error:
            if not self._outage:
                logger.warning("background work waits for the store: %s", error)
            self._outage = True
            return OUTAGE_PAUSE_S * (0.5 + jitter())
        self._outage = False
        self._engine.next_due_hint = None
        if due_in_ms is None:
            return LOOK_AGAIN_S
        return min(LOOK_AGAIN_S, due_in_ms / 1000 + 0.001)
