"""The only module that reads time.

The store's clock decides everything that is recorded. A `ManualClock` replaces it in tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, Protocol

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE: Final = Path("/proc/self/ns/time")
_BOOT_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """A source of the current time, in UTC milliseconds."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00Z."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00Z."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that changes only when a test moves it.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500)
    >>> clock.now_ms()
    1500
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The instant last set."""
        return self._now_ms

    def advance(self, by_ms: int) -> None:
        """Move forward by so many milliseconds."""
        self._now_ms += by_ms

    def set(self, now_ms: int) -> None:
        """Jump to an instant."""
        self._now_ms = now_ms


@cache
def boot_id() -> str | None:
    """Which start of this machine `boot_ms` counts from; None where it is unknown.

    Two processes with the same id read the same clock.
    """
    if _BOOT_CLOCK is None:
        return None
    try:
        namespace = _TIME_NAMESPACE.readlink() if _TIME_NAMESPACE.exists() else ""
        return f"{_BOOT_ID.read_text(encoding='ascii').strip()} {namespace}".strip()
    except (OSError, ValueError):
        return None


def boot_ms() -> int:
    """Milliseconds since the machine started, sleep included, whatever its clock is set to."""
    clock = time.CLOCK_MONOTONIC if _BOOT_CLOCK is None else _BOOT_CLOCK
    return time.clock_gettime_ns(clock) // 1_000_000


# Seconds on a clock of this machine that never goes back: for waiting and measuring what really
# takes time, never recorded.
stopwatch: Final = time.monotonic


class _Pace:
    """Where `monotonic` reads."""

    read: Callable[[], float] = staticmethod(time.monotonic)


def monotonic() -> float:
    """Seconds on a clock that never goes back, by which a worker measures leases and handlers."""
    return _Pace.read()


@contextmanager
def paced_by(read: Callable[[], float]) -> Iterator[None]:
    """Let `monotonic` follow another clock, in the whole process: for tests that move time."""
    before = _Pace.read
    _Pace.read = staticmethod(read)
    try:
        yield
    finally:
        _Pace.read = staticmethod(before)
