"""Datetimes and times in schemas: msgspec describes those without a declared offset as any text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import inspect

Node = dict[str, Any]

_FORMATS: Final[dict[type[inspect.Type], str]] = {
    inspect.DateTimeType: "date-time",
    inspect.TimeType: "time",
}
_RECORDS: Final = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_LISTS: Final = (
    inspect.ListType,
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.VarTupleType,
    inspect.CollectionType,
)


def say_times(kind: Any, schema: Node) -> None:
    """Give the texts of a schema that stand for times their format."""
    _Walk(schema.get("$defs", {})).visit(inspect.type_info(kind), schema)


class _Walk:
    """Goes through a type and its schema side by side."""

    def __init__(self, definitions: Mapping[str, Node]) -> None:
        self._definitions = definitions
        self._seen: set[int] = set()

    def visit(self, kind: inspect.Type, node: Any) -> None:
        """A type, and the schema that was made of it."""
        while isinstance(kind, inspect.Metadata):
            kind = kind.type
        if not isinstance(node, dict):
            return
        node = self._definitions.get(str(node.get("$ref", "")).rpartition("/")[2], node)
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        word = _FORMATS.get(type(kind))
        if word is not None and node.get("type") == "string":
            node.setdefault("format", word)
        for inner, part in self._parts(kind, node):
            self.visit(inner, part)

    def _parts(self, kind: inspect.Type, node: Node) -> Iterator[tuple[inspect.Type, Any]]:
        if isinstance(kind, inspect.UnionType):
            yield from self._options(kind, node)
        elif isinstance(kind, _RECORDS):
            for field in kind.fields:
                yield field.type, node.get("properties", {}).get(field.encode_name)
        elif isinstance(kind, _LISTS):
            yield kind.item_type, node.get("items")
        elif isinstance(kind, inspect.DictType):
            yield kind.value_type, node.get("additionalProperties")
        elif isinstance(kind, inspect.TupleType):
            yield from zip(kind.item_types, node.get("prefixItems", ()), strict=False)

    def _options(self, kind: inspect.UnionType, node: Node) -> Iterator[tuple[inspect.Type, Any]]:
        """No union has two members that are texts, or two of one class."""
        for inner in kind.types:
            for option in node.get("anyOf", ()):
                target = self._definitions.get(str(option.get("$ref", "")).rpartition("/")[2], {})
                is_same = isinstance(inner, _RECORDS) and target.get("title") == inner.cls.__name__
                is_text = type(inner) in _FORMATS and option.get("type") == "string"
                is_list = isinstance(inner, _LISTS) and option.get("type") == "array"
                if is_same or is_text or is_list:
                    yield inner, option
