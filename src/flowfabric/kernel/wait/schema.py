"""Does a payload fit the type its waiter declared? The part of JSON Schema that types produce.

Written here because the check must give one answer in every process that delivers a signal, in a
bounded number of steps: see docs/design/017-untrusted-json.md. What is let through can be decoded,
but for what a schema does not say (keys that are numbers, lengths of bytes) and for `pattern`: a
stranger's text is never matched against a regular expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from flowfabric import limits
from flowfabric.errors import InvalidInput, InvalidPayload
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.wait.schema_scalars import (
    Plain,
    same,
    wrong_number,
    wrong_size,
    wrong_text,
    wrong_type,
)
from flowfabric.model.checks import check_text
from flowfabric.model.nesting import JSON, check_nesting, is_too_deep
from flowfabric.model.record import Record, from_json
from flowfabric.model.shown import shown

SCHEMA_BYTES: Final = 65_536  # a form, not a library of them
_DETAIL_LENGTH: Final = 500  # a path may lead through many long names
_KEPT: Final = 64  # schemas that are kept decoded
_ROOT: Final = "#"
_DEFS_PREFIX: Final = "#/$defs/"
_UNIONS: Final = ("anyOf", "oneOf")


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
        "multiple_of": "multipleOf",
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
    multiple_of: int | float | None = None
    discriminator: _Tags | None = None


class _Tags(
    Record, frozen=True, forbid_unknown_fields=False, rename={"property_name": "propertyName"}
):
    """By which property the alternatives of a union are told apart."""

    property_name: str
    mapping: dict[str, str] = {}


def check_schema(text: object, *, field: str = "payload_type") -> str | None:
    """A JSON schema that can be asked about any payload; none: anything is let through."""
    if text is None:
        return None
    checked = check_text(text, field=field, max_bytes=SCHEMA_BYTES, control=True)
    check_nesting(checked.encode(), JSON, field=field)
    from_json(checked, _Shape, field=field)
    if flaw := _flaw(checked):
        raise InvalidInput(f"{field}: {flaw}", field=field)
    return checked


def payload_problem(payload: bytes | None, schema_text: str) -> Refused | None:
    """The refusal, naming the place, of a payload that is not what its waiter declared."""
    data = payload or b"null"
    if is_too_deep(data):
        problem: str | None = f"payload: nests deeper than {limits.JSON_DEPTH_MAX} levels"
    else:
        try:
            value = from_json(data, object, field="payload")
            problem = _Comparison(_decoded(schema_text), len(data)).run(value)
        except InvalidInput as error:
            problem = error.detail
    if problem is None:
        return None
    return Refused(InvalidPayload, problem[:_DETAIL_LENGTH], {"field": "payload"})


@lru_cache(_KEPT)
def _decoded(schema_text: str) -> Plain:
    return from_json(schema_text, dict[str, Any], field="payload_type")


# --- what refers to what -----------------------------------------------------------------------


def _target(root: Plain, reference: object) -> Plain | None:
    """What a reference leads to; only the definitions of the schema itself, and its root."""
    if reference == _ROOT:
        return root
    name = str(reference)
    found = root.get("$defs", {}).get(name.removeprefix(_DEFS_PREFIX))
    return found if name.startswith(_DEFS_PREFIX) and isinstance(found, Mapping) else None


@lru_cache(_KEPT)
def _flaw(schema_text: str) -> str | None:
    """What makes a schema of known words impossible to compare with: a reference that leads
    nowhere, or back to where it stands with nothing read meanwhile."""
    root = _decoded(schema_text)
    nodes, done = list(_nodes(root)), set[int]()
    for node in nodes:
        for reference in _references(node):
            if _target(root, reference) is None:
                return f"{shown(reference)} leads nowhere; refer to #/$defs/… of the same schema"
        if node.get("multipleOf") is not None and not node["multipleOf"] > 0:
            return "multipleOf must be more than 0"
    try:
        endless = any(_comes_back(root, node, set(), done) for node in nodes)
    except RecursionError:
        endless = True
    return "it refers to itself, or on and on, without an end" if endless else None


def _references(node: Plain) -> Iterator[str]:
    if "$ref" in node:
        yield node["$ref"]
    yield from (node.get("discriminator") or {}).get("mapping", {}).values()


def _nodes(schema: Plain) -> Iterator[Plain]:
    """A schema and every schema inside it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    inner += [each for word in (*_UNIONS, "allOf", "prefixItems") for each in schema.get(word, ())]
    for each in (*inner, schema.get("items"), schema.get("additionalProperties")):
        if isinstance(each, Mapping):
            yield from _nodes(each)


def _comes_back(root: Plain, node: Plain, above: set[int], done: set[int]) -> bool:
    """Whether a schema applies itself to the very value it is applied to."""
    if id(node) in done:
        return False
    if id(node) in above:
        return True
    above.add(id(node))
    if any(_comes_back(root, each, above, done) for each in _same_value(root, node)):
        return True
    above.discard(id(node))
    done.add(id(node))
    return False


def _same_value(root: Plain, node: Plain) -> Iterator[Plain]:
    """The schemas a schema applies to the same value."""
    if "$ref" in node and (target := _target(root, node["$ref"])) is not None:
        yield target
    for word in (*_UNIONS, "allOf"):
        yield from node.get(word, ())


# --- the comparison ----------------------------------------------------------------------------


class _Exhausted(Exception):
    """No steps are left."""


class _Comparison:
    """One payload against one schema, in a number of steps that its length bounds."""

    def __init__(self, root: Plain, size: int) -> None:
        self._root = root
        allowed = limits.SCHEMA_STEPS_MIN + limits.SCHEMA_STEPS_PER_BYTE * size
        self._steps = min(allowed, limits.SCHEMA_STEPS_MAX)
        # What a definition says of a part of the payload does not depend on the way to it: without
        # this, unions inside unions would be tried in all combinations.
        self._known: dict[tuple[int, str], str | None] = {}

    def run(self, value: Any) -> str | None:
        """The first thing that is wrong, or nothing."""
        try:
            return self._problem(value, self._root, "payload")
        except _Exhausted:
            return "payload: comparing it with its type takes too long; send less of it"
        except RecursionError:  # a schema of an older version may refer to itself without an end
            return "payload: its type refers to itself, or on and on, without an end"

    def _spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise _Exhausted

    def _problem(self, value: Any, schema: Plain, path: str) -> str | None:
        self._spend(1)
        if "$ref" in schema:
            return self._referred(value, str(schema["$ref"]), path)
        for word in _UNIONS:
            if word in schema and (problem := self._no_alternative(value, schema, word, path)):
                return problem
        for each in schema.get("allOf", ()):
            if problem := self._problem(value, each, path):
                return problem
        return (
            self._not_listed(value, schema, path)
            or wrong_type(value, schema, path)
            or self._wrong_parts(value, schema, path)
        )

    def _referred(self, value: Any, reference: str, path: str) -> str | None:
        target = _target(self._root, reference)
        if target is None:
            return None  # of an older version; a new schema is refused with such a reference
        if not isinstance(value, dict | list):
            return self._problem(value, target, path)
        key = (id(value), reference)
        if key not in self._known:
            self._known[key] = self._problem(value, target, path)
        return self._known[key]

    def _no_alternative(self, value: Any, schema: Plain, word: str, path: str) -> str | None:
        tags = schema.get("discriminator")
        # Older versions stored whatever stood there.
        if isinstance(value, dict) and isinstance(tags, Mapping) and tags.get("mapping"):
            return self._by_tag(value, tags, path)
        options = schema[word]
        for each in options:
            if self._problem(value, each, path) is None:
                return None
        return f"{path}: fits none of {len(options)} alternatives"

    def _by_tag(self, value: dict[str, Any], tags: Plain, path: str) -> str | None:
        """The one alternative that the value itself names."""
        name = str(tags.get("propertyName"))
        if name not in value:
            return f"{path}.{name}: is required"
        tag = value[name]
        is_word = isinstance(tag, str | int) and not isinstance(tag, bool)
        reference = tags["mapping"].get(tag if isinstance(tag, str) else shown(tag))
        if not is_word or reference is None:
            return f"{path}.{name}: {shown(tag)} names no alternative"
        return self._referred(value, str(reference), path)

    def _not_listed(self, value: Any, schema: Plain, path: str) -> str | None:
        if "enum" in schema:
            self._spend(len(schema["enum"]))
            if not any(same(value, each) for each in schema["enum"]):
                return f"{path}: not one of {shown(schema['enum'], 120)}"
        if "const" in schema and not same(value, schema["const"]):
            return f"{path}: must be {shown(schema['const'], 80)}"
        return None

    def _wrong_parts(self, value: Any, schema: Plain, path: str) -> str | None:
        if isinstance(value, dict):
            return self._wrong_object(value, schema, path)
        if isinstance(value, list):
            return self._wrong_array(value, schema, path)
        if isinstance(value, str):
            self._spend(len(value) // 64)
            size = wrong_size(len(value), schema, "Length", path)
            return size or wrong_text(value, schema, path)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return wrong_number(value, schema, path)
        return None

    def _wrong_object(self, value: dict[str, Any], schema: Plain, path: str) -> str | None:
        if problem := wrong_size(len(value), schema, "Properties", path):
            return problem
        required = schema.get("required", ())
        self._spend(len(value) + len(required))
        for name in required:
            if name not in value:
                return f"{path}.{name}: is required"
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, part in value.items():
            rule = properties.get(name, others)
            if rule is False:
                return f"{path}.{name:.80}: unknown field"
            if isinstance(rule, Mapping) and (
                problem := self._problem(part, rule, f"{path}.{name:.80}")
            ):
                return problem
        return None

    def _wrong_array(self, value: list[Any], schema: Plain, path: str) -> str | None:
        if problem := wrong_size(len(value), schema, "Items", path):
            return problem
        self._spend(len(value))
        heads, rest = schema.get("prefixItems", []), schema.get("items", True)
        for index, part in enumerate(value):
            rule = heads[index] if index < len(heads) else rest
            if rule is False:
                return f"{path}[{index}]: one too many"
            if isinstance(rule, Mapping) and (
                problem := self._problem(part, rule, f"{path}[{index}]")
            ):
                return problem
        return None
