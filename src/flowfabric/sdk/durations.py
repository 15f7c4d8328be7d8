"""Durations and instants, as people write them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.model.shown import shown
from flowfabric.model.times import span as span

Duration = str | int | float | timedelta
Moment = Duration | datetime

_UNIT_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_HOW: Final = 'write "500ms", "30s", "10m", "1h30m" or "2d", a number of seconds, or a timedelta'


def to_ms(value: Duration, *, field: str) -> int:
    """A duration in whole milliseconds.

    >>> to_ms("1h30m", field="timeout"), to_ms(2.5, field="timeout")
    (5400000, 2500)
    """
    milliseconds = _read(value, field)
    if not 0 <= milliseconds <= limits.DURATION_MS_MAX:
        raise InvalidInput(f"{field}: {shown(value)} is not between 0 and 100 years", field=field)
    return round(milliseconds)


def instant_ms(value: object, *, field: str) -> int:
    """An instant in UTC milliseconds; one without a time zone is refused as ambiguous."""
    if not isinstance(value, datetime):
        detail = f"{field}: expected a datetime with a time zone, got {shown(value)}"
        raise InvalidInput(detail, field=field)
    if value.utcoffset() is None:  # a tzinfo may not know it either
        raise InvalidInput(f"{field}: give the datetime a time zone, {value} has none", field=field)
    return (value - _EPOCH) // _MILLISECOND


def to_datetime(instant: int) -> datetime:
    """UTC milliseconds as an aware datetime."""
    return _EPOCH + timedelta(milliseconds=instant)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def _read(value: object, field: str) -> float:
    match value:
        case timedelta():
            return value / _MILLISECOND
        case bool():
            pass
        case int():
            return value * 1000
        case float() if math.isfinite(value):
            return value * 1000
        case str():
            if (found := _of_text(value)) is not None:
                return found
        case _:
            pass
    raise InvalidInput(f"{field}: {shown(value)} is not a duration; {_HOW}", field=field)


@lru_cache(maxsize=256)  # programs write the same few again and again
def _of_text(value: str) -> float | None:
    text = value.replace(" ", "")
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNIT_MS[unit] for number, unit in parts)
