"""The worker's own life: start, claim, run, drain."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.api.hints import lane_topic, wait_event
from flowfabric.clock import monotonic
from flowfabric.errors import FlowFabricError
from flowfabric.model.results import Claimed
from flowfabric.sdk.durations import Duration
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.outage import Outage, Patience
from flowfabric.sdk.threads import Threads
from flowfabric.sdk.worker import telling
from flowfabric.sdk.worker.attempt_spans import run_in_span, run_sync_in_span
from flowfabric.sdk.worker.capture import capturing, still_capture
from flowfabric.sdk.worker.declaring import Declaring
from flowfabric.sdk.worker.handlers import run_async, run_sync
from flowfabric.sdk.worker.held import Held
from flowfabric.sdk.worker.leases import Leases
from flowfabric.sdk.worker.listening import Listening
from flowfabric.sdk.worker.presence import Presence
from flowfabric.sdk.worker.reports import Failed, Postponed, Report, Reporter, Succeeded
from flowfabric.sdk.worker.settings import WARM, Settings, read_settings
from flowfabric.sdk.worker.stops import Stops
from flowfabric.sdk.worker.warm import Warm
from flowfabric.sdk.worker.watchdog import Watchdog
from flowfabric.tracing.spans import spans
from flowfabric.trouble import is_passing, may_pass

_LOGGER = logging.getLogger("flowfabric.worker")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_INTERRUPTED_S = 1.0  # for handlers to clean up after their interruption
_CLAIM_WAIT_MS = 20_000
_CATCH_UP_S = 0.5  # for reports after a standstill; longer would delay recovery by other workers


class Worker:
    """Runs the tasks of a fabric until it is stopped.

    `namespaces`: the tenants it serves, each with its fair share; by default the fabric's own.
    `lanes`: where to look, by default where the tasks are. `concurrency`: how many handlers run at
    once, by default 200, or 100 if some tasks are sync: each of those needs a thread.
    `capabilities`: what this worker offers to tasks that need something. `lease_ttl`: how soon
    another worker takes over when this one dies; renewed at a third of it. `warm`: how many
    handlers that wait are kept in memory, to go on where they are instead of from the top.
    `metrics`: an address such as ":9464" on which it answers scrapes of Prometheus.

    On SIGTERM or Ctrl-C it claims no more, lets the handlers finish for `drain_timeout`, then
    interrupts the rest and gives their executions back; a second signal skips the wait.

    ```
    asyncio.run(Worker(ff, concurrency=50).run())
    ```
    """

    def __init__(
        self,
        fabric: Fabric,
        *,
        namespaces: Iterable[str] | None = None,
        lanes: Iterable[str] | None = None,
        concurrency: int | None = None,
        capabilities: Iterable[str] = (),
        worker_id: str | None = None,
        lease_ttl: Duration = "30s",
        poll_interval: Duration = "5s",
        drain_timeout: Duration = "30s",
        warm: int = WARM,
        metrics: str | None = None,
    ) -> None:
        self._fabric = fabric
        self._settings = read_settings(
            fabric.tasks,
            listens=bool(fabric.listeners),
            namespaces=namespaces,
            lanes=lanes,
            concurrency=concurrency,
            capabilities=capabilities,
            worker_id=worker_id,
            lease_ttl=lease_ttl,
            poll_interval=poll_interval,
            drain_timeout=drain_timeout,
            warm=warm,
            metrics=metrics,
        )
        self._shift: Shift | None = None
        self._is_stopped_early = False

    @property
    def settings(self) -> Settings:
        """Its settings and names."""
        return self._settings

    async def run(self, *, handle_signals: bool = True) -> None:
        """Work until stopped. A store that is down is waited for."""
        started_here = not self._fabric.is_started
        telling.started(self._settings, self._fabric.url, self._fabric.config.namespace)
        outage = Outage()
        engine = await _start(self._fabric, Patience(outage))
        self._shift = Shift(self._fabric, engine, self._settings, outage)
        try:
            if self._is_stopped_early:
                return
            async with self._metering(engine, self._shift):
                with _stopping_on_signals(self) if handle_signals else nullcontext():
                    await self._shift.work()
        finally:
            self._shift = None
            self._is_stopped_early = False
            if started_here:
                await self._fabric.close()
            telling.stopped(self._settings)

    @asynccontextmanager
    async def _metering(self, engine: EngineBackend, shift: Shift) -> AsyncIterator[None]:
        """Metrics are told while the block runs, where they are asked for."""
        if self._settings.metrics is None:
            yield
            return
        from flowfabric.sdk.worker.metering import WorkerMetering

        metering = WorkerMetering(engine, self._settings, shift.busy)
        await metering.start()
        telling.measured(metering.address)
        try:
            yield
        finally:
            await metering.stop()

    def stop(self, *, immediately: bool = False) -> None:
        """Drain and return from `run`; `immediately` skips the wait. Any thread may call it."""
        if self._shift is None:
            self._is_stopped_early = True
        else:
            self._shift.stop(immediately=immediately)


class Shift:
    """One run of a worker, from its first claim to its last report."""

    def __init__(
        self, fabric: Fabric, engine: EngineBackend, settings: Settings, outage: Outage
    ) -> None:
        self._tasks = fabric.tasks
        self._engine = engine
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        size = fabric.config.payload_bytes_max
        self._leases = Leases(engine, settings.lease_ttl_ms, outage, size)
        self._reporter = Reporter(engine, outage, self._answered, self._leases.store_now_ms)
        self._warm = self._leases.desk.warm = Warm(settings.warm, self._parked)
        self._presence = Presence(
            engine,
            settings,
            outage,
            self._leases.set_store_clock,
            busy=lambda: len(self._running),
            drained=self._drained,
        )
        self._stops = Stops(engine, settings, self._leases, outage, self._drained)
        self._watchdog = Watchdog(engine, self._leases)
        self._patience = Patience(outage)
        self._threads = Threads(settings.concurrency)
        self._running: set[Held] = set()
        self._room = asyncio.Event()
        self._hinted = asyncio.Event()
        self._stopping = asyncio.Event()
        listeners, name = fabric.listeners.values(), settings.instance_id
        self._listening = Listening(engine, listeners, name, outage, self._stopping)
        self._declaring = Declaring(engine, fabric, name)
        self._hurry = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def instance_id(self) -> str:
        """The name its leases carry."""
        return self._settings.instance_id

    def busy(self) -> Counter[str]:
        """How many handlers run, by lane."""
        return Counter(held.claimed.lane_id for held in self._running)

    async def catch_up(self) -> None:
        """After a standstill of the process: renewals and reports before anything is reclaimed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_S):
                if await self._leases.catch_up():
                    await asyncio.sleep(0)  # handlers that finished meanwhile get to report
                    await self._reporter.flushed()

    def stop(self, *, immediately: bool) -> None:
        """Claim no more; finish the claimed work."""
        wanted = [self._stopping, self._room, self._hinted]
        for event in (*wanted, *([self._hurry] if immediately else [])):
            self._loop.call_soon_threadsafe(event.set)

    def _drained(self) -> None:
        """An operator wants this worker to end."""
        if not self._stopping.is_set():
            telling.asked_to_end(self._settings)
            self.stop(immediately=False)

    async def work(self) -> None:
        """Claim and run until stopped, then drain."""
        await self._listening.join()
        background = [asyncio.create_task(part.run()) for part in self._parts()]
        with capturing(), self._engine.present(self):
            try:
                await self._claim_until_stopped()
            except asyncio.CancelledError:
                self._hurry.set()  # a caller that cancels us does not want to wait
                raise
            finally:
                await self._drain()
                await _end(background)
                self._threads.close()
                self._leases.close()
                if self._tasks:
                    await self._presence.leave()

    def _parts(self) -> list[Any]:
        """What runs beside the claims. A worker that only handles events is in no registry: that
        tells which lanes are served."""
        leases = self._leases
        parts = [
            self._declaring,
            self._reporter,
            leases,
            leases.scribe,
            self._watchdog,
            self._listening,
        ]
        if not self._tasks:
            return parts
        return [self._presence, *([self._stops] if self._engine.is_remote else []), *parts]

    # --- claiming ------------------------------------------------------------------------------

    async def _claim_until_stopped(self) -> None:
        """Claim as many as fit; when fewer came, no more are ready: wait for a hint."""
        if not self._tasks:
            await self._stopping.wait()
            return
        if self._engine.is_remote:
            await self._wait_for_claims()
            return
        topics = [lane_topic(lane) for lane in self._settings.lanes]
        with self._engine.listen(topics) as self._hinted:
            while not self._stopping.is_set():
                free = self._free_slots()
                if free <= 0:
                    self._room.clear()
                    await self._room.wait()
                    continue
                self._hinted.clear()  # before the claim: work that comes after it needs another one
                claims = await self._claim(free)
                if claims is not None and len(claims) < free and not self._stopping.is_set():
                    await wait_event(self._hinted, self._settings.poll_interval_ms / 1000)

    async def _wait_for_claims(self) -> None:
        """The same where the engine is elsewhere: each claim waits there until there is work."""
        while not self._stopping.is_set():
            free = self._free_slots()
            if free <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            claim = asyncio.ensure_future(self._claim(free, wait_ms=_CLAIM_WAIT_MS))
            try:
                await _first(asyncio.shield(claim), self._stopping.wait())
            finally:
                if not claim.done():
                    claim.cancel()  # it gives back what it would have got
            with suppress(asyncio.CancelledError):
                await claim

    async def _claim(self, limit: int, wait_ms: int = 0) -> list[Claimed] | None:
        """Claim up to so many and start them; None when the store could not be reached."""
        settings, asked_at = self._settings, monotonic()
        try:
            # One that does not wait is never cancelled: it would leave leases without a worker.
            claims = await self._engine.claim(
                namespaces=settings.namespaces,
                lanes=settings.lanes,
                worker_id=settings.worker_id,
                worker_instance_id=settings.instance_id,
                capabilities=settings.capabilities,
                kinds=settings.kinds,
                limit=limit,
                lease_ttl_ms=settings.lease_ttl_ms,
                wait_ms=wait_ms,
            )
        except Exception as error:
            if not may_pass(error):
                raise
            await self._patience.pause(error, unless=self._stopping)
            return None
        self._patience.reset()
        still_capture()
        for claimed in claims:
            self._begin(claimed, asked_at)
        return claims

    def _free_slots(self) -> int:
        """Slots without a handler, but no more than reports can follow."""
        most = self._settings.concurrency
        free = min(most - len(self._running), 2 * most - len(self._leases))
        return min(free, limits.CLAIM_MAX)

    # --- running -------------------------------------------------------------------------------

    def _begin(self, claimed: Any, asked_at: float) -> None:
        if (waiting := self._warm.take(claimed)) is not None:
            self._leases.take_again(waiting, claimed, asked_at)
            self._running.add(waiting)
            self._idle.clear()
            self._warm.revive(waiting)
            return
        task = self._tasks[claimed.execution_kind]
        held = self._leases.take(claimed, task, asked_at)
        self._running.add(held)
        self._idle.clear()
        if task.is_async:
            held.handler = self._loop.create_task(self._run_async(held))
        else:
            self._threads.run(partial(self._run_sync, held))

    async def _run_async(self, held: Held) -> None:
        try:
            found = spans()
            report = await (
                run_async(held) if found is None else run_in_span(found, held, run_async)
            )
            held.ended_at = monotonic()
        except Exception as error:  # noqa: BLE001 - our own code failed: the slot must not be lost
            _log_unjudged(held, error)
            report = None
        self._end(held, report)

    def _run_sync(self, held: Held) -> None:
        """In a thread of its own: the end is passed to the loop."""
        try:
            found = spans()
            report = run_sync(held) if found is None else run_sync_in_span(found, held, run_sync)
            held.ended_at = monotonic()
        except Exception as error:  # noqa: BLE001 - our own code failed: the slot must not be lost
            _log_unjudged(held, error)
            report = None
        with suppress(RuntimeError):  # the loop is closed: this handler outlived its worker
            self._loop.call_soon_threadsafe(self._end, held, report)

    def _end(self, held: Held, report: Report | None) -> None:
        """A handler ended: its slot is free, its lease stays until the report has its reply."""
        if held not in self._running:  # it waited and was dropped, or the drain gave it back
            held.close_journal(None)
            return
        held.is_finished = True
        # its context refers to this record: the cycle would wait for the collector
        held.handler = held.home = None
        self._running.discard(held)
        error = report.error if isinstance(report, Failed) else None
        held.close_journal(error, has_succeeded=isinstance(report, Succeeded))
        if report is None:
            self._leases.drop(held)
        else:
            self._reporter.put(report)
        self._made_room()

    def _parked(self, held: Held) -> None:
        """A handler waits, and keeps its place in memory: its slot is free."""
        self._running.discard(held)
        self._made_room()

    def _answered(self, held: Held) -> None:
        self._leases.drop(held)
        self._made_room()

    def _made_room(self) -> None:
        self._room.set()
        if not self._running:
            self._idle.set()

    # --- draining ------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Let handlers finish, interrupt the rest, give back unfinished work, report everything."""
        if self._running:
            telling.draining(self._settings, len(self._running))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout_s):
                await _first(self._finished(), self._hurry.wait())
        for held in list(self._running):
            held.is_drained = True
            held.stop()
        self._warm.drop_all()
        await asyncio.sleep(0)
        await self._give_back()
        await self._flush()

    async def _finished(self) -> None:
        """Every handler has ended, of work and of events."""
        await self._idle.wait()
        await self._listening.finished()

    async def _give_back(self) -> None:
        """Give back executions of handlers that did not end when interrupted: the fence is closed,
        so they cannot report."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_INTERRUPTED_S):
                await self._idle.wait()
        for held in list(self._running):
            self._end(held, None if held.is_suspended else Postponed(held, None))

    async def _flush(self) -> None:
        """Reports are worth a wait, but not for a store that does not come back."""
        try:
            async with asyncio.timeout(max(self._settings.drain_timeout_s, _INTERRUPTED_S)):
                await self._reporter.flushed()
        except TimeoutError:
            _LOGGER.error("stopped with unreported work; it is run again when its leases lapse")


def _log_unjudged(held: Held, error: Exception) -> None:
    """The worker's own code failed on a handler's end: the lease expires, the work is run again."""
    name = telling.name_of(held)
    _LOGGER.error("cannot judge how %s ended; its lease will lapse", name, exc_info=error)


async def _start(fabric: Fabric, patience: Patience) -> EngineBackend:
    while True:
        try:
            engine = await fabric.start()
        except (FlowFabricError, OSError) as error:
            if not is_passing(error):
                raise
            await patience.pause(error)
        else:
            patience.reset()  # otherwise the next outage counts as this one and is not logged
            return engine


async def _first(*waits: Any) -> None:
    """Return when the first of them does."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(tasks)


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _stopping_on_signals(worker: Worker) -> Iterator[None]:
    """The first signal drains, the second hurries, a third has its usual effect."""
    loop = asyncio.get_running_loop()
    installed: list[signal.Signals] = []
    count = 0

    def on_signal() -> None:
        nonlocal count
        count += 1
        worker.stop(immediately=count > 1)
        if count > 1:
            restore()

    def restore() -> None:
        while installed:
            loop.remove_signal_handler(installed.pop())

    for number in _SIGNALS:
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            loop.add_signal_handler(number, on_signal)
            installed.append(number)
    try:
        yield
    finally:
        restore()
