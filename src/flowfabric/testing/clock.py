"""The store's clock in a test: it goes with the time of the event loop."""

from __future__ import annotations

from typing import Final

from flowfabric.testing.loop import VirtualLoop

_MICROSECONDS: Final = 1_000_000


class LoopClock:
    """The time since a start, as far as the loop's was moved."""

    def __init__(self, loop: VirtualLoop, start_ms: int) -> None:
        self._loop = loop
        self._began = loop.time()
        self._start_ms = start_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00Z."""
        passed = round((self._loop.time() - self._began) * _MICROSECONDS) // 1000
        return self._start_ms + passed

    def when(self, instant_ms: int) -> float:
        """The time of the loop at an instant."""
        return self._began + (instant_ms - self._start_ms) / 1000

    def jump(self, by_ms: int) -> None:
        """The clock is set, forward or back; no time has passed."""
        self._start_ms += by_ms
