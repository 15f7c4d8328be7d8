"""Instants and durations as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

from flowfabric.sdk.durations import span as span


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
