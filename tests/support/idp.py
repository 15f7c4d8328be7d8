"""An identity provider in this process: keys of its own, codes that are good once, ID tokens."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from random import Random
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from flowfabric.server.oidc.provider import Fetched

ISSUER: Final = "https://idp.example"
CLIENT: Final = "flowfabric"
_SMALL: Final = [
    number for number in range(3, 2_000) if all(number % each for each in range(2, 45))
]
_SHA256: Final = bytes.fromhex("3031300d060960864801650304020105000420")


def url64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _is_prime(number: int, random: Random) -> bool:
    if any(number % each == 0 for each in _SMALL):
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(12):
        power = pow(random.randrange(2, number - 1), odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def _prime(bits: int, random: Random) -> int:
    while True:
        number = random.getrandbits(bits) | 3 << (bits - 2) | 1
        if number % 65_537 != 1 and _is_prime(number, random):
            return number


class RsaPair:
    """A key with both of its halves, the same for the same seed."""

    def __init__(self, seed: int, bits: int = 2_048) -> None:
        random = Random(seed)
        one, other = _prime(bits // 2, random), _prime(bits // 2, random)
        self.modulus = one * other
        self.exponent = 65_537
        self._private = pow(self.exponent, -1, (one - 1) * (other - 1))

    @property
    def size(self) -> int:
        return (self.modulus.bit_length() + 7) // 8

    def open_to(self, block: bytes) -> bytes:
        """The signature that opens to this block."""
        return pow(int.from_bytes(block), self._private, self.modulus).to_bytes(self.size)

    def block(self, message: bytes, *, ending: bytes | None = None) -> bytes:
        told = b"\x00" + _SHA256 + hashlib.sha256(message).digest() if ending is None else ending
        return b"\x00\x01" + b"\xff" * (self.size - 2 - len(told)) + told

    def sign(self, message: bytes) -> bytes:
        return self.open_to(self.block(message))

    def jwk(self, kid: str) -> dict[str, str]:
        exponent = self.exponent.to_bytes(3)
        modulus = self.modulus.to_bytes(self.size)
        return {"kty": "RSA", "use": "sig", "kid": kid, "n": url64(modulus), "e": url64(exponent)}


class StubProvider:
    """Answers what a server asks. What a test changes in it is what goes wrong."""

    def __init__(self, now_s: float) -> None:
        self.pair = _pair(1)
        self.kid = "k1"
        self.head: dict[str, Any] = {"alg": "RS256", "typ": "JWT"}
        self.claims: dict[str, Any] = {}
        self.without: set[str] = set()
        self.now_s = now_s
        self.keys = {"keys": [self.pair.jwk("k1")]}
        self.document: dict[str, Any] = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize?tenant=1",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
        }
        self.asked: list[str] = []
        self.instead: dict[str, Fetched] = {}
        self.sent: list[tuple[dict[str, str], Mapping[str, str]]] = []
        self._codes: dict[str, dict[str, str]] = {}

    def consent(self, address: str) -> dict[str, str]:
        """A person signs in at this address: what the browser brings back."""
        query = dict(parse_qsl(urlsplit(address).query))
        assert (query["response_type"], query["client_id"]) == ("code", CLIENT)
        assert query["code_challenge_method"] == "S256"
        code = f"code-{len(self._codes)}"
        self._codes[code] = query
        return {"code": code, "state": query["state"]}

    async def fetch(self, url: str, *, form: bytes | None, headers: Mapping[str, str]) -> Fetched:
        path = url.removeprefix(ISSUER)
        self.asked.append(path)
        if path in self.instead:
            return self.instead[path]
        match path:
            case "/.well-known/openid-configuration":
                return _json(self.document)
            case "/keys":
                return _json(self.keys)
            case "/token":
                return self._token(dict(parse_qsl((form or b"").decode())), headers)
            case _:
                return Fetched(404, b"{}")

    def _token(self, form: dict[str, str], headers: Mapping[str, str]) -> Fetched:
        self.sent.append((form, headers))
        asked = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if asked is None or asked["code_challenge"] != url64(digest):
            return Fetched(400, b'{"error":"invalid_grant"}')
        assert form["redirect_uri"] == asked["redirect_uri"]
        return _json({"id_token": self.token(asked["nonce"]), "token_type": "Bearer"})

    def token(self, nonce: str) -> str:
        claims = {
            "iss": ISSUER,
            "aud": CLIENT,
            "sub": "ada",
            "iat": int(self.now_s),
            "exp": int(self.now_s) + 300,
            "nonce": nonce,
            "groups": ["staff", "ops"],
            **self.claims,
        }
        claims = {name: value for name, value in claims.items() if name not in self.without}
        head = url64(json.dumps({**self.head, "kid": self.kid}).encode())
        body = url64(json.dumps(claims).encode())
        return f"{head}.{body}.{url64(self.pair.sign(f'{head}.{body}'.encode()))}"


_PAIRS: dict[int, RsaPair] = {}


def _pair(seed: int) -> RsaPair:
    if seed not in _PAIRS:
        _PAIRS[seed] = RsaPair(seed)
    return _PAIRS[seed]


def pair(seed: int) -> RsaPair:
    """The key of a seed, made once in a process."""
    return _pair(seed)


def _json(value: object) -> Fetched:
    return Fetched(200, json.dumps(value).encode())
