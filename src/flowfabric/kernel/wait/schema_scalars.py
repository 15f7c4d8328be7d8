"""The parts of a payload that have no parts: what a schema may ask of texts, numbers and sizes."""

from __future__ import annotations

import datetime
import decimal
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from flowfabric.errors import InvalidInput
from flowfabric.model.record import convert
from flowfabric.model.shown import shown

Plain = Mapping[str, Any]

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def same(value: Any, expected: Any) -> bool:
    """Equal and of one kind: to Python, true is 1 and so is 1.0."""
    return type(value) is type(expected) and bool(value == expected)


def wrong_type(value: Any, schema: Plain, path: str) -> str | None:
    """What is wrong with the kind of a value."""
    wanted = schema.get("type")
    if wanted is None:
        return None
    words = [wanted] if isinstance(wanted, str) else list(wanted)
    for word in words:
        is_flag = isinstance(value, bool)
        if isinstance(value, _TYPES.get(word, ())) and (not is_flag or word == "boolean"):
            return None
    return f"{path}: expected {' or '.join(words)}, got {type(value).__name__}"


def wrong_size(size: int, schema: Plain, word: str, path: str) -> str | None:
    """What is wrong with a length or a number of parts."""
    least, most = schema.get(f"min{word}"), schema.get(f"max{word}")
    if least is not None and size < least:
        return f"{path}: shorter than {least}"
    if most is not None and size > most:
        return f"{path}: longer than {most}"
    return None


_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(\1[0-9a-fA-F]{4}){2}\1[0-9a-fA-F]{12}")
_FORMATS: dict[str, type] = {
    "date-time": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "decimal": decimal.Decimal,
    "base64": bytes,
}


def wrong_text(value: str, schema: Plain, path: str) -> str | None:
    """Text that stands for something else; formats that are not known here are let pass."""
    if schema.get("format") == "uuid" and not _UUID.fullmatch(value):
        return f"{path}: no uuid"
    for word in ("format", "contentEncoding"):
        kind = _FORMATS.get(schema.get(word, ""))
        if kind is not None:
            try:
                convert(value, kind, field=path)
            except InvalidInput:
                return f"{path}: no {schema[word]}"
    return None


def wrong_number(value: float, schema: Plain, path: str) -> str | None:
    """What is wrong with the size of a number."""
    for word, fits in _BOUNDS.items():
        bound = schema.get(word)
        if isinstance(bound, int | float) and not fits(value, bound):
            return f"{path}: {shown(value)} breaks {word} {shown(bound)}"
    return None


def _is_multiple(value: float, step: float) -> bool:
    """Whole numbers of any size are divided exactly; what no float can hold is none of a float."""
    if isinstance(value, int) and isinstance(step, int):
        return step == 0 or value % step == 0
    try:
        return step == 0 or math.fmod(value, step) == 0
    except OverflowError:
        return False


_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
    "multipleOf": _is_multiple,
}
