"""How long an operation waits: `wait_ms` has one meaning, see `flowfabric.api.operation`."""

from __future__ import annotations

import math

from flowfabric import limits
from flowfabric.clock import stopwatch
from flowfabric.model.checks import check_integer


def wait_until(wait_ms: int | None, *, is_bounded: bool = False) -> float:
    """When the wait is over; None waits for ever. `is_bounded`: the operation refuses None."""
    if wait_ms is None and not is_bounded:
        return math.inf
    most = limits.DURATION_MS_MAX
    return stopwatch() + check_integer(wait_ms, field="wait_ms", least=0, most=most) / 1000


def left_s(until: float) -> float:
    """The rest of a wait."""
    return until - stopwatch()
