"""One execution in this worker's hands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

from flowfabric.engine.engine import Engine
from flowfabric.errors import (
    ExecutionNotActive,
    FlowFabricError,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    StaleLease,
)
from flowfabric.model.results import Claimed
from flowfabric.sdk.durations import instant_ms
from flowfabric.sdk.errors import Stopped
from flowfabric.sdk.task import Task
from flowfabric.sdk.worker.outage import is_outage

LOST = (StaleLease, LeaseExpired, LeaseRevoked, ExecutionNotActive, NotFound)


class Desk:
    """What all executions of one worker share."""

    __slots__ = ("engine", "loop", "lost")

    def __init__(self, engine: Engine, lost: Callable[[Held, str], None]) -> None:
        self.engine = engine
        self.lost = lost
        self.loop = asyncio.get_running_loop()


class Held:
    """An execution, its task and the state of its handler. Implements `context.Owner`."""

    __slots__ = (
        "_waker",
        "claimed",
        "desk",
        "handler",
        "is_drained",
        "is_finished",
        "is_started",
        "is_stopped",
        "lapse_at",
        "renew_at",
        "task",
    )

    def __init__(
        self, claimed: Claimed, task: Task[..., Any], desk: Desk, renew_at: float, lapse_at: float
    ) -> None:
        self.claimed = claimed
        self.task = task
        self.desk = desk
        self.renew_at = renew_at  # when to ask for a longer lease, on the monotonic clock
        self.lapse_at = lapse_at  # when the lease is surely gone unless it was renewed
        self.handler: asyncio.Task[None] | None = None
        self.is_started = False
        self.is_finished = False  # the handler has ended; its report may still be on its way
        self.is_stopped = False  # nothing the handler still does will count
        self.is_drained = False  # stopped by our own drain: the execution is given back
        self._waker: threading.Event | None = None

    def stop(self) -> None:
        """Tell the handler that its work no longer counts; an async one is also interrupted."""
        self.is_stopped = True
        if self._waker is not None:
            self._waker.set()
        # A task cancelled before its first step would never run its own clean-up.
        if self.handler is not None and self.is_started and not self.is_finished:
            self.handler.cancel()

    async def report_progress(self, percent: int | None, message: str | None) -> None:
        """Progress is a courtesy: an outage does not fail the work, a lost lease ends it."""
        if self.is_stopped:
            raise Stopped(self.claimed.execution_id)
        try:
            await self.desk.engine.progress(self.claimed.handle, percent=percent, message=message)
        except LOST as error:
            self.desk.lost(self, str(error))
            raise Stopped(self.claimed.execution_id) from error
        except FlowFabricError as error:
            if not is_outage(error):
                raise

    async def is_past(self, until: datetime) -> bool:
        """Whether the store's clock has reached an instant."""
        now: int = await self.desk.engine.server_time_ms()
        return now >= instant_ms(until, field="until")

    def wait_stopped(self, timeout_s: float | None) -> bool:
        """Block a thread until the execution is taken away or the time is over."""
        if self._waker is None:
            self._waker = threading.Event()
        if self.is_stopped:  # it may have been stopped before the event was there to be set
            return True
        return self._waker.wait(timeout_s)

    def wait_for(self, operation: Any) -> Any:
        """Run a coroutine on the worker's loop and block this thread for its answer."""
        if self.is_stopped:  # the loop may be gone with the worker
            operation.close()
            raise Stopped(self.claimed.execution_id)
        return asyncio.run_coroutine_threadsafe(operation, self.desk.loop).result()
