"""JSON schemas of what bodies carry, from the classes of the waist.

An answer has every field of its class (`plain` writes them all); a request may leave out what has a
default (`shapes` reads it). Each class becomes one named component.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from flowfabric.errors import FlowFabricError
from flowfabric.model.handle import Handle
from flowfabric.model.record import Raw, Record, defaults_of, tag_of
from flowfabric.model.suspension import Token
from flowfabric.server.plain import BASE64, word_of
from flowfabric.server.shapes import IS_INSTANT

Schema = dict[str, Any]

PROBLEM: Final = "ErrorAnswer"
_PREFIX: Final = "#/components/schemas/"
_SCALARS: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Handle: {"type": "string"},
    Token: {"type": "string"},
}
_LISTS: Final = (list, tuple, Sequence, set, frozenset, Set)


def reference(name: str) -> Schema:
    """A component by its name."""
    return {"$ref": _PREFIX + name}


class Schemas:
    """The components of one document: those of answers, or those of requests."""

    def __init__(self, *, is_request: bool = False, taken: Mapping[str, Schema] | None = None):
        """`taken`: names that mean something else already."""
        self.components: dict[str, Schema] = {}
        self._kinds: dict[str, type[Any]] = {}
        self._is_request = is_request
        self._taken = taken or {}

    def of(self, hint: Any, names: Mapping[Any, Any] | None = None) -> Schema:
        """The schema of a type; `names`: what its type variables stand for."""
        if hint in _SCALARS:
            return dict(_SCALARS[hint])
        if isinstance(hint, TypeVar):
            return self.of((names or {}).get(hint, Any), names)
        origin, parts = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self.of(parts[0], names)
        if origin is Literal:
            return {"enum": list(parts)}
        if origin in (Union, types.UnionType):
            return self._union(parts, names)
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self._values(parts[1], names)}
        if origin in _LISTS:
            return self._several(origin, parts, names)
        return self._class(origin or hint, parts)

    def _values(self, hint: Any, names: Mapping[Any, Any] | None) -> Schema:
        return {} if _is_bytes(hint) else self.of(hint, names)

    def _union(self, parts: Sequence[Any], names: Mapping[Any, Any] | None) -> Schema:
        found: list[Schema] = []
        for part in parts:
            each = self.of(part, names)
            if each not in found:
                found.append(each)
        if all(each.keys() == {"type"} for each in found):
            return {"type": [each["type"] for each in found]}
        return found[0] if len(found) == 1 else {"anyOf": found}

    def _several(
        self, origin: Any, parts: Sequence[Any], names: Mapping[Any, Any] | None
    ) -> Schema:
        items = [each for each in parts if each is not Ellipsis]
        if origin is tuple and Ellipsis not in parts and items:
            count = len(items)
            each = [self.of(item, names) for item in items]
            return {"type": "array", "prefixItems": each, "minItems": count, "maxItems": count}
        return {"type": "array", "items": self._values(items[0], names)}

    def _class(self, kind: Any, parts: tuple[Any, ...]) -> Schema:
        if not isinstance(kind, type):
            return {}
        if issubclass(kind, FlowFabricError):
            return reference(PROBLEM)
        if issubclass(kind, Enum):
            return self._named(kind.__name__, kind, lambda: _words(kind))
        if issubclass(kind, Record) and kind is not Raw:
            name = kind.__name__ + "".join(f"Of{_name_of(each)}" for each in parts)
            return self._named(name, kind, lambda: self._record(kind, parts))
        return {}

    def _named(self, name: str, kind: type[Any], make: Callable[[], Schema]) -> Schema:
        """A component, made once; a class may hold itself."""
        if self._kinds.setdefault(name, kind) is not kind or name == PROBLEM:
            raise ValueError(f"two classes are called {name}")
        given = f"{name}Given"
        if self._is_request and name in self._taken:
            if given not in self.components:
                self.components[given] = {}
                self.components[given] = make()
            if self.components[given] == self._taken[name]:
                return reference(name)
            return reference(given)
        if name not in self.components:
            self.components[name] = {}
            self.components[name] = make()
        return reference(name)

    # --- records -------------------------------------------------------------------------------

    def _record(self, kind: type[Record], parts: tuple[Any, ...]) -> Schema:
        variables = getattr(kind, "__parameters__", ())
        names = dict(zip(variables, parts, strict=False))
        return {
            "description": described(kind),
            **self.fields(kind, names=names, is_tagged=True),
        }

    def fields(
        self,
        kind: type[Record],
        only: Sequence[str] | None = None,
        *,
        names: Mapping[Any, Any] | None = None,
        is_tagged: bool = False,
    ) -> Schema:
        """An object with the fields of a class, or with some of them."""
        made = _Object(is_request=self._is_request)
        if is_tagged and (tag := tag_of(kind)) is not None:
            made.add("type", {"const": tag}, is_needed=True)
        defaults = defaults_of(kind) if self._is_request else {}
        for name, hint in get_type_hints(kind).items():
            is_own = name in kind.__struct_fields__ and name != "connection"
            if not is_own or (only is not None and name not in only):
                continue
            word, is_needed = word_of(kind, name), name not in defaults
            if _is_bytes(hint):
                made.add_bytes(word, is_needed=is_needed)
            else:
                made.add(word, self._field(name, hint, names, defaults), is_needed=is_needed)
        return made.schema()

    def _field(
        self,
        name: str,
        hint: Any,
        names: Mapping[Any, Any] | None,
        defaults: Mapping[str, Any],
    ) -> Schema:
        found = self.of(hint, names)
        if IS_INSTANT.search(name) and int in (hint, *get_args(hint)):
            found = {**found, "description": "UTC milliseconds"}
            if self._is_request:
                found = _or_text(found)
        default = defaults.get(name)
        if type(default) in (str, int, float, bool):
            found = {**found, "default": default}
        elif isinstance(default, Enum):
            found = {**found, "default": default.value}
        return found


class _Object:
    """The schema of an object, as its fields are found."""

    def __init__(self, *, is_request: bool) -> None:
        self._properties: dict[str, Schema] = {}
        self._needed: list[str] = []
        self._either: list[Schema] = []
        self._is_request = is_request

    def add(self, word: str, schema: Schema, *, is_needed: bool) -> None:
        """A field."""
        self._properties[word] = schema
        if is_needed:
            self._needed.append(word)

    def add_bytes(self, word: str, *, is_needed: bool) -> None:
        """A payload: as it is where it is JSON, else in Base64 under another word."""
        self._properties[word] = {"description": "any JSON, kept byte for byte"}
        self._properties[word + BASE64] = {
            "type": "string",
            "contentEncoding": "base64",
            "description": f"in the place of `{word}`: bytes that are no JSON",
        }
        if is_needed:
            self._either.append({"anyOf": [{"required": [word]}, {"required": [word + BASE64]}]})

    def schema(self) -> Schema:
        """All of it."""
        found: Schema = {"type": "object", "properties": self._properties}
        if self._needed:
            found["required"] = self._needed
        if self._either:
            found["allOf"] = self._either
        if self._is_request:
            found["additionalProperties"] = False
        return found


def _or_text(found: Schema) -> Schema:
    """An instant of a request may be written as RFC 3339."""
    kinds = found["type"] if isinstance(found["type"], list) else [found["type"]]
    about = "UTC milliseconds, or RFC 3339 text with an offset"
    return {**found, "type": [*kinds, "string"], "description": about}


def _is_bytes(hint: Any) -> bool:
    return hint is bytes or (
        get_origin(hint) in (Union, types.UnionType) and bytes in get_args(hint)
    )


def _words(kind: type[Enum]) -> Schema:
    values = [each.value for each in kind]
    is_text = all(isinstance(each, str) for each in values)
    return {"type": "string" if is_text else "integer", "enum": values}


def _name_of(hint: Any) -> str:
    return getattr(hint, "__name__", "Any").capitalize() if hint in (str, int) else hint.__name__


def described(kind: type[Any]) -> str:
    """The docstring without its examples."""
    lines = [line.strip() for line in (kind.__doc__ or "").strip().splitlines()]
    kept: list[str] = []
    is_example = False
    for line in lines:
        is_example = line.startswith(">>>") or (is_example and bool(line))
        if not is_example:
            kept.append(line)
    return "\n".join(kept).strip()
