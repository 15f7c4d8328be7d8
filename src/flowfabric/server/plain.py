"""Replies and errors as JSON: the fields of the waist, every one of them.

Bytes that are JSON are passed on as they are, byte for byte; others are Base64 under the field's
name with `_base64` behind it. A handle is opaque text. A member of a union tells its class as
`type`.
"""

from __future__ import annotations

import base64
from collections.abc import Hashable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, cast

from flowfabric.errors import FlowFabricError
from flowfabric.model.handle import Handle
from flowfabric.model.record import Raw, Record, is_json, tag_of, to_json
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import Token

BASE64: Final = "_base64"
# Payloads have one word over HTTP, whatever the field behind it is called.
WORDS: Final = {"input_payload": "input", "result_payload": "result"}
_OF_CLAIMED: Final = {"payload": "input"}
_PLAIN: Final = (str, int, float, bool, type(None))


def to_body(value: object) -> bytes:
    """A reply as the body of an answer."""
    return to_json(plain(value))


def plain(value: Any) -> Any:
    """What JSON can express of a value of the waist."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if (fields := _fields(cast("Hashable", kind))) is not None:
        return _record(value, fields)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, bytes):
        return Raw(value) if is_json(value) else {BASE64[1:]: to_base64(value)}
    if isinstance(value, FlowFabricError):
        return problem(value)
    if isinstance(value, Token):
        return value.reveal()
    return value


def problem(error: FlowFabricError) -> dict[str, Any]:
    """An error as an item of a list, or the heart of a problem answer."""
    return {
        **{name: plain(value) for name, value in error.fields.items()},
        "type": f"urn:flowfabric:error:{error.code}",
        "title": error.advice,
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        "retryable": error.retryable,
    }


def word_of(kind: type[Record], name: str) -> str:
    """What a field of a record is called over HTTP."""
    if kind is Claimed:
        name = _OF_CLAIMED.get(name, name)
    return WORDS.get(name, name)


def to_base64(data: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(data).decode("ascii")


def handle_text(handle: Handle) -> str:
    """A handle as opaque text that fits into a body as it is."""
    return base64.urlsafe_b64encode(handle.encode()).rstrip(b"=").decode("ascii")


@cache
def _fields(kind: Hashable) -> tuple[str | None, tuple[tuple[str, str], ...]] | None:
    """The tag of a record's class, and its fields with their words; None for another class."""
    if not isinstance(kind, type) or not issubclass(kind, Record) or kind is Handle:
        return None
    names = kind.__struct_fields__
    return tag_of(kind), tuple((name, word_of(kind, name)) for name in names)


def _record(value: Any, fields: tuple[str | None, tuple[tuple[str, str], ...]]) -> dict[str, Any]:
    tag, names = fields
    found: dict[str, Any] = {} if tag is None else {"type": tag}
    for name, word in names:
        each = getattr(value, name)
        if type(each) in _PLAIN:
            found[word] = each
        else:
            _put(found, word, each)
    return found


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, each in value.items():
        _put(found, key.value if isinstance(key, Enum) else str(key), each)
    return found


def _put(found: dict[str, Any], word: str, value: Any) -> None:
    if isinstance(value, bytes):
        if is_json(value):
            found[word] = Raw(value)
        else:
            found[word + BASE64] = to_base64(value)
    elif isinstance(value, Handle):
        found[word] = handle_text(value)
    else:
        found[word] = plain(value)
