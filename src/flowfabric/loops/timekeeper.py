"""The loops in every engine process: they sleep until something is due and then move it.

They own no state and need no leader: each rule checks again under lock and loops skip each other's
rows, so any number of processes may run them and any of these may die.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Final, Protocol

from flowfabric.clock import stopwatch
from flowfabric.engine.due_work import DueLook
from flowfabric.engine.here import WorkersHere
from flowfabric.engine.loop_status import DutyStatus
from flowfabric.engine.wakeups import DUE_TOPIC, Wakeups
from flowfabric.ids import jitter
from flowfabric.limits import DUE_BATCH, INSTANT_MS_MAX, STATISTIC_BATCH, STOP_GRACE_S
from flowfabric.loops.supervisor import Duty

LOOK_AGAIN_MS: Final = 2_000  # a lease of the shortest length taken elsewhere is found in TTL + 1 s
STUCK_LOOK_MS: Final = 500  # a due row that cannot be moved hides the next due time
HOUSEKEEPING_S: Final = 60.0
ROLL_UP_S: Final = 10.0  # how far minute statistics may lag behind
PIECES_MAX: Final = 100  # of one long piece of work between two searches for due rows


class Timed(Protocol):
    """The methods the loops need of an engine."""

    wakeups: Wakeups
    workers_here: WorkersHere
    next_look_at: int

    async def move_due(self) -> int: ...
    async def trim_retention(self) -> int: ...
    async def sweep(self) -> int: ...
    async def sweep_workers(self) -> int: ...
    async def roll_up(self, *, limit: int, every_ms: int) -> int: ...
    async def next_due(self) -> DueLook: ...


class Timekeeper:
    """Runs `move_due` whenever something is due, and housekeeping now and then."""

    def __init__(self, engine: Timed) -> None:
        self._engine = engine
        self._purge_due = asyncio.Event()
        self._duties: tuple[Duty, ...] = ()
        self._roll_up_ms = int(ROLL_UP_S * 500)
        self._listening = ExitStack()

    def start(self) -> None:
        """Start in the running event loop."""
        woken = self._listening.enter_context(self._engine.wakeups.listening((DUE_TOPIC,)))
        later = HOUSEKEEPING_S * jitter()
        self._duties = (
            Duty("timers", self._timers, woken=woken),
            Duty("retention", self._retention, woken=self._purge_due, first_s=later),
            Duty("sweep", self._sweep, first_s=later),
            Duty("workers", self._workers, first_s=later),
            Duty("statistics", self._statistics, first_s=ROLL_UP_S * jitter()),
        )
        for duty in self._duties:
            duty.start()

    async def stop(self) -> None:
        """Stop; a running turn may finish within a grace period."""
        await asyncio.gather(*(duty.stop(STOP_GRACE_S) for duty in self._duties))
        self._listening.close()

    def status(self) -> tuple[DutyStatus, ...]:
        """The status of each kind of work."""
        return tuple(duty.status() for duty in self._duties)

    # --- due work ---------------------------------------------------------------------------------

    async def _timers(self) -> float:
        """Do due work; returns the seconds until the next search."""
        engine = self._engine
        # anything that becomes due during this turn wakes it again
        engine.next_look_at = INSTANT_MS_MAX
        look = await self._look()
        pause_ms = LOOK_AGAIN_MS
        if look.due_at is not None and look.due_at <= look.now:
            self._purge_due.set()
            await engine.workers_here.catch_up()
            if await self._move_due(look.now):
                return 0.0
            pause_ms = STUCK_LOOK_MS
        elif look.due_at is not None:
            pause_ms = min(pause_ms, look.due_at - look.now + 1)
        engine.next_look_at = min(engine.next_look_at, look.now + pause_ms)
        return pause_ms / 1000

    async def _look(self) -> DueLook:
        try:
            return await self._engine.next_due()
        except Exception:
            await self._engine.move_due()  # it finds due work without being told
            raise

    async def _move_due(self, now: int) -> int:
        """Move due executions, and go straight on with follow-up work that is due at once, such as
        the rest of a wide cascade: a search of all due times costs more than trying."""
        engine, started, moved = self._engine, stopwatch(), 0
        for _ in range(PIECES_MAX):
            piece = await engine.move_due()
            moved += piece
            passed_ms = int((stopwatch() - started) * 1000)
            if not piece or engine.next_look_at > now + passed_ms:
                break
            engine.next_look_at = INSTANT_MS_MAX
        return moved

    # --- housekeeping, a batch at a time until little is left -------------------------------------

    async def _retention(self) -> float:
        return _until_next(await self._engine.trim_retention())

    async def _sweep(self) -> float:
        return _until_next(await self._engine.sweep())

    async def _workers(self) -> float:
        return _until_next(await self._engine.sweep_workers())

    async def _statistics(self) -> float:
        """One engine counts for all: the others find that it has."""
        counted = await self._engine.roll_up(limit=STATISTIC_BATCH, every_ms=self._roll_up_ms)
        is_behind = counted >= STATISTIC_BATCH
        self._roll_up_ms = 0 if is_behind else int(ROLL_UP_S * 500)
        return 0.0 if is_behind else ROLL_UP_S * (0.5 + jitter())


def _until_next(done: int) -> float:
    """The seconds until housekeeping goes on: at once while a batch was full."""
    return 0.0 if done >= DUE_BATCH else HOUSEKEEPING_S * (0.5 + jitter())
