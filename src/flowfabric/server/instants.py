"""Instants and durations as HTTP carries them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from flowfabric import limits
from flowfabric.errors import InvalidInput

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,15})(ms|s|m|h|d)")


def instant(text: str, *, field: str = "instant") -> int:
    """UTC milliseconds from RFC 3339 text with an offset.

    >>> instant("2026-03-29T02:30:00+02:00")
    1774744200000
    """
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        read = None
    if read is None or read.tzinfo is None:
        raise InvalidInput(
            f"{field}: expected UTC milliseconds, or text such as 2026-03-29T02:30:00+02:00",
            field=field,
        )
    return int(read.timestamp() * 1000)


def duration_ms(text: str, *, field: str, most_ms: int = limits.DURATION_MS_MAX) -> int:
    """Milliseconds from a number with a unit.

    >>> duration_ms("1500ms", field="wait")
    1500
    """
    found = _DURATION.fullmatch(text)
    value = -1 if found is None else int(found[1]) * _UNITS[found[2]]
    if not 0 <= value <= most_ms:
        raise InvalidInput(
            f"{field}: expected a duration with a unit such as 20s or 1500ms, at most {most_ms}ms",
            field=field,
        )
    return value
