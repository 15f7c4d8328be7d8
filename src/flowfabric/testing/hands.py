"""The workers of a test: real ones, without a clock of their own.

Their leases are renewed when the test lets time reach that instant. One that crashes is cut off as
it stands: nothing of it is cleaned up before the test ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final

from flowfabric.api.hints import lane_topic
from flowfabric.clock import monotonic
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.journal.journal import Around
from flowfabric.sdk.outage import Outage
from flowfabric.sdk.worker.capture import capturing
from flowfabric.sdk.worker.held import Held
from flowfabric.sdk.worker.settings import Settings, read_settings
from flowfabric.sdk.worker.worker import Shift
from flowfabric.testing.line import Line
from flowfabric.testing.loop import as_worker

_CONCURRENCY: Final = 10_000  # no run of a test waits for another one's slot


class HandShift(Shift):
    """A worker of which a test moves the clock."""

    def __init__(
        self, fabric: Fabric, line: Line, settings: Settings, around: Around, now_ms: int
    ) -> None:
        super().__init__(fabric, line, settings, Outage())
        self._leases.desk.around = around
        self._leases.set_store_clock(now_ms)
        self.claims = 0

    async def work(self) -> None:
        """Claim and run until cancelled; what runs then is left as it stands."""
        await self._listening.join()
        parts = (self._reporter, self._leases.scribe, self._listening)
        background = [asyncio.create_task(part.run()) for part in parts]
        forget = self._engine.follow(self._leases._hinted)
        try:
            with capturing():
                await self._claim_until_stopped()
        finally:
            forget()
            for task in background:
                task.cancel()
            self._threads.close()

    async def _claim_until_stopped(self) -> None:
        """Claim as many as fit, then wait for a hint, or until it is told to look."""
        topics = [lane_topic(lane) for lane in self._settings.lanes]
        with self._engine.listen(topics) as self._hinted:
            while self._tasks:
                self._hinted.clear()
                claims = await self._claim(self._free_slots())
                self.claims += len(claims or ())
                if claims is not None and len(claims) < self._free_slots():
                    await self._hinted.wait()
            await self._stopping.wait()

    def look(self) -> None:
        """Claim without a hint, and ask whether running executions still are: hints of a database
        come later than the test goes on."""
        self._hinted.set()
        for held in self._running:
            held.renew_at = 0.0

    async def sign_on(self, now_ms: int) -> None:
        """Enter the registry of workers, which explanations read."""
        self._leases.set_store_clock(now_ms)
        if self._tasks:
            await self._presence._register()

    @property
    def running(self) -> list[Held]:
        """The executions whose handlers run."""
        return list(self._running)

    @property
    def next_renewal(self) -> float | None:
        """When a lease is to be renewed, on the loop's clock."""
        return min((held.renew_at for held in self._leases if not held.is_stopped), default=None)

    def renew(self) -> bool:
        """Renew what is due; whether there was something."""
        due = self._leases.due(monotonic())
        lapsed = [held for held in self._leases if held.lapse_at <= monotonic()]
        self._leases.tick()
        return bool(due or [held for held in lapsed if not held.is_stopped])

    def handlers(self) -> list[asyncio.Task[None]]:
        """The tasks in which async handlers run."""
        return [held.handler for held in self._running if held.handler is not None]


class Hand:
    """One worker of a test, alive or dead."""

    def __init__(
        self,
        fabric: Fabric,
        line: Line,
        around: Callable[[Hand], Around],
        *,
        name: str,
        lease_ttl: str,
        now_ms: int,
    ) -> None:
        tasks = fabric.tasks
        needs = {need for task in tasks.values() for need in _needs(task)}
        settings = read_settings(
            tasks,
            listens=bool(fabric.listeners),
            namespaces=None,
            lanes=None,
            concurrency=_CONCURRENCY,
            capabilities=sorted(needs),
            worker_id=name,
            lease_ttl=lease_ttl,
            poll_interval="1d",
            drain_timeout=0,
            warm=0,
        )
        self.line = line
        self.is_dead = False
        self.paused_until: float | None = None
        self.go_on = asyncio.Event()
        self.shift = HandShift(fabric, line, settings, around(self), now_ms)
        context = copy_context()
        as_worker(context)
        self._work = asyncio.create_task(self.shift.work(), context=context)

    @property
    def is_usable(self) -> bool:
        """Whether it claims and works."""
        return not self.is_dead and self.paused_until is None

    def raise_error(self) -> None:
        """A worker that ended by itself has met an error of its own."""
        if self._work.done() and not self._work.cancelled():
            self._work.result()

    def die(self) -> None:
        """Be cut off, without any clean-up."""
        self.is_dead = True
        self.go_on.set()

    def pause(self, until: float) -> None:
        """Do nothing until then."""
        self.paused_until = until
        self.go_on.clear()

    def unpause(self) -> None:
        """Go on, as a process that was stopped."""
        self.paused_until = None
        self.go_on.set()

    def close(self) -> list[asyncio.Future[Any]]:
        """The test is over: end everything; what is still to be awaited."""
        self.is_dead = True
        left: list[asyncio.Future[Any]] = [self._work, *self.shift.handlers()]
        for held in self.shift.running:
            held.is_stopped = True
        for each in (*left, *self.line.waiting):
            each.cancel()
        return left


def _needs(task: Any) -> tuple[str, ...]:
    routing = task.policy.routing_requirements
    return () if routing is None else tuple(routing.required_capabilities)
