"""An event loop for tests: its time stands still until a test moves it.

`asyncio.sleep`, `asyncio.timeout` and `call_later` count this time. Pauses of the store are real
ones. The loop knows when nothing can move any more without time: no callback is ready, no call of
the store and no thread of a worker is at work.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, Final, TypeVar, TypeVarTuple

from flowfabric.clock import stopwatch
from flowfabric.errors import InvalidInput
from flowfabric.testing.errors import Stuck
from flowfabric.testing.threads import is_at_work

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
GUARD_S: Final = 10.0
_START_S: Final = 1_000_000.0
_LOOK_S: Final = 0.002  # between two looks at threads, which do not tell when they begin to wait
_SILENCE_S: Final = 0.1  # of sockets that are not the store's, before nothing more is expected
_IS_REAL: Final[ContextVar[bool]] = ContextVar("flowfabric_real_time", default=False)
_IS_OF_WORKER: Final[ContextVar[bool]] = ContextVar("flowfabric_worker", default=False)
_HURRIES: Final[ContextVar[bool]] = ContextVar("flowfabric_hurries", default=False)


def as_worker(context: Context) -> None:
    """Timers that are set in this context do not let time pass because the test waits."""
    context.run(_IS_OF_WORKER.set, True)


def hurrying(context: Context) -> None:
    """Timers that are set in this context are fired by `next_hurried` alone, without time."""
    context.run(_HURRIES.set, True)


class _Selector(selectors.DefaultSelector):
    """Tells the loop when it has nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.rest: Callable[[], float | None] | None = None
        self.check: Callable[[], None] = lambda: None
        self.foreign: set[int] = set()  # sockets that are not the store's

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        if self.rest is not None and not _IS_REAL.get():
            self.foreign.add(key.fd)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self.foreign.discard(key.fd)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if self.rest is None:
            return found
        if found or timeout == 0:
            self.check()
            return found
        pause = self.rest()
        return super().select(pause) if pause else []

    def has_news(self) -> bool:
        """Whether a thread or a socket has come up since."""
        return bool(super().select(0))


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop of a test."""

    def __init__(self, guard_s: float = GUARD_S) -> None:
        self._now = _START_S
        self._numbers = count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._hurried: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._real: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._jobs = 0  # in executors
        self.guard_s = guard_s
        self._busy_since: float | None = None
        self._asked_at = 0.0
        self._is_silent = False
        self._calls = 0  # of the store, under way
        selector = _Selector()
        super().__init__(selector)
        self._sockets = selector
        selector.rest, selector.check = self._rest, self._check_guard

    # --- time ------------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds, as far as they were moved."""
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it when time has been moved there; the store's timers run by themselves."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if _IS_REAL.get():
            heapq.heappush(
                self._real, (stopwatch() + when - self._now, next(self._numbers), handle)
            )
        elif _HURRIES.get():
            heapq.heappush(self._hurried, (when, next(self._numbers), handle))
        else:
            heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it after so many seconds: see `call_at`."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    @property
    def timers(self) -> list[asyncio.TimerHandle]:
        """What is to be called when time has been moved."""
        return [handle for _, _, handle in self._timers]

    @property
    def next_timer(self) -> float | None:
        """When the next timer is due."""
        return _first(self._timers)

    def move_to(self, when: float) -> None:
        """Let time pass; timers fire in their order, each at its time."""
        while (due := _first(self._timers)) is not None and due <= when:
            self._now = max(self._now, due)
            _, _, handle = heapq.heappop(self._timers)
            self._fire(handle)
        self._now = max(self._now, when)

    def next_hurried(self) -> bool:
        """Fire the first timer of a context that hurries; False if there is none."""
        if _first(self._hurried) is None:
            return False
        _, _, handle = heapq.heappop(self._hurried)
        self._fire(handle)
        return True

    def forget_hurried(self) -> None:
        """Drop the timers of contexts that hurry."""
        self._hurried.clear()

    def _fire(self, handle: asyncio.TimerHandle) -> None:
        callback, args = handle._callback, handle._args  # type: ignore[attr-defined]
        self.call_soon(callback, *args, context=handle._context)  # type: ignore[attr-defined]

    # --- rest ------------------------------------------------------------------------------------

    @contextmanager
    def in_store(self, *, counts: bool = True) -> Iterator[None]:
        """The store is at work: it is waited for, if that `counts`, and its timers are real."""
        token = _IS_REAL.set(True)
        self._calls += counts
        try:
            yield
        finally:
            self._calls -= counts
            _IS_REAL.reset(token)

    async def idle(self) -> None:
        """Return when nothing moves any more without time. `Stuck` if that takes too long."""
        done = self.create_future()
        self._waiters.append(done)
        self._busy_since, self._asked_at = None, stopwatch()
        await done

    def _rest(self) -> float | None:
        """No callback is ready: how long to wait for sockets and threads, or None to go on."""
        if (due := _first(self._real)) is not None and due <= stopwatch():
            _, _, handle = heapq.heappop(self._real)
            self._fire(handle)
            return None
        is_waiting = bool(self._calls or self._jobs)
        if is_waiting or is_at_work():
            return self._busy(due, 0.05 if is_waiting else _LOOK_S)
        if self._sockets.has_news():  # a thread told something before it began to wait
            return None
        if self._sockets.foreign and not self._is_silent:
            self._is_silent = True  # one look that finds nothing is enough
            return _SILENCE_S
        self._is_silent = False
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for each in waiters:
                if not each.done():
                    each.set_result(None)
            return None
        when = self.next_timer
        if when is not None and any(not _is_of_worker(each) for _, _, each in self._timers):
            self.move_to(when)  # the test itself waits, and for time
            return None
        return self._busy(due, 0.05)

    def _check_guard(self) -> None:
        """Callbacks are ready, again and again."""
        if self._waiters and stopwatch() - self._asked_at > self.guard_s:
            self._give_up()

    def _busy(self, due: float | None, pause: float) -> float | None:
        now = stopwatch()
        if self._busy_since is None:
            self._busy_since = now
        if now - self._busy_since > self.guard_s:
            self._busy_since = None
            self._give_up()
            return None
        return pause if due is None else max(0.0001, min(pause, due - now))

    def _give_up(self) -> None:
        error = Stuck(f"nothing has come to rest within {self.guard_s:g} s of real time")
        waiters, self._waiters = [each for each in self._waiters if not each.done()], []
        if not waiters:
            raise error
        for each in waiters:
            each.set_exception(error)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """As every loop does; the job is waited for."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_ended)
        return future

    def _job_ended(self, _: object) -> None:
        self._jobs -= 1


def _is_of_worker(handle: asyncio.TimerHandle) -> bool:
    context: Context = handle._context  # type: ignore[attr-defined]
    return handle.cancelled() or context.get(_IS_OF_WORKER, False)


def _first(timers: list[tuple[float, int, asyncio.TimerHandle]]) -> float | None:
    while timers and timers[0][2].cancelled():
        heapq.heappop(timers)
    return timers[0][0] if timers else None


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on a loop whose time a test moves.

    ```
    def test_brief() -> None:
        run(scenario())
    ```
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def virtual_loop() -> VirtualLoop:
    """The loop that runs here."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        detail = "loop: use the fixture `fabric`, or flowfabric.testing.run(…) for asyncio.run(…)"
        raise InvalidInput(detail, field="loop")
    return loop
