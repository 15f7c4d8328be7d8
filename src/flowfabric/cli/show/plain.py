"""Stored values as plain data for --json, and stored bytes in readable form."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from flowfabric.model.record import Record


def plain(value: Any) -> Any:
    """Lists, maps and scalars. Every field is there, null when unset, so scripts need no guess."""
    match value:
        case Record():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case Enum():
            return value.value
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case bytes():
            return decoded(value)
        case _:
            return value


def decoded(data: bytes) -> Any:
    """The value behind stored bytes: JSON where it is JSON, text where it is text, else base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def preview(data: bytes | None) -> str:
    """Stored bytes on one line."""
    if data is None:
        return "none"
    value = decoded(data)
    if isinstance(value, dict) and set(value) == {"base64"}:
        return f"{len(data)} bytes (not text)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
