"""A waitpoint's address and its token as one opaque text, for a callback that keeps one string.

The text proves nothing by itself: the token's MAC protects it and covers the execution and the
waitpoint, so a link that was changed anywhere opens nothing. The token of a personal link names its
recipient, which the MAC covers, too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final, NamedTuple

import msgspec

from flowfabric.model.suspension import Token

PREFIX: Final = "ffw1."
LINK_SOURCE: Final = "link"  # the type of sources that are known by a link alone
PERSON_SOURCE: Final = "user"
_LENGTH_MAX: Final = 2048
_SHAPE: Final = msgspec.json.Decoder(tuple[str, str, str])
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    RecursionError,
    binascii.Error,
    msgspec.MsgspecError,
)


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


def address_of(text: object) -> Address | None:
    """The address behind a link; None for whatever is not one, spelled as `make_link` spells it."""
    try:
        if not isinstance(text, str) or len(text) > _LENGTH_MAX:
            return None
        compact = text.strip()
        if not compact.startswith(PREFIX):
            return None
        body = compact.removeprefix(PREFIX)
        plain = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        execution_id, waitpoint_id, token = _SHAPE.decode(plain)
        address = Address(execution_id, waitpoint_id, Token(token))
        return address if make_link(address) == compact else None
    except _UNREADABLE:
        return None


# --- recipients ----------------------------------------------------------------------------------


def named_for(recipient: str) -> str:
    """The part of a personal token that names its recipient."""
    return f".{base64.urlsafe_b64encode(recipient.encode()).decode().rstrip('=')}"


def recipient_of(token: str) -> str | None:
    """The one that a token was made for, as it says; only its MAC proves it."""
    word = token.partition(":")[0].partition(".")[2]
    if not word:
        return None
    try:
        return base64.b64decode(f"{word}{'=' * (-len(word) % 4)}", b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def source_of(token: str) -> tuple[str, str]:
    """In whose name a link signals: its recipient, or itself, however often it is used."""
    recipient = recipient_of(token)
    if recipient is not None:
        return PERSON_SOURCE, recipient
    return LINK_SOURCE, f"link:{hashlib.sha256(token.encode()).hexdigest()[:16]}"
