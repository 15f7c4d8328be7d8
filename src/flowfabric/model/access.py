"""Access tokens: what a program shows to a server, and what that allows it.

The text of a token is `ff_<id>_<secret>_<checksum>`, each part in letters and digits. The checksum
tells a mistyped token from a wrong one, and lets a scanner find tokens where they do not belong. Of
the secret only a hash is stored.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from flowfabric.model.columns import Counter, Instant
from flowfabric.model.record import Record
from flowfabric.model.suspension import Token

TOKEN_ID_LENGTH: Final = 10
_SECRET_LENGTH: Final = 43  # 256 bits
_SUM_LENGTH: Final = 6
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LETTERS: Final = r"[0-9A-Za-z]"
_TEXT: Final = re.compile(
    rf"ff_({_LETTERS}{{{TOKEN_ID_LENGTH}}})_({_LETTERS}{{{_SECRET_LENGTH}}})"
    rf"_({_LETTERS}{{{_SUM_LENGTH}}})"
)
_LIKE: Final = re.compile(rf"ff_{_LETTERS}{{{TOKEN_ID_LENGTH}}}_{_LETTERS}{{20}}")


class Scope(StrEnum):
    """What a token must allow before an operation may be asked for over a wire."""

    READ = "read"
    SUBMIT = "submit"  # new work
    WORKER = "worker"  # claim, and act under a lease
    APPROVE = "approve"  # signals
    OPERATE = "operate"  # the work of others, limits and lanes
    ADMIN = "admin"  # tokens, keys, the installation
    METRICS = "metrics"  # the numbers of a server


_INCLUDED: Final[dict[Scope, frozenset[Scope]]] = {
    Scope.OPERATE: frozenset((Scope.READ, Scope.APPROVE)),
    Scope.ADMIN: frozenset(Scope),
}


def granted(scopes: tuple[Scope, ...]) -> frozenset[Scope]:
    """The scopes with those that they include."""
    return frozenset(scopes).union(*(_INCLUDED.get(each, frozenset()) for each in scopes))


class AccessTokenRow(Record, frozen=True):
    """One token as it is stored. Rows are kept when they have ended, so that an installation that
    had a token once never counts as one without."""

    token_id: str
    digest: bytes  # SHA-256 of the secret
    name: str
    scopes: tuple[Scope, ...]
    namespaces: tuple[str, ...] | None  # none: all of them
    speaks_for: Counter  # 1: it may act in the name of others
    created_at: Instant
    created_by: str
    expires_at: Instant
    last_used_at: Instant | None = None
    revoked_at: Instant | None = None
    revoked_by: str = ""

    def __repr__(self) -> str:
        return f"AccessTokenRow({self.token_id!r}, {self.name!r})"


class AccessToken(Record, frozen=True):
    """A token as listings show it: never its secret.

    `namespaces`: None is all of them. `last_used_at` is true to five minutes.
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    namespaces: tuple[str, ...] | None
    speaks_for: bool
    created_at: int
    created_by: str
    expires_at: int
    last_used_at: int | None
    revoked_at: int | None
    revoked_by: str


class AccessTokenCreated(Record, frozen=True):
    """The token, which is shown this once, and all that is kept of it."""

    token: Token
    id: str
    name: str
    scopes: tuple[Scope, ...]
    namespaces: tuple[str, ...] | None
    speaks_for: bool
    expires_at: int


class AccessTokenRevoked(Record, frozen=True):
    """The token opens nothing any more. `is_new`: since this call."""

    id: str
    revoked_at: int
    is_new: bool


class Namespaces(Record, frozen=True, kw_only=True):
    """The namespaces of things by their ids: None is of all, empty is one that cannot be read."""

    executions: Mapping[str, str]
    flows: Mapping[str, str]
    operations: Mapping[str, str | None]
    groups: Mapping[str, str | None]
    budgets: Mapping[str, str | None]
    quotas: Mapping[str, str | None]


def shown_token(row: AccessTokenRow) -> AccessToken:
    """A row as listings show it."""
    return AccessToken(
        row.token_id,
        row.name,
        row.scopes,
        row.namespaces,
        bool(row.speaks_for),
        row.created_at,
        row.created_by,
        row.expires_at,
        row.last_used_at,
        row.revoked_at,
        row.revoked_by,
    )


# --- the text ------------------------------------------------------------------------------------


class TokenParts(Record, frozen=True):
    """What the text of a token says."""

    token_id: str
    digest: bytes

    def __repr__(self) -> str:
        return f"TokenParts({self.token_id!r})"


def token_text(token_id: str, secret: bytes) -> tuple[str, bytes]:
    """The text of a new token, and the hash that is stored of it."""
    told = in_letters(int.from_bytes(secret), _SECRET_LENGTH)
    text = f"ff_{token_id}_{told}"
    return f"{text}_{_sum_of(text)}", _digest_of(told)


def read_token(text: str) -> TokenParts | None:
    """The parts of a token's text; None of a text that can be none.

    >>> read_token("ff_mistyped") is None
    True
    """
    found = _TEXT.fullmatch(text) if text.isascii() else None
    if found is None or _sum_of(text[: -_SUM_LENGTH - 1]) != found[3]:
        return None
    return TokenParts(found[1], _digest_of(found[2]))


def looks_like_token(text: str) -> bool:
    """Whether somewhere in a text there is, as it seems, a token.

    >>> looks_like_token("/v1/executions?limit=5")
    False
    """
    return _LIKE.search(text) is not None


def in_letters(number: int, length: int) -> str:
    """A number in letters and digits, the last ones of it.

    >>> in_letters(61, 2)
    '0z'
    """
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def _sum_of(text: str) -> str:
    return in_letters(zlib.crc32(text.encode("ascii")), _SUM_LENGTH)


def _digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()
