"""A form for a payload, from the JSON schema that its waiter declared.

What a person can fill in has an input of its own: texts, numbers, choices, dates, switches, lists
of these, and groups one level deep. All else is asked for as JSON. A form only helps: the engine
compares the payload with the schema in any case.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote

from flowfabric.errors import InvalidInput
from flowfabric.model.record import Record, from_json, replace, to_json

Plain = Mapping[str, Any]

ROOT: Final = "f"  # the first part of the name of every input
_DEFS: Final = "#/$defs/"
_REFERENCES_MAX: Final = 50
_MEMBERS_MAX: Final = 200
_CHOICES_MAX: Final = 500
_SHORT: Final = 200  # a text that may be longer has more than a line
_DEEPEST: Final = 1  # groups in the form; a group or a list in one of them is asked for as JSON
_LONG_FORMATS: Final = ("textarea", "multiline")
_HINTS: Final = {
    "duration": "a duration, as PT15M or P2D",
    "time": "a time, as 14:30:00",
    "uuid": "a UUID",
    "email": "an e-mail address",
    "uri": "an address, as https://example.org",
    "decimal": "a decimal number",
    "base64": "bytes, in Base64",
}


class FieldKind(StrEnum):
    """How a part of a payload is asked for."""

    TEXT = "text"
    LONG_TEXT = "long_text"
    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "choice"
    CHOICES = "choices"  # any of some
    SWITCH = "switch"
    DATE = "date"
    DATE_TIME = "date_time"
    LIST = "list"
    GROUP = "group"
    FIXED = "fixed"  # only one value is possible: it is not asked for
    JSON = "json"


class Choice(Record, frozen=True):
    """One of some values. `token`: the value as JSON, as the form posts it."""

    token: str
    label: str


class Field(Record, frozen=True, kw_only=True):
    """One part of a payload. `key`: its name in the object around it."""

    key: str
    kind: FieldKind
    label: str
    help: str = ""
    is_required: bool = True
    is_nullable: bool = False
    default: bytes | None = None  # JSON
    choices: tuple[Choice, ...] = ()
    least: float | int | None = None
    most: float | int | None = None
    is_above: bool = False  # `least` itself is too little
    is_below: bool = False
    step: float | int | None = None
    shortest: int | None = None
    longest: int | None = None
    pattern: str | None = None  # of the whole text; only browsers look at it
    format: str = ""
    members: tuple[Field, ...] = ()  # of a group; of a list the one that each row is

    @property
    def hint(self) -> str:
        """What the text must look like, in words."""
        return _HINTS.get(self.format, "")


def field_of(schema_text: str | None) -> Field | None:
    """The form of a schema; None where none was declared. What cannot be read becomes JSON."""
    if schema_text is None:
        return None
    try:
        root = from_json(schema_text, dict[str, Any], field="payload_type")
        return _Reader(root).field("", root, depth=0, is_required=True)
    except (InvalidInput, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Field(key="", kind=FieldKind.JSON, label="Answer, as JSON")


def input_name(above: str, key: str | int) -> str:
    """The name of an input inside another; a point in a key is no border."""
    return f"{above}.{quote(str(key), safe='').replace('.', '%2E')}"


class _Reader:
    """Reads one schema."""

    def __init__(self, root: Plain) -> None:
        self._root = root

    def field(self, key: str, node: Plain, *, depth: int, is_required: bool) -> Field:
        """One part of the schema as a field."""
        plain, said, is_nullable = self._resolved(node)
        shared: dict[str, Any] = {
            "key": key,
            "label": _label(said, key),
            "help": _text(said.get("description") or plain.get("description")),
            "is_required": is_required,
            "is_nullable": is_nullable,
            "default": to_json(said["default"]) if "default" in said else None,
        }
        return self._typed(plain, shared, depth)

    def _typed(self, plain: Plain, shared: dict[str, Any], depth: int) -> Field:
        values = _values(plain)
        if values is not None:
            return _choice(values, shared)
        kind = plain.get("type")
        if _is_decimal(plain):
            return Field(kind=FieldKind.TEXT, format="decimal", **shared)
        if any(word in plain for word in ("anyOf", "oneOf", "allOf")) or not isinstance(kind, str):
            return Field(kind=FieldKind.JSON, **shared)
        match kind:
            case "string":
                return _string(plain, shared)
            case "integer" | "number":
                return _number(plain, shared, is_whole=kind == "integer")
            case "boolean" if shared["is_nullable"]:
                return _choice([True, False], shared)
            case "boolean":
                return Field(kind=FieldKind.SWITCH, **shared)
            case "array":
                return self._array(plain, shared, depth)
            case "object" if plain.get("properties") and depth <= _DEEPEST:
                return self._group(plain, shared, depth)
            case _:
                return Field(kind=FieldKind.JSON, **shared)

    def _group(self, plain: Plain, shared: dict[str, Any], depth: int) -> Field:
        properties, required = plain["properties"], plain.get("required", ())
        if len(properties) > _MEMBERS_MAX:
            return Field(kind=FieldKind.JSON, **shared)
        members = tuple(
            self.field(name, part, depth=depth + 1, is_required=name in required)
            for name, part in properties.items()
            if isinstance(part, Mapping)
        )
        return Field(kind=FieldKind.GROUP, members=members, **shared)

    def _array(self, plain: Plain, shared: dict[str, Any], depth: int) -> Field:
        items = plain.get("items")
        if "prefixItems" in plain or not isinstance(items, Mapping) or depth > _DEEPEST:
            return Field(kind=FieldKind.JSON, **shared)
        sizes: dict[str, Any] = {
            "shortest": _count(plain.get("minItems")),
            "longest": _count(plain.get("maxItems")),
        }
        item = self.field("", items, depth=depth, is_required=True)
        if item.kind is FieldKind.LONG_TEXT and not item.format:
            item = replace(item, kind=FieldKind.TEXT)
        if item.kind is FieldKind.CHOICE and plain.get("uniqueItems") and not item.is_nullable:
            return Field(kind=FieldKind.CHOICES, choices=item.choices, **sizes, **shared)
        # A row that is left blank is none, so a blank must not be a value of its own.
        blanks = (FieldKind.SWITCH, FieldKind.FIXED, FieldKind.LIST, FieldKind.CHOICES)
        if item.kind in blanks or item.is_nullable:
            return Field(kind=FieldKind.JSON, **shared)
        return Field(kind=FieldKind.LIST, members=(item,), **sizes, **shared)

    def _resolved(self, node: Plain) -> tuple[Plain, Plain, bool]:
        """The schema behind references and behind "or nothing"; what is said where it stands, since
        the title of what is referred to is the name of a class; and whether null is a value."""
        said, is_nullable = dict(node), False
        for _ in range(_REFERENCES_MAX):
            options = node.get("anyOf") or node.get("oneOf")
            if "$ref" in node:
                node = self._target(str(node["$ref"]))
            elif options and len(node.get("allOf", ())) == 0:
                rest = [each for each in options if each.get("type") != "null"]
                if len(rest) != 1:
                    return {**node, "anyOf": rest}, said, is_nullable or len(rest) < len(options)
                is_nullable = is_nullable or len(rest) < len(options)
                node = rest[0]
                said = {**node, **said} if "$ref" not in node else said
            elif len(node.get("allOf", ())) == 1 and "type" not in node:
                node = node["allOf"][0]
            else:
                return self._without_null(node, said, is_nullable)
        raise ValueError("references without an end")

    def _without_null(
        self, node: Plain, said: Plain, is_nullable: bool
    ) -> tuple[Plain, Plain, bool]:
        """Null may also be one of the types, or one of the values."""
        kinds = node.get("type")
        if isinstance(kinds, list) and "null" in kinds:
            rest = [each for each in kinds if each != "null"]
            return {**node, "type": rest[0] if len(rest) == 1 else rest}, said, True
        values = node.get("enum")
        if values and None in values and len(values) > 1:
            return {**node, "enum": [each for each in values if each is not None]}, said, True
        return node, said, is_nullable

    def _target(self, reference: str) -> Plain:
        if reference == "#":
            return self._root
        target: Plain = self._root["$defs"][reference.removeprefix(_DEFS)]
        return target


# --- fields without parts -----------------------------------------------------------------------


def _values(plain: Plain) -> list[Any] | None:
    if "const" in plain:
        return [plain["const"]]
    values = plain.get("enum")
    if not isinstance(values, list) or not 0 < len(values) <= _CHOICES_MAX:
        return None
    return values


def _choice(values: list[Any], shared: dict[str, Any]) -> Field:
    choices = tuple(Choice(to_json(each).decode(), _value_label(each)) for each in values)
    is_fixed = len(choices) == 1 and not shared["is_nullable"]
    kind = FieldKind.FIXED if is_fixed else FieldKind.CHOICE
    return Field(kind=kind, choices=choices, **shared)


def _value_label(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) and value.strip() else to_json(value).decode()


def _string(plain: Plain, shared: dict[str, Any]) -> Field:
    form = _text(plain.get("format"))
    longest = _count(plain.get("maxLength"))
    sizes: dict[str, Any] = {"shortest": _count(plain.get("minLength")), "longest": longest}
    if form in ("date", "date-time"):
        kind = FieldKind.DATE if form == "date" else FieldKind.DATE_TIME
        return Field(kind=kind, format=form, **shared)
    if "contentEncoding" in plain:
        return Field(kind=FieldKind.LONG_TEXT, format="base64", **shared)
    is_long = form in _LONG_FORMATS or (not form and (longest is None or longest > _SHORT))
    kind = FieldKind.LONG_TEXT if is_long else FieldKind.TEXT
    pattern = _whole(plain.get("pattern"))
    return Field(kind=kind, format=form, pattern=pattern, **sizes, **shared)


def _number(plain: Plain, shared: dict[str, Any], *, is_whole: bool) -> Field:
    least, is_above = _bound(plain, "minimum", "exclusiveMinimum", higher=True)
    most, is_below = _bound(plain, "maximum", "exclusiveMaximum", higher=False)
    if is_whole:
        least = None if least is None else math.floor(least) + 1 if is_above else math.ceil(least)
        most = None if most is None else math.ceil(most) - 1 if is_below else math.floor(most)
        is_above = is_below = False
    return Field(
        kind=FieldKind.INTEGER if is_whole else FieldKind.NUMBER,
        least=least,
        most=most,
        is_above=is_above,
        is_below=is_below,
        step=_finite(plain.get("multipleOf")),
        **shared,
    )


def _bound(
    plain: Plain, inclusive: str, exclusive: str, *, higher: bool
) -> tuple[float | int | None, bool]:
    """The stricter of two bounds, and whether it is itself no longer good."""
    own, beyond = _finite(plain.get(inclusive)), _finite(plain.get(exclusive))
    if beyond is None:
        return own, False
    if own is None or (beyond >= own if higher else beyond <= own):
        return beyond, True
    return own, False


def _is_decimal(plain: Plain) -> bool:
    """A number that is also taken as text, so that it stays exact."""
    options = plain.get("anyOf")
    if not isinstance(options, list):
        return False
    return sorted(str(each.get("type")) for each in options) == ["number", "string"]


# --- words --------------------------------------------------------------------------------------


def _label(said: Plain, key: str) -> str:
    title = "" if "$ref" in said and not key else _text(said.get("title"))
    if title and not (not key and said.get("type") == "object"):
        return title
    words = key.replace("_", " ").strip()
    return words[:1].upper() + words[1:] if words else "Answer"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _finite(value: object) -> float | int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None  # type: ignore[arg-type,return-value] # it is a number


def _whole(pattern: object) -> str | None:
    """A pattern that speaks of the whole text, as browsers understand it."""
    text = _text(pattern)
    if len(text) > 2 and text.startswith("^") and text.endswith("$"):
        return text[1:-1]
    return None


def every_field(field: Field) -> Iterator[Field]:
    """A field and all inside it."""
    yield field
    for each in field.members:
        yield from every_field(each)
