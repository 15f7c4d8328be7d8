"""Run work for ever: survive anything but being cancelled.

Each kind of work has a task of its own, so that one that fails, or hangs, delays no other. An
outage of the store is logged once and waited for; any other error is logged with its traceback,
counted, and followed by a pause that doubles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from flowfabric.api.hints import wait_event
from flowfabric.clock import stopwatch
from flowfabric.engine.complaint import Complaints
from flowfabric.engine.loop_status import DutyStatus
from flowfabric.ids import jitter
from flowfabric.trouble import is_passing

logger = logging.getLogger("flowfabric.loops")

OUTAGE_PAUSE_S: Final = 1.0
FAILURE_PAUSE_S: Final = 0.5
FAILURE_PAUSE_S_MAX: Final = 30.0

Turn = Callable[[], Awaitable[float]]  # one bounded piece; returns the seconds to rest after it


class Duty:
    """One kind of work and its status."""

    def __init__(
        self, name: str, turn: Turn, *, woken: asyncio.Event | None = None, first_s: float = 0.0
    ) -> None:
        """`woken`: ends a rest early. `first_s`: the rest before the first turn."""
        self.name = name
        self._turn = turn
        self._woken = woken
        self._first_s = first_s
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._is_resting = False
        self._outage = False
        self._complaints = Complaints(logger)
        self._completed_at: float | None = None
        self._failures = 0
        self._failures_total = 0
        self._last_error: str | None = None

    def start(self) -> None:
        """Start in the running event loop."""
        self._task = asyncio.create_task(self._run(), name=f"flowfabric-{self.name}")

    async def stop(self, grace_s: float) -> None:
        """Let the running turn finish within the grace period; then cancel it."""
        task, self._task = self._task, None
        if task is None:
            return
        self._stopping = True
        if self._is_resting:
            task.cancel()
        await asyncio.wait((task,), timeout=grace_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def status(self) -> DutyStatus:
        """The current status."""
        is_running = self._task is not None and not self._task.done()
        done = self._completed_at
        since = None if done is None else stopwatch() - done
        return DutyStatus(
            self.name, is_running, since, self._failures, self._failures_total, self._last_error
        )

    async def _run(self) -> None:
        await self._rest(self._first_s)
        while not self._stopping:
            pause_s = await self._survive()
            if not self._stopping:
                await self._rest(pause_s)

    async def _survive(self) -> float:
        """One turn; returns the seconds to rest after it, whatever its outcome."""
        try:
            pause_s = await self._turn()
        except Exception as error:  # noqa: BLE001 - whatever the error, the work goes on
            return self._failed(error)
        self._failures, self._completed_at = 0, stopwatch()
        if self._outage:
            logger.warning("%s: the store is back", self.name)
            self._outage = False
        return pause_s

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        self._failures_total += 1
        self._last_error = type(error).__name__
        if is_passing(error):
            if not self._outage:
                logger.warning("%s: background work waits for the store: %s", self.name, error)
            self._outage = True
            return OUTAGE_PAUSE_S * (0.5 + jitter())
        self._complaints.tell("%s: background work failed: %s", self.name, error, error=error)
        longest = min(FAILURE_PAUSE_S_MAX, FAILURE_PAUSE_S * 2.0 ** min(self._failures - 1, 20))
        return longest * (0.5 + jitter() / 2)

    async def _rest(self, pause_s: float) -> None:
        """After a failure nothing shortens the pause; otherwise a hint may."""
        self._is_resting = True
        try:
            await asyncio.sleep(0)  # work that never waits, in memory, must let other tasks run
            if self._woken is None or self._failures:
                await asyncio.sleep(pause_s)
            else:
                await wait_event(self._woken, pause_s)
        finally:
            self._is_resting = False
