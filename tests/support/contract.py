"""Whether an answer is what the OpenAPI document says: a small validator, and the paths it is for.

It is stricter than the document, which lets fields join an answer later: a field that the document
does not name is a mistake here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from flowfabric.server.routes.all import DESCRIPTION
from flowfabric.server.routes.table import RouteTable

Schema = Mapping[str, Any]

_KINDS: Final[Mapping[str, Any]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_KNOWN: Final = {
    "$ref",
    "type",
    "const",
    "enum",
    "anyOf",
    "allOf",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "description",
    "title",
    "default",
    "contentEncoding",
}


@cache
def document() -> dict[str, Any]:
    """The document as a client reads it."""
    read: dict[str, Any] = json.loads(json.dumps(DESCRIPTION.document("0.0.0")))
    return read


def resolved(schema: Schema) -> Schema:
    while "$ref" in schema:
        found: Any = document()
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        schema = found
    return schema


def faults(value: Any, schema: Schema, at: str = "") -> list[str]:
    """What of a value does not fit a schema."""
    return list(_faults(value, schema, at, is_closed=True))


def _faults(value: Any, schema: Schema, at: str, *, is_closed: bool) -> Iterator[str]:
    schema = resolved(schema)
    assert schema.keys() <= _KNOWN, schema.keys() - _KNOWN
    if "const" in schema and value != schema["const"]:
        yield f"{at}: expected {schema['const']!r}, got {value!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "type" in schema:
        kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        if not any(_KINDS[kind](value) for kind in kinds):
            yield f"{at}: expected {kinds}, got {value!r:.100}"
            return
    if "anyOf" in schema:
        tried = [list(_faults(value, one, at, is_closed=is_closed)) for one in schema["anyOf"]]
        if all(tried):
            yield min(tried, key=lambda each: (len(each), -len(each[0])))[0]
    if isinstance(value, dict):
        is_open = "anyOf" in schema  # each of the alternatives has looked
        yield from _of_object(value, schema, at, is_closed=is_closed and not is_open)
    if isinstance(value, list):
        yield from _of_list(value, schema, at)


def _of_object(value: Any, schema: Schema, at: str, *, is_closed: bool) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}: lacks {name}"
    for one in schema.get("allOf", ()):
        yield from _faults(value, one, at, is_closed=False)
    known = properties_of(schema)
    for name, each in value.items():
        if name in schema.get("properties", {}):
            part = schema["properties"][name]
            yield from _faults(each, part, f"{at}/{name}", is_closed=True)
        elif name not in known and is_closed and known:
            if schema.get("additionalProperties") is not True:
                yield f"{at}/{name}: is not in the document"
        elif isinstance(schema.get("additionalProperties"), dict):
            part = schema["additionalProperties"]
            yield from _faults(each, part, f"{at}/{name}", is_closed=True)


def properties_of(schema: Schema) -> set[str]:
    """The fields that a schema names, with those of its parts."""
    schema = resolved(schema)
    found = set(schema.get("properties", ()))
    for one in (*schema.get("allOf", ()), *schema.get("anyOf", ())):
        found |= properties_of(one)
    return found


def _of_list(value: Sequence[Any], schema: Schema, at: str) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{at}: has {len(value)} items"
    for index, (each, one) in enumerate(zip(value, schema.get("prefixItems", ()), strict=False)):
        yield from _faults(each, one, f"{at}/{index}", is_closed=True)
    if "items" in schema:
        for index, each in enumerate(value):
            yield from _faults(each, schema["items"], f"{at}/{index}", is_closed=True)


# --- answers --------------------------------------------------------------------------------------

PROBLEM: Final = {"$ref": "#/components/schemas/ErrorAnswer"}


def answer_faults(
    method: str, path: str | None, status: int, headers: Mapping[str, str], body: bytes
) -> list[str]:
    """What of an answer is not in the document. `path`: its template, None where there is none."""
    media = headers.get("content-type", "").partition(";")[0]
    if method == "HEAD":
        return [] if not body else ["an answer to HEAD has a body"]
    if path is None:
        return _problem_faults(status, media, body)
    about = document()["paths"][path][method.lower()]
    told = about["responses"].get(str(status))
    if told is None:
        return [f"{method} {path}: {status} is not in the document: {body[:300]!r}"]
    if media == "application/problem+json":
        code = json.loads(body)["code"]
        if code not in about["x-errors"]:
            return [f"{method} {path}: {code} is not in the document"]
        return _problem_faults(status, media, body)
    content = resolved(told).get("content", {})
    kinds = {kind.partition(";")[0]: schema for kind, schema in content.items()}
    if not body and not kinds:
        return []
    if status == 304:
        return [] if not body else ["304 has a body"]
    if media not in kinds:
        return [f"{method} {path}: {status} as {media} is not in the document"]
    if "schema" not in kinds[media]:
        return []
    found = faults(json.loads(body), kinds[media]["schema"])
    return [f"{method} {path} {status}: {each}" for each in found]


def _problem_faults(status: int, media: str, body: bytes) -> list[str]:
    if media != "application/problem+json":
        return [f"{status} as {media}"]
    problem = json.loads(body)
    found = faults(problem, PROBLEM)
    if problem["status"] != status or not problem.get("request_id"):
        found.append(f"status {problem['status']}, request {problem.get('request_id')}")
    return found


@cache
def _table() -> RouteTable:
    return RouteTable(DESCRIPTION.routes)


def template_of(method: str, target: str) -> str | None:
    """The path in the document that a target means."""
    try:
        return _table().find(method, target.partition("?")[0].encode("latin-1"))[0].path
    except Exception:  # noqa: BLE001 - whatever it is, the document has no such path
        return None
