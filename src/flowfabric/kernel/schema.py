"""Does a payload fit the type its waiter declared? The part of JSON Schema that types produce.

Written here because the check must give one answer in every process that delivers a signal, with
no library a sender would have to share with the waiter. What is let through can be decoded, but
for what a schema does not say (keys that are numbers, lengths of bytes) and for `pattern`: a
stranger's text is never matched against a regular expression while an execution is held.
"""

from __future__ import annotations

import datetime
import decimal
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from flowfabric.errors import InvalidInput, InvalidPayload
from flowfabric.kernel.decision import Refused
from flowfabric.model.checks import check_text
from flowfabric.model.record import Record, convert, from_json

DEPTH_MAX = 128
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
SCHEMA_BYTES = 65_536  # a form, not a library of them


class _Shape(
    Record,
    frozen=True,
    forbid_unknown_fields=False,
    rename={
        "ref": "$ref",
        "defs": "$defs",
        "any_of": "anyOf",
        "one_of": "oneOf",
        "all_of": "allOf",
        "additional_properties": "additionalProperties",
        "prefix_items": "prefixItems",
        "min_length": "minLength",
        "max_length": "maxLength",
        "min_items": "minItems",
        "max_items": "maxItems",
        "min_properties": "minProperties",
        "max_properties": "maxProperties",
        "content_encoding": "contentEncoding",
    },
):
    """The words that are looked at, and what each must be; other words are let be."""

    type: str | tuple[str, ...] = ()
    ref: str = ""
    defs: dict[str, _Shape] = {}
    any_of: tuple[_Shape, ...] = ()
    one_of: tuple[_Shape, ...] = ()
    all_of: tuple[_Shape, ...] = ()
    enum: tuple[Any, ...] = ()
    properties: dict[str, _Shape | bool] = {}
    required: tuple[str, ...] = ()
    additional_properties: _Shape | bool = True
    prefix_items: tuple[_Shape | bool, ...] = ()
    items: _Shape | bool = True
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    format: str = ""
    content_encoding: str = ""


def check_schema(text: object, *, field: str = "payload_type") -> str | None:
    """A JSON schema that can be asked about any payload; none: anything is let through."""
    if text is None:
        return None
    checked = check_text(text, field=field, max_bytes=SCHEMA_BYTES, control=True)
    try:
        from_json(checked, _Shape, field=field)
    except RecursionError:
        raise InvalidInput(f"{field}: nested too deeply", field=field) from None
    return checked


def payload_problem(payload: bytes | None, schema_text: str) -> Refused | None:
    """The refusal, naming the place, of a payload that is not what its waiter declared."""
    schema = from_json(schema_text, dict[str, Any], field="payload_type")
    try:
        value = from_json(payload or b"null", object, field="payload")
    except InvalidInput as error:
        return Refused(InvalidPayload, error.detail, {"field": "payload"})
    problem = _problem(value, schema, schema.get("$defs", {}), "payload", 0)
    return Refused(InvalidPayload, problem, {"field": "payload"}) if problem else None


def _problem(
    value: Any, schema: Mapping[str, Any], defs: Mapping[str, Any], path: str, depth: int
) -> str | None:
    """The first thing that is wrong, or nothing."""
    if depth > DEPTH_MAX:
        return f"{path}: nested too deeply"
    if "$ref" in schema:
        target = defs.get(str(schema["$ref"]).rpartition("/")[2], {})
        return _problem(value, target, defs, path, depth + 1)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            options = schema[word]
            if not any(_problem(value, each, defs, path, depth + 1) is None for each in options):
                return f"{path}: fits none of {len(options)} alternatives"
    for each in schema.get("allOf", ()):
        if problem := _problem(value, each, defs, path, depth + 1):
            return problem
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        return f"{path}: not one of {schema['enum']!r:.120}"
    if "const" in schema and not _same(value, schema["const"]):
        return f"{path}: must be {schema['const']!r:.80}"
    return _wrong_type(value, schema, path) or _wrong_parts(value, schema, defs, path, depth)


def _same(value: Any, expected: Any) -> bool:
    """Equal and of one kind: to Python, true is 1 and so is 1.0."""
    return type(value) is type(expected) and bool(value == expected)


def _wrong_type(value: Any, schema: Mapping[str, Any], path: str) -> str | None:
    wanted = schema.get("type")
    if wanted is None:
        return None
    words = [wanted] if isinstance(wanted, str) else list(wanted)
    for word in words:
        is_flag = isinstance(value, bool)
        if isinstance(value, _TYPES.get(word, ())) and (not is_flag or word == "boolean"):
            return None
    return f"{path}: expected {' or '.join(words)}, got {type(value).__name__}"


def _wrong_parts(
    value: Any, schema: Mapping[str, Any], defs: Mapping[str, Any], path: str, depth: int
) -> str | None:
    if isinstance(value, dict):
        return _wrong_object(value, schema, defs, path, depth)
    if isinstance(value, list):
        return _wrong_array(value, schema, defs, path, depth)
    if isinstance(value, str):
        return _wrong_size(len(value), schema, "Length", path) or _wrong_text(value, schema, path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _wrong_number(value, schema, path)
    return None


def _wrong_object(
    value: dict[str, Any],
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    path: str,
    depth: int,
) -> str | None:
    if problem := _wrong_size(len(value), schema, "Properties", path):
        return problem
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{path}.{name}: is required"
    others = schema.get("additionalProperties", True)
    for name, part in value.items():
        rule = properties.get(name, others)
        if rule is False:
            return f"{path}.{name}: unknown field"
        if isinstance(rule, Mapping):
            problem = _problem(part, rule, defs, f"{path}.{name}", depth + 1)
            if problem:
                return problem
    return None


def _wrong_array(
    value: list[Any], schema: Mapping[str, Any], defs: Mapping[str, Any], path: str, depth: int
) -> str | None:
    if problem := _wrong_size(len(value), schema, "Items", path):
        return problem
    heads = schema.get("prefixItems", [])
    rest = schema.get("items", True)
    for index, part in enumerate(value):
        rule = heads[index] if index < len(heads) else rest
        if rule is False:
            return f"{path}[{index}]: one too many"
        if isinstance(rule, Mapping):
            problem = _problem(part, rule, defs, f"{path}[{index}]", depth + 1)
            if problem:
                return problem
    return None


def _wrong_size(size: int, schema: Mapping[str, Any], word: str, path: str) -> str | None:
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


def _wrong_text(value: str, schema: Mapping[str, Any], path: str) -> str | None:
    """Text that stands for something else; formats nobody here knows are let pass."""
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


def _wrong_number(value: float, schema: Mapping[str, Any], path: str) -> str | None:
    for word, fits in _BOUNDS.items():
        bound = schema.get(word)
        if isinstance(bound, int | float) and not fits(value, bound):
            return f"{path}: {value} breaks {word} {bound}"
    return None


_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
    "multipleOf": lambda value, step: step == 0 or math.fmod(value, step) == 0,
}
