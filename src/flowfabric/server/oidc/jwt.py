"""ID tokens: the signature, then what they say. Only RS256: of the algorithms that providers must
offer it is the only one, and a token that names another one is refused before anything is computed.

The signature is verified by building the only block of bytes that a valid one can open to
(RSASSA-PKCS1-v1_5, RFC 8017 8.2.2) and comparing it whole: nothing of what it opens to is parsed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

from flowfabric.errors import InvalidInput
from flowfabric.model.record import Record, from_json

_BITS_MIN: Final = 2_048
_BITS_MAX: Final = 8_192
_EXPONENT_MAX: Final = (1 << 32) - 1
_TOKEN_BYTES: Final = 65_536
_LEEWAY_S: Final = 60  # between the clock of the provider and that of the store
_SUBJECT_BYTES: Final = 255
# DigestInfo of SHA-256 in DER, before the digest itself.
_SHA256: Final = bytes.fromhex("3031300d060960864801650304020105000420")


class BadToken(Exception):
    """It proves nothing. The text says why, and nothing of the token."""


class RsaKey(Record, frozen=True):
    """A public key of a provider."""

    modulus: int
    exponent: int


class Expected(Record, frozen=True):
    """What an ID token must say."""

    issuer: str
    client_id: str
    nonce: str
    now_s: float


def rsa_keys(document: object) -> dict[str, RsaKey]:
    """The keys of a JWKS document that may sign, by their `kid`; one without has an empty one."""
    several = document.get("keys") if isinstance(document, Mapping) else None
    found = {}
    for each in several if isinstance(several, list) else ():
        if not isinstance(each, Mapping) or each.get("kty") != "RSA":
            continue
        if each.get("use", "sig") != "sig" or each.get("alg", "RS256") != "RS256":
            continue
        try:
            key = RsaKey(_number(each.get("n")), _number(each.get("e")))
        except BadToken:
            continue
        kid = each.get("kid", "")
        if isinstance(kid, str) and _is_sound(key):
            found[kid] = key
    return found


def _is_sound(key: RsaKey) -> bool:
    bits = key.modulus.bit_length()
    is_exponent = 3 <= key.exponent <= _EXPONENT_MAX and key.exponent % 2 == 1
    return _BITS_MIN <= bits <= _BITS_MAX and key.modulus % 2 == 1 and is_exponent


def verify_rs256(key: RsaKey, message: bytes, signature: bytes) -> bool:
    """Whether the owner of the key signed the message."""
    size = (key.modulus.bit_length() + 7) // 8
    number = int.from_bytes(signature)
    if len(signature) != size or number >= key.modulus:
        return False
    block = pow(number, key.exponent, key.modulus).to_bytes(size)
    ending = b"\x00" + _SHA256 + hashlib.sha256(message).digest()
    expected = b"\x00\x01" + b"\xff" * (size - 2 - len(ending)) + ending
    return hmac.compare_digest(block, expected)


def key_id(token: str) -> str:
    """The name of the key that a token says it is signed with."""
    kid = _head(_parts(token)[0]).get("kid", "")
    if not isinstance(kid, str):
        raise BadToken("the name of its key is no text")
    return kid


def read_token(token: str, key: RsaKey, expected: Expected) -> Mapping[str, Any]:
    """What a token says, once all of it is proved."""
    head, body, signature = _parts(token)
    _head(head)
    if not verify_rs256(key, f"{head}.{body}".encode("ascii"), _bytes(signature)):
        raise BadToken("its signature is wrong")
    claims = _object(body)
    _check(claims, expected)
    return claims


def _check(claims: Mapping[str, Any], expected: Expected) -> None:
    if claims.get("iss") != expected.issuer:
        raise BadToken("it is of another issuer")
    audience = claims.get("aud")
    several = audience if isinstance(audience, list) else [audience]
    if expected.client_id not in several:
        raise BadToken("it is for another client")
    if (len(several) > 1 or "azp" in claims) and claims.get("azp") != expected.client_id:
        raise BadToken("it was asked for by another client")
    if _instant(claims, "exp") <= expected.now_s - _LEEWAY_S:
        raise BadToken("it is over")
    for name in ("iat", "nbf"):
        if name in claims and _instant(claims, name) > expected.now_s + _LEEWAY_S:
            raise BadToken("it is not good yet")
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not _is_same(nonce, expected.nonce):
        raise BadToken("it belongs to another login")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject.encode()) <= _SUBJECT_BYTES:
        raise BadToken("it names no person")


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def _instant(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadToken(f"{name} is no instant")
    return value


# --- parts ---------------------------------------------------------------------------------------


def _parts(token: str) -> tuple[str, str, str]:
    parts = token.split(".") if len(token) <= _TOKEN_BYTES and token.isascii() else []
    if len(parts) != 3:
        raise BadToken("it is no signed token")
    return parts[0], parts[1], parts[2]


def _head(text: str) -> Mapping[str, Any]:
    head = _object(text)
    if head.get("alg") != "RS256" or "crit" in head:
        raise BadToken("it is not signed by RS256")
    return head


def _object(text: str) -> Mapping[str, Any]:
    try:
        return from_json(_bytes(text), dict[str, Any], field="token")
    except (InvalidInput, RecursionError):
        pass
    raise BadToken("a part of it is no object")


def _number(text: object) -> int:
    if not isinstance(text, str):
        raise BadToken("a key has no number")
    return int.from_bytes(_bytes(text))


def _bytes(text: str) -> bytes:
    """Base64 for URLs, without padding and nothing else in it."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not raw or base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii") != text:
        raise BadToken("a part of it is not Base64")
    return raw
