"""Sessions: what a browser shows to a server in the place of a token.

The text of a session is in its cookie and nowhere else; a hash of it is stored.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import Final

from flowfabric.model.access import AccessToken, in_letters
from flowfabric.model.columns import Instant
from flowfabric.model.record import Record
from flowfabric.model.suspension import Token

_LENGTH: Final = 43  # 256 bits
_TEXT: Final = re.compile(rf"[0-9A-Za-z]{{{_LENGTH}}}", re.ASCII)


class Way(StrEnum):
    """How a session was begun."""

    TOKEN = "token"  # noqa: S105 - a word: an access token was shown once
    LINK = "link"  # by a link that is good once, from the program's own terminal
    OIDC = "oidc"  # an identity provider vouches for the person
    PROXY = "proxy"  # a proxy that is trusted does


class SessionRow(Record, frozen=True):
    """One session as it is stored."""

    digest: str  # SHA-256 of the text, in hex
    way: Way
    subject: str  # the name of the person, or of the token
    token_id: str | None  # the access token that it was begun with
    roles: tuple[str, ...]  # the groups of the person that the configuration names
    created_at: Instant
    used_at: Instant
    idle_ms: int
    ends_at: Instant
    due_at: Instant  # when it is over without another use


class Session(Record, frozen=True):
    """A session as a server reads it: never its text.

    `token`: the one that it was begun with, which it ends with. `roles`: the groups of the person.
    """

    way: Way
    subject: str
    token: AccessToken | None
    roles: tuple[str, ...]
    created_at: int
    used_at: int
    ends_at: int


class SessionOpened(Record, frozen=True):
    """A session, and the text for its cookie."""

    text: Token
    session: Session


class SessionEnded(Record, frozen=True):
    """The text opens nothing any more. `is_new`: since this call."""

    is_new: bool


def session_text(secret: bytes) -> str:
    """The text of a new session.

    >>> len(session_text(bytes(32)))
    43
    """
    return in_letters(int.from_bytes(secret), _LENGTH)


def session_digest(text: str) -> str | None:
    """The key of the session of a text; None of a text that can be none.

    >>> session_digest("mistyped") is None
    True
    """
    if _TEXT.fullmatch(text) is None:
        return None
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def shown_session(row: SessionRow, token: AccessToken | None) -> Session:
    """A row as a server reads it."""
    return Session(row.way, row.subject, token, row.roles, row.created_at, row.used_at, row.ends_at)
