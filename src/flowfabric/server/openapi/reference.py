"""A document as people read it: its paths by subject, and its types in a few words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from flowfabric.model.record import Record
from flowfabric.server.openapi.schemas import Schema

Part = tuple[str, str | None]  # some words, and the type they lead to

_METHODS: Final = ("get", "post", "patch", "put", "delete")
_ANY: Final = "any JSON"


class Field(Record, frozen=True):
    """One field of a type, or a parameter of a path."""

    name: str
    parts: tuple[Part, ...]
    is_needed: bool
    text: str


class Reply(Record, frozen=True):
    """What is answered with one status."""

    status: str
    parts: tuple[Part, ...]


class Entry(Record, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str
    title: str
    text: str
    scope: str | None
    repeat: str
    parameters: tuple[Field, ...]
    body: tuple[Field, ...]
    body_type: tuple[Part, ...]
    replies: tuple[Reply, ...]
    codes: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """Its name in a page."""
        words = "".join(each if each.isalnum() else "-" for each in f"{self.method} {self.path}")
        return "-".join(word for word in words.lower().split("-") if word)


class Type(Record, frozen=True):
    """One named type."""

    name: str
    text: str
    words: tuple[str, ...]  # of an enumeration
    fields: tuple[Field, ...]


def entries_of(document: Mapping[str, Any]) -> dict[str, list[Entry]]:
    """The methods of all paths, by their subject."""
    found: dict[str, list[Entry]] = {each["name"]: [] for each in document["tags"]}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                about = methods[method]
                found[about["tags"][0]].append(_entry(method, path, about))
    return {tag: entries for tag, entries in found.items() if entries}


def _entry(method: str, path: str, about: Mapping[str, Any]) -> Entry:
    content: Mapping[str, Any] = about.get("requestBody", {}).get("content", {})
    schema = next((each["schema"] for each in content.values()), None)
    return Entry(
        method=method.upper(),
        path=path,
        title=about["summary"].rstrip("."),
        text=_without_title(about),
        scope=about.get("x-scope"),
        repeat=about["x-repeat"],
        parameters=tuple(map(_parameter, about.get("parameters", ()))),
        body=() if schema is None else _fields(schema),
        body_type=() if schema is None or "properties" in schema else tuple(parts_of(schema)),
        replies=tuple(_replies(about["responses"])),
        codes=tuple(about["x-errors"]),
    )


def _without_title(about: Mapping[str, Any]) -> str:
    text: str = about.get("description", "")
    return text.removeprefix(about["summary"]).strip()


def _parameter(about: Mapping[str, Any]) -> Field:
    where = about["in"]
    note = about.get("description", about["schema"].get("description", ""))
    text = note if where == "query" else f"in the {where}{': ' if note else ''}{note}"
    return Field(
        about["name"], tuple(parts_of(about["schema"])), about.get("required", False), text
    )


def _replies(responses: Mapping[str, Any]) -> Iterator[Reply]:
    for status, about in responses.items():
        if "$ref" in about:
            continue
        several = about.get("content", {})
        parts: list[Part] = []
        for media, content in several.items():
            if parts:
                parts.append((" or ", None))
            parts += parts_of(content["schema"]) if "schema" in content else [(media, None)]
        yield Reply(status, tuple(parts) or ((about["description"], None),))


def types_of(document: Mapping[str, Any]) -> list[Type]:
    """All named types."""
    return [
        Type(
            name,
            schema.get("description", ""),
            tuple(str(each) for each in schema.get("enum", ())),
            _fields(schema),
        )
        for name, schema in document["components"]["schemas"].items()
    ]


def _fields(schema: Schema) -> tuple[Field, ...]:
    needed = set(schema.get("required", ()))
    for each in schema.get("allOf", ()):
        for one in each.get("anyOf", ()):
            needed |= set(one.get("required", ()))
    return tuple(
        Field(name, tuple(parts_of(one)), name in needed, _note(one))
        for name, one in schema.get("properties", {}).items()
    )


def _note(schema: Schema) -> str:
    notes = [schema["description"]] if "description" in schema else []
    if "default" in schema and schema["default"] != "":
        default = schema["default"]
        shown = str(default).lower() if isinstance(default, bool) else default
        notes.append(f"default {shown}")
    return "; ".join(notes)


def parts_of(schema: Schema) -> Iterator[Part]:
    """A type in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield name, name
    elif "const" in schema:
        yield f'"{schema["const"]}"', None
    elif "anyOf" in schema:
        yield from _either(schema["anyOf"])
    elif "allOf" in schema and "properties" not in schema:
        yield from _joined(schema["allOf"], " with ")
    elif "prefixItems" in schema:
        yield "[", None
        yield from _joined(schema["prefixItems"], ", ")
        yield "]", None
    elif schema.get("type") == "array":
        yield "list of ", None
        yield from parts_of(schema.get("items", {}))
    elif schema.get("type") == "object":
        yield from _object_parts(schema)
    elif "enum" in schema:
        yield " | ".join(map(str, schema["enum"])), None
    else:
        kinds = schema.get("type", _ANY)
        yield " | ".join(kinds) if isinstance(kinds, list) else kinds, None


def _object_parts(schema: Schema) -> Iterator[Part]:
    if "properties" in schema:
        yield "{", None
        for index, (name, one) in enumerate(schema["properties"].items()):
            yield f"{', ' if index else ''}{name}: ", None
            yield from parts_of(one)
        yield "}", None
    elif schema.get("additionalProperties"):
        yield "map of ", None
        yield from parts_of(schema["additionalProperties"])
    else:
        yield "object", None


def _either(schemas: Sequence[Schema]) -> Iterator[Part]:
    """One of several; what all of them may have beside their own is said once."""
    more = [each["allOf"][1] for each in schemas if len(each.get("allOf", ())) == 2]
    if len(more) == len(schemas) and all(each == more[0] for each in more):
        yield from _joined([each["allOf"][0] for each in schemas], " | ")
        yield " with ", None
        yield from parts_of(more[0])
    else:
        yield from _joined(schemas, " | ")


def _joined(schemas: Sequence[Schema], between: str) -> Iterator[Part]:
    for index, each in enumerate(schemas):
        if index:
            yield between, None
        yield from parts_of(each)
