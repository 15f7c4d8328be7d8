"""Executions that were read to add to their journals, to be taken for granted the next time.

A handler that makes one step after the other adds to the journal of one execution, whose row stays
as it is. So the next entry need not read it again: the statement that adds it names the version
that was read (`xmin`), and what the server's clock says. If either is not so, nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flowfabric.clock import stopwatch
from flowfabric.model.execution import Execution

KEPT_MAX: Final = 1_000
CLOCK_S: Final = 5.0  # so long the server's clock is known by our own


class Images:
    """What one process has read so, and when the server said what time it is."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Execution, str]] = {}
        self._clock: tuple[int, float] | None = None
        self._last = 0

    def recall(self, execution_id: str) -> tuple[Execution, str] | None:
        """The execution and its version, as they were."""
        return self._kept.get(execution_id)

    def keep(self, execution: Execution, version: str) -> None:
        """An execution that a statement has just found as it was."""
        if len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[execution.execution_id] = (execution, version)

    def drop(self, execution_ids: Iterable[str]) -> None:
        """These are written, or were not found as they were."""
        for key in execution_ids:
            self._kept.pop(key, None)

    def see_clock(self, milliseconds: int) -> None:
        """The server has told its time."""
        self._clock = (milliseconds, stopwatch())

    def forget_clock(self) -> None:
        """It is not what we believed."""
        self._clock, self._last = None, 0

    def now(self) -> int | None:
        """The server's time, by our own clock since it told it; None: it was too long ago."""
        if self._clock is None:
            return None
        told, at = self._clock
        since = stopwatch() - at
        if since > CLOCK_S:
            return None
        # What was told last may have come later than what was told before.
        self._last = max(self._last, told + int(since * 1000))
        return self._last
