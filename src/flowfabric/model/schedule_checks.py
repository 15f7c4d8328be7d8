"""The grammar of timings and policies of schedules, value by value. Expressions and time zones are
read by the calendar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowfabric import limits
from flowfabric.errors import InvalidInput, InvalidSchedule
from flowfabric.model.checks import check_integer, check_list, check_text
from flowfabric.model.record import convert, fields_of
from flowfabric.model.schedule import SchedulePolicy, Timing

_SECOND_MS = 1_000
_ONE_OF = "cron, every_ms, at: give exactly one of the three"


def check_timing(value: object, *, field: str = "timing") -> Timing:
    """A timing whose values are in their bounds."""
    given = _record(value, Timing, field)
    try:
        return _timing(given)
    except InvalidSchedule:
        raise
    except InvalidInput as error:
        raise InvalidSchedule(error.detail, **error.fields) from None


def _record(value: object, kind: type[Any], field: str) -> Any:
    if isinstance(value, kind):
        value = fields_of(value)  # a struct that was made by hand was never checked
    if not isinstance(value, Mapping):
        detail = f"{field}: expected a {kind.__name__}, got {type(value).__name__}"
        raise InvalidSchedule(detail, field=field)
    try:
        return convert(dict(value), kind, field=field)
    except InvalidInput as error:
        raise InvalidSchedule(error.detail, field=field) from None


def _timing(given: Timing) -> Timing:
    if [bool(given.cron), given.every_ms is not None, bool(given.at)].count(True) != 1:
        raise InvalidSchedule(_ONE_OF, field="cron")
    for at, text in enumerate(_listed(given.cron, "cron", limits.CRONS_MAX)):
        check_text(text, field=f"cron[{at}]", max_bytes=limits.CRON_BYTES)
    if given.every_ms is not None:
        least, most = limits.EVERY_MS_MIN, limits.DURATION_MS_MAX
        check_integer(given.every_ms, field="every_ms", least=least, most=most)
        _seconds(given.every_ms, "every_ms")
    elif given.anchor is not None:
        raise InvalidSchedule("anchor: needs every_ms", field="anchor")
    for at, instant in enumerate(_listed(given.at, "at", limits.AT_MAX)):
        _instant(instant, f"at[{at}]")
    check_text(given.tz, field="tz", max_bytes=limits.NAME_BYTES)
    for at, text in enumerate(_listed(given.except_on, "except_on", limits.EXCEPTIONS_MAX)):
        check_text(text, field=f"except_on[{at}]", max_bytes=limits.NAME_BYTES)
    _check_bounds(given)
    return given


def _check_bounds(given: Timing) -> None:
    for name in ("anchor", "starts", "ends"):
        if (instant := getattr(given, name)) is not None:
            _instant(instant, name)
    if given.starts is not None and given.ends is not None and given.ends < given.starts:
        raise InvalidSchedule("ends: is before starts", field="ends")
    most = limits.DURATION_MS_MAX
    check_integer(given.jitter_ms, field="jitter_ms", least=0, most=most)
    if given.every_ms is not None and given.jitter_ms > given.every_ms:
        detail = f"jitter_ms: {given.jitter_ms} is longer than {given.every_ms}, the interval"
        raise InvalidSchedule(detail, field="jitter_ms")


def _listed(values: object, field: str, most: int) -> tuple[Any, ...]:
    found = check_list(values, field=field)
    if len(found) > most:
        raise InvalidSchedule(f"{field}: {len(found)} are more than {most}", field=field)
    return found


def _instant(value: int, field: str) -> None:
    check_integer(value, field=field, least=0, most=limits.INSTANT_MS_MAX)
    _seconds(value, field)


def _seconds(value: int, field: str) -> None:
    if value % _SECOND_MS:
        raise InvalidSchedule(f"{field}: ticks are whole seconds", field=field)


def check_schedule_policy(value: object, *, field: str = "policy") -> SchedulePolicy:
    """A policy whose values are in their bounds."""
    given: SchedulePolicy = _record(value, SchedulePolicy, field)
    try:
        most = limits.DURATION_MS_MAX
        window = given.catch_up_window_ms
        check_integer(window, field="catch_up_window_ms", least=0, most=most)
        most = limits.CATCH_UP_MAX
        check_integer(given.catch_up_max, field="catch_up_max", least=1, most=most)
        for name in ("pause_on_failure", "max_runs"):
            if (number := getattr(given, name)) is not None:
                check_integer(number, field=name, least=1, most=1_000_000)
    except InvalidInput as error:
        raise InvalidSchedule(error.detail, **error.fields) from None
    return given
