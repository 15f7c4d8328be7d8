"""A thread that keeps the worker's leases alive while user code blocks its event loop.

The event loop renews leases itself, together with everything else it commits. Each of its ticks
leaves a mark. When the mark grows old this thread takes over, with an engine of its own over the
same store: opened the first time it is needed, kept until the worker ends.

A thread can do nothing about an extension that keeps the interpreter lock, nor about a process that
is stopped: then no code of the process runs at all.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.clock import monotonic
from flowfabric.errors import FlowFabricError
from flowfabric.model.results import LeaseRenewal
from flowfabric.model.shown import mask
from flowfabric.sdk.worker import telling
from flowfabric.sdk.worker.held import Held, is_lost
from flowfabric.sdk.worker.leases import Leases

_LOGGER = logging.getLogger("flowfabric.worker")
# for the thread to close its engine; it is a daemon and may end after the worker
_END_S: Final = 5.0


class Watchdog:
    """Checks that the event loop still ticks, and renews leases when it does not."""

    def __init__(self, engine: EngineBackend, leases: Leases) -> None:
        self._engine = engine  # of the event loop: here it is only asked for another one
        self._leases = leases
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._own: EngineBackend | None = None
        self._is_started = False
        self._stopping = threading.Event()
        self._ended = asyncio.Event()
        self._blocked_since: float | None = None
        self._blamed: Held | None = None
        self._quiet_until = 0.0

    async def run(self) -> None:
        """Watch until cancelled."""
        thread = threading.Thread(target=self._work, name="flowfabric-watchdog", daemon=True)
        thread.start()
        try:
            await self._ended.wait()
        finally:
            self._stopping.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._ended.wait()
                    thread.join()  # logging was its last step

    # --- in the thread -------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._watch(runner)
                if self._own is not None:
                    runner.run(self._own.close())
        except Exception as error:  # noqa: BLE001 - the worker ends, and nothing waits for this
            _LOGGER.info("the watchdog could not hang up: %s", mask(str(error)))
        finally:
            with suppress(RuntimeError):  # the worker's loop is closed
                self._loop.call_soon_threadsafe(self._ended.set)

    def _watch(self, runner: asyncio.Runner) -> None:
        while not self._is_stopped_within(self._leases.tick_s):
            try:
                self._look(runner)
            except Exception:  # whatever the error, leases are worth another try
                _LOGGER.exception("the watchdog of the event loop failed; it goes on")
        self._is_free()

    def _is_stopped_within(self, seconds: float) -> bool:
        """Sleep; a sleep far too long means that the whole process stood still."""
        asleep_at, late_s = monotonic(), self._leases.late_s
        is_stopped = self._stopping.wait(seconds)
        passed = monotonic() - asleep_at
        if passed <= seconds + late_s:
            return is_stopped
        if passed > seconds + 2 * late_s and self._leases:
            _LOGGER.warning(
                "the process stood still for %.1f s: it was stopped, starved, or an extension kept "
                "the interpreter lock; leases were not renewed meanwhile",
                passed,
            )
        # The event loop is no later than this thread: let it renew first.
        return self._stopping.wait(seconds)

    def _look(self, runner: asyncio.Runner) -> None:
        now = monotonic()
        blocked_s = now - self._leases.beat_at
        if blocked_s <= self._leases.tick_s + self._leases.late_s or not self._leases:
            self._is_free()
            return
        self._is_blocked(blocked_s)
        if due := self._leases.due(now):
            runner.run(self._renew(due))

    async def _renew(self, due: Sequence[Held]) -> None:
        """Leases that could not be renewed are due again at the next tick, which is soon."""
        asked_at = monotonic()
        try:
            engine = await self._opened()
            answers = await engine.renew_many([held.renewal() for held in due])
        except (FlowFabricError, OSError) as error:
            why = mask(str(error))
            _LOGGER.warning("cannot renew leases for the blocked event loop, trying on: %s", why)
            return
        for held, answer in zip(due, answers, strict=True):
            if isinstance(answer, LeaseRenewal):
                self._leases.extend(held, answer, asked_at)
            elif is_lost(answer):
                with suppress(RuntimeError):  # the worker's loop is closed
                    self._loop.call_soon_threadsafe(self._leases.give_up, held, answer)

    async def _opened(self) -> EngineBackend:
        if self._own is None:
            self._own = self._engine.again()
        if not self._is_started:
            await self._own.start(migrate=False)
            self._is_started = True
        return self._own

    # --- logging ----------------------------------------------------------------------------------

    def _is_blocked(self, blocked_s: float) -> None:
        """Log once what blocks the loop, and again when that changes; of several that alternate,
        now and then one."""
        culprit, now = self._culprit(), monotonic()
        if self._blocked_since is None:
            self._blocked_since = self._leases.beat_at
        elif culprit is self._blamed or now < self._quiet_until:
            return
        self._blamed, self._quiet_until = culprit, now + self._leases.late_s
        name = "code that belongs to no handler"
        if culprit is not None:
            name = telling.name_of(culprit)
        _LOGGER.warning(
            "the event loop has been blocked for %.1f s by %s at %s; leases are renewed all the "
            "same, but nothing else goes on: move blocking code into a sync task",
            blocked_s,
            name,
            _where(self._loop_thread, culprit),
        )

    def _is_free(self) -> None:
        if self._blocked_since is not None:
            passed = self._leases.beat_at - self._blocked_since
            _LOGGER.warning("the event loop goes on, it was blocked for %.1f s", passed)
            self._blocked_since = self._blamed = None

    def _culprit(self) -> Held | None:
        """The execution with a handler, or a task of it, that runs on the loop at this moment."""
        task = asyncio.current_task(self._loop)
        if task is None:
            return None
        for held in self._leases:
            if held.handler is task:
                return held
        context_of = getattr(task, "get_context", None)  # Python 3.12 and newer
        return None if context_of is None else context_of().get(Held.current)


def _where(thread: int, culprit: Held | None) -> str:
    """The innermost line of user code that a thread is at."""
    frame = innermost = sys._current_frames().get(thread)  # documented; it has no other name
    package = None if culprit is None else culprit.task.function.__module__.partition(".")[0]
    while frame is not None and not _is_users(frame, package):
        frame = frame.f_back
    found = frame or innermost
    if found is None:
        return "an unknown line"
    code = found.f_code
    return f"{code.co_filename}:{found.f_lineno} in {code.co_name}"


def _is_users(frame: FrameType, package: str | None) -> bool:
    name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if name == package:
        return True
    is_ours = name == "flowfabric" or name in sys.stdlib_module_names
    installed = ("site-packages", "dist-packages")
    return not is_ours and not any(each in frame.f_code.co_filename for each in installed)
