"""The type a waiter expects, as the JSON schema that is stored with its waitpoint."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.errors import InvalidInput
from flowfabric.sdk import codec
from flowfabric.sdk.payload_times import say_times

_DEFS: Final = "$defs"


def schema_of(kind: Any, *, field: str = "expect") -> str:
    """The schema of a dataclass, a struct, a pydantic model or JSON types, as text.

    >>> schema_of(bool)
    '{"type":"boolean"}'
    """
    codec.decoder_of(kind, field=field)  # a type that cannot be read back is refused here
    try:
        schema = msgspec.json.schema(kind, schema_hook=_model_schema)
    except (TypeError, NotImplementedError) as error:
        raise InvalidInput(f"{field}: {error}", field=field) from None
    say_times(kind, schema)
    gathered: dict[str, Any] = {}
    plain = _hoisted(schema, gathered)
    if gathered:
        plain[_DEFS] = gathered
    return msgspec.json.encode(plain).decode()


def _model_schema(kind: Any) -> dict[str, Any]:
    """Models are recognised by this method of theirs, so pydantic is never imported."""
    describe = getattr(kind, "model_json_schema", None)
    if describe is None:
        raise NotImplementedError(f"{kind!r} has no JSON schema")
    schema: dict[str, Any] = describe()
    return schema


def _hoisted(node: Any, gathered: dict[str, Any]) -> Any:
    """The same schema with every definition at its root, where references are looked up."""
    if isinstance(node, list):
        return [_hoisted(each, gathered) for each in node]
    if not isinstance(node, dict):
        return node
    for name, inner in node.get(_DEFS, {}).items():
        gathered[name] = _hoisted(inner, gathered)
    return {name: _hoisted(part, gathered) for name, part in node.items() if name != _DEFS}
