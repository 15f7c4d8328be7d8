"""A waitpoint's address and its token as one opaque text, for a callback that keeps one string.

The text proves nothing by itself: the token's MAC protects it and covers the execution and the
waitpoint, so a link that was changed anywhere opens nothing.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

import msgspec

from flowfabric.model.suspension import Token
from flowfabric.sdk.errors import InvalidLink

PREFIX: Final = "ffw1."
_LENGTH_MAX: Final = 2048
_SHAPE: Final = msgspec.json.Decoder(tuple[str, str, str])


class Address(NamedTuple):
    """The target of a link."""

    execution_id: str
    waitpoint_id: str
    token: Token


def is_link(text: object) -> bool:
    """Whether a text claims to be a link."""
    return isinstance(text, str) and text.strip().startswith(PREFIX)


def make_link(address: Address) -> str:
    """The one text to hand out. It is a credential: with it anyone may signal that waitpoint."""
    parts = (address.execution_id, address.waitpoint_id, address.token.reveal())
    body = base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode()
    return PREFIX + body.rstrip("=")


def read_link(text: object) -> Address:
    """The address behind a link; every defect of a link gives the same error."""
    try:
        address = _read(text)
    except (ValueError, TypeError, RecursionError, binascii.Error, msgspec.MsgspecError):
        address = None
    if address is None:  # raised out here, so that no traceback carries the text
        raise InvalidLink("link: not a complete FlowFabric link", field="link")
    return address


def _read(text: object) -> Address | None:
    if not isinstance(text, str) or len(text) > _LENGTH_MAX:
        return None
    compact = text.strip()
    if not compact.startswith(PREFIX):
        return None
    body = compact.removeprefix(PREFIX)
    plain = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    execution_id, waitpoint_id, token = _SHAPE.decode(plain)
    address = Address(execution_id, waitpoint_id, Token(token))
    return address if make_link(address) == compact else None  # one spelling only
