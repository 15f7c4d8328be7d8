"""Texts as people type them, and the values of JSON that they stand for."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from typing import Any, Final

from flowfabric.errors import InvalidInput
from flowfabric.model.record import from_json
from flowfabric.server.ui.views.forms import Field, FieldKind

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER: Final = re.compile(
    r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?"
)
_INTEGER_MAX: Final = 2**63 - 1
_EXACT_MAX: Final = 2**53
_DATE_TIME_LEAST: Final = len("2030-01-31T12:00")


class Wrong(Exception):
    """A text that stands for no value of its field."""


def value_of(field: Field, text: str) -> Any:
    """What a text that is not blank stands for; raises Wrong with the reason if it is nothing."""
    match field.kind:
        case FieldKind.INTEGER:
            return _in_bounds(field, _integer(text.strip()))
        case FieldKind.NUMBER:
            return _in_bounds(field, _number(text.strip()))
        case FieldKind.CHOICE:
            return _chosen(field, text)
        case FieldKind.DATE:
            return _date(text.strip())
        case FieldKind.DATE_TIME:
            return _instant(text.strip())
        case FieldKind.JSON:
            return _json(text)
        case _:
            return _sized(field, text)


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text) or abs(int(text)) > _INTEGER_MAX:
        raise Wrong("is no whole number")
    return int(text)


def _number(text: str) -> float | int:
    if not _NUMBER.fullmatch(text):
        raise Wrong("is no number")
    if _INTEGER.fullmatch(text) and abs(int(text)) <= _EXACT_MAX:
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise Wrong("is too large a number")
    return value


def _in_bounds(field: Field, value: float | int) -> float | int:
    least, most = field.least, field.most
    if least is not None and (value < least or (field.is_above and value == least)):
        raise Wrong(f"must be {'more than' if field.is_above else 'at least'} {least}")
    if most is not None and (value > most or (field.is_below and value == most)):
        raise Wrong(f"must be {'less than' if field.is_below else 'at most'} {most}")
    return value


def _chosen(field: Field, token: str) -> Any:
    if all(each.token != token for each in field.choices):
        raise Wrong("is none of the choices")
    return from_json(token, object, field="choice")


def _date(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise Wrong("is no date, as 2030-01-31") from None


def instant_of(text: str) -> datetime | None:
    """An instant; without an offset it is UTC."""
    try:
        read = datetime.fromisoformat(text)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _instant(text: str) -> str:
    read = instant_of(text)
    if read is None or len(text) < _DATE_TIME_LEAST:
        raise Wrong("is no date with a time, as 2030-01-31T12:00")
    return read.isoformat().replace("+00:00", "Z")


def _json(text: str) -> Any:
    try:
        return from_json(text, object, field="it")
    except InvalidInput as error:
        raise Wrong(f"is no JSON ({error.detail.removeprefix('it: ')})") from None


def _sized(field: Field, text: str) -> str:
    if field.shortest is not None and len(text) < field.shortest:
        raise Wrong(f"must have at least {field.shortest} characters")
    if field.longest is not None and len(text) > field.longest:
        raise Wrong(f"must have at most {field.longest} characters")
    return text
