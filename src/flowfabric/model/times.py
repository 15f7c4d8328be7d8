"""Instants and durations as people read them: on a terminal and on a page the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_STEPS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def span(duration_ms: int) -> str:
    """A duration in at most two units.

    >>> span(5_400_000), span(2_300), span(40)
    ('1h 30m', '2.3s', '40ms')
    """
    if duration_ms < 1000:
        return f"{duration_ms}ms"
    if duration_ms < 10_000:
        return f"{duration_ms / 1000:.1f}s"
    parts = []
    left = duration_ms
    for unit, size in _STEPS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def relative(instant: int | None, now: int) -> str:
    """`3m ago` or `in 20s`."""
    if instant is None:
        return ""
    distance = instant - now
    return f"in {span(distance)}" if distance > 0 else f"{span(-distance)} ago"


def absolute(instant: int) -> str:
    """RFC 3339 in UTC, to the second."""
    moment = datetime.fromtimestamp(instant / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def both(instant: int | None, now: int) -> str:
    """`3m ago (2026-11-16T08:00:00Z)`."""
    return "" if instant is None else f"{relative(instant, now)} ({absolute(instant)})"


def count(number: int, one: str) -> str:
    """A number with its noun: `1 problem`, `2 problems`."""
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
