"""How deep JSON may nest: most decoders cannot read a value nested a thousand deep.

The engine looks at bytes, not at values: it never decodes most payloads.
"""

from __future__ import annotations

from typing import Final

from flowfabric.errors import InvalidInput, ValidationError
from flowfabric.limits import JSON_DEPTH_MAX
from flowfabric.model.record import may_be_json

JSON: Final = "json"
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE, _CURLY = b"[{"  # as numbers: bytes in bytes are first tried, and refused, as a number
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_DEEP_BYTES_MIN: Final = 2 * (JSON_DEPTH_MAX + 1)  # every bracket has its counterpart
_TOO_DEEP: Final = f"nests deeper than {JSON_DEPTH_MAX} levels"


def is_too_deep(data: bytes) -> bool:
    """Whether bytes are JSON that nests deeper than the limit.

    >>> is_too_deep(b"[" * 64 + b"]" * 64), is_too_deep(b"[" * 65 + b"]" * 65)
    (False, True)
    """
    # Whether there is one at all is told ten times as fast as how many there are.
    opened = data.count(b"[") if _SQUARE in data else 0
    opened += data.count(b"{") if _CURLY in data else 0
    if opened <= JSON_DEPTH_MAX:
        return False  # nearly always, and quickly
    return _leaves_brackets(data) and may_be_json(data)


def _leaves_brackets(data: bytes) -> bool:
    """Whether brackets remain outside of strings after removing the innermost pairs as often as the
    limit says. No step goes through the bytes one by one."""
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(plain.split(b'"')[::2])
    brackets = outside.translate(_ALIKE, _NO_BRACKETS)
    for _ in range(JSON_DEPTH_MAX):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def check_nesting(
    data: bytes,
    encoding: str | None,
    *,
    field: str,
    error: type[ValidationError] = InvalidInput,
) -> None:
    """Refuse bytes that nest too deep, unless their encoding says they are not JSON."""
    if len(data) < _DEEP_BYTES_MIN:
        return  # too short to nest deeper
    if (encoding is None or encoding == JSON) and is_too_deep(data):
        raise error(f"{field}: {_TOO_DEEP}; pass it flat, or as text", field=field)
