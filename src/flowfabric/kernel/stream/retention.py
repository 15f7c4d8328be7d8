"""How many frames of each mode a stream keeps. No mode takes room from another."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from flowfabric import limits
from flowfabric.model.policy import StreamPolicy
from flowfabric.model.stream import BestEffort, FrameMark, StreamRow
from flowfabric.model.words import StreamMode

_MICRO = 1_000_000


def best_effort_rate(stream: StreamRow, settings: BestEffort, now: int) -> float:
    """The rate of best-effort frames after one more, in hertz: a moving average."""
    if stream.best_effort_at is None:
        return settings.maxlen_floor / (_ttl_s(settings) * 2)
    inst = 1000 / max(now - stream.best_effort_at, 1)
    alpha = settings.ema_alpha
    return alpha * inst + (1 - alpha) * stream.rate_uhz / _MICRO


def best_effort_length(rate: float, settings: BestEffort) -> int:
    """Twice as many frames as come during their life, within bounds."""
    wanted = math.ceil(round(rate * _ttl_s(settings) * 2, 6))
    ceiling = max(settings.maxlen_ceiling, settings.maxlen_floor)
    return max(settings.maxlen_floor, min(ceiling, wanted))


def rate_stored(rate: float) -> int:
    """The rate as kept with the stream."""
    return round(rate * _MICRO)


def _ttl_s(settings: BestEffort) -> float:
    return max(settings.ttl_ms, 1) / 1000


def kept_length(mode: StreamMode, policy: StreamPolicy) -> int:
    """How many durable or summary frames are kept."""
    return policy.retention_maxlen if mode is StreamMode.DURABLE else limits.SUMMARY_FRAMES


def trimmed_to(stream: StreamRow, mode: StreamMode, keep: int, added: int) -> int:
    """The number up to which frames of a mode go now: a bounded step at a time."""
    gone = stream.trimmed_of(mode)
    most = gone + added + limits.TRIM_MAX
    return max(gone, min(stream.count_of(mode) - keep, most))


def trimmed_away(stream: StreamRow, marks: Iterable[FrameMark]) -> list[FrameMark]:
    """Those of a stream's oldest frames that go."""
    return [mark for mark in marks if mark.number <= stream.trimmed_of(mark.mode)]


def counted(stream: StreamRow, mode: StreamMode, trimmed: int | None = None) -> dict[str, Any]:
    """The fields of a stream with one more frame of a mode, or trimmed up to a number."""
    if trimmed is not None:
        return {f"{mode.value}_trimmed": trimmed}
    return {f"{mode.value}_count": stream.count_of(mode) + 1}
