"""Waitpoint tokens: the holder of one may signal one waitpoint, and no other.

The MAC covers execution, waitpoint, key and creation time, each with its length, so no two
waitpoints share a token. Nothing of a token is stored: it is worked out again from the signing key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence

from flowfabric.errors import InvalidInput
from flowfabric.model.links import named_for
from flowfabric.model.suspension import SecretRow, Token, WaitpointRow, WaitpointState

_KID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_SECRET = re.compile(r"[0-9a-f]{64,256}")
_VERSION = b"ffwp1"
_DUMMY = SecretRow("-", "00" * 32, 0, 0, None)


def check_kid(kid: object, *, field: str = "kid") -> str:
    """A key's name: letters, digits, - and _, up to 32."""
    if not isinstance(kid, str) or not _KID.fullmatch(kid):
        raise InvalidInput(f"{field}: expected 1 to 32 of A-Z a-z 0-9 _ -", field=field)
    return kid


def check_secret(secret_hex: object, *, field: str = "secret_hex") -> str:
    """At least 32 bytes in lower-case hex; the value is never repeated in an error."""
    text = secret_hex.lower() if isinstance(secret_hex, str) else ""
    if not _SECRET.fullmatch(text) or len(text) % 2:
        raise InvalidInput(f"{field}: expected 32 to 128 bytes in hex", field=field)
    if len(set(text)) == 1:
        raise InvalidInput(f"{field}: a key of one repeated digit is no secret", field=field)
    return text


def gives_way(stored: Sequence[SecretRow], *, is_used: bool) -> bool:
    """Whether the only key was made by itself at the first start and has signed nothing."""
    return len(stored) == 1 and bool(stored[0].is_automatic) and not is_used


def current(secrets: Iterable[SecretRow]) -> SecretRow | None:
    """The key new tokens are signed with."""
    return next((each for each in secrets if each.is_current), None)


def mint(waitpoint: WaitpointRow, secret: SecretRow, recipient: str | None = None) -> Token:
    """The token of a waitpoint; a personal one names its recipient and is good for no other."""
    named = "" if recipient is None else named_for(recipient)
    return Token(f"{secret.kid}{named}:{_mac(waitpoint, secret, named)}")


def verifies(
    presented: str, waitpoint: WaitpointRow | None, secrets: Iterable[SecretRow], now: int
) -> bool:
    """Whether a presented token is this waitpoint's, signed by a key that is still good.

    The same work is done whatever is wrong, so that no caller learns which part was.
    """
    head, _, digest = presented.partition(":")
    kid, dot, word = head.partition(".")
    found = next((each for each in secrets if each.kid == kid), None)
    usable = found is not None and (found.due_at is None or found.due_at > now)
    subject = waitpoint if waitpoint is not None else _NOBODY
    expected = _mac(subject, found if found is not None and usable else _DUMMY, dot + word)
    same = hmac.compare_digest(expected.encode(), digest.encode(errors="replace"))
    return same and usable and waitpoint is not None and may_sign(found, waitpoint)


def may_sign(secret: SecretRow | None, waitpoint: WaitpointRow) -> bool:
    """Whether a key speaks for a waitpoint: its own, or one that came after it, with which its
    token is handed out again. A key that was retired before signs nothing new."""
    if secret is None:
        return False
    is_own = secret.kid == waitpoint.token_kid
    return is_own or bool(secret.is_current) or secret.created_at >= waitpoint.created_at


def fingerprint(waitpoint: WaitpointRow, secret: SecretRow | None) -> str:
    """What listings show instead of a token."""
    if secret is None:
        return ""
    return hashlib.sha256(_mac(waitpoint, secret).encode()).hexdigest()[:16]


def _mac(waitpoint: WaitpointRow, secret: SecretRow, named: str = "") -> str:
    parts: tuple[str, ...] = (
        secret.kid,
        waitpoint.execution_id,
        waitpoint.waitpoint_id,
        waitpoint.waitpoint_key,
        str(waitpoint.created_at),
    )
    if named:
        parts = (*parts, named)
    message = _VERSION
    for part in parts:
        data = part.encode()
        message += len(data).to_bytes(4, "big") + data
    return hmac.digest(bytes.fromhex(secret.secret_hex), message, "sha256").hex()


_NOBODY = WaitpointRow(
    "0" * 36, "0" * 44, 0, None, "", WaitpointState.CLOSED, "-", 0, None, None, None, None, None
)
