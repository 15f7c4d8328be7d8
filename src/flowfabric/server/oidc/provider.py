"""The identity provider: where people sign in, and what it says of them.

Its answers are bounded, none is followed elsewhere, and nothing of them is shown or logged.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

from flowfabric.clock import monotonic
from flowfabric.errors import InvalidInput
from flowfabric.model.record import Record, from_json
from flowfabric.server.addresses import is_safe
from flowfabric.server.oidc.jwt import BadToken, Expected, RsaKey, key_id, read_token, rsa_keys

_LOGGER: Final = logging.getLogger("flowfabric.server")
_KEPT_S: Final = 3_600.0
_AGAIN_S: Final = 60.0  # an unknown key makes it ask again, no more often than this
_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES: Final = 262_144
_GROUPS_MAX: Final = 1_000
_NAME_BYTES: Final = 255


class NoLogin(Exception):
    """The provider has not proved who the person is. The text is ours."""


class Fetched(Record, frozen=True):
    """An answer of the provider, not longer than it may be."""

    status: int
    body: bytes


class Fetch(Protocol):
    """Asks the provider."""

    async def __call__(
        self, url: str, *, form: bytes | None, headers: Mapping[str, str]
    ) -> Fetched:
        """The answer; `NoLogin` if there is none, or one that is too long."""
        ...


class Client(Record, frozen=True):
    """This server, as the provider knows it."""

    issuer: str
    client_id: str
    secret_file: str | None
    redirect: str
    name_claim: str
    groups_claim: str

    def __repr__(self) -> str:
        return f"Client({self.issuer!r})"


class Person(Record, frozen=True):
    """A person that the provider vouches for."""

    name: str
    groups: tuple[str, ...]


class _Endpoints(Record, frozen=True):
    authorization: str
    token: str
    keys: str


class Provider:
    """One issuer. What it says of itself and its keys is kept for an hour."""

    def __init__(
        self, client: Client, fetch: Fetch, *, now: Callable[[], float] = monotonic
    ) -> None:
        self._client = client
        self._fetch = fetch
        self._now = now
        self._endpoints: _Endpoints | None = None
        self._until = 0.0
        self._keys: Mapping[str, RsaKey] = {}
        self._keys_at: float | None = None
        self._asking = asyncio.Lock()

    async def address(self, *, state: str, nonce: str, challenge: str) -> str:
        """Where a browser is sent to sign in."""
        endpoints = await self._found()
        query = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self._client.redirect,
            "scope": "openid profile email",
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        separator = "&" if "?" in endpoints.authorization else "?"
        return f"{endpoints.authorization}{separator}{urlencode(query)}"

    async def person(self, *, code: str, verifier: str, nonce: str, now_s: float) -> Person:
        """The person of a code, which is good once."""
        endpoints = await self._found()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._client.redirect,
            "client_id": self._client.client_id,
            "code_verifier": verifier,
        }
        told = await self._json(endpoints.token, urlencode(form).encode(), self._proof())
        token = told.get("id_token")
        if not isinstance(token, str):
            raise NoLogin("its answer has no ID token")
        expected = Expected(self._client.issuer, self._client.client_id, nonce, now_s)
        try:
            claims = read_token(token, await self._key(key_id(token)), expected)
        except BadToken as error:
            raise NoLogin(f"its ID token is not good: {error}") from None
        return Person(self._name(claims), self._groups(claims))

    def _proof(self) -> Mapping[str, str]:
        """The secret of this client, where it has one: read anew, so that it can be replaced."""
        path = self._client.secret_file
        if path is None:
            return {}
        try:
            secret = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise NoLogin("the file with the secret of this client cannot be read") from None
        pair = f"{quote(self._client.client_id, safe='')}:{quote(secret, safe='')}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}

    def _name(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self._client.name_claim)
        is_text = isinstance(name, str) and name.isprintable() and name.strip() == name
        if not is_text or not 0 < len(str(name).encode()) <= _NAME_BYTES:
            raise NoLogin("the claim with the name of the person cannot be used")
        return str(name)

    def _groups(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        given = claims.get(self._client.groups_claim, [])
        several = given if isinstance(given, list) else [given]
        return tuple(each for each in several[:_GROUPS_MAX] if isinstance(each, str))

    # --- what it says of itself ----------------------------------------------------------------

    async def _found(self) -> _Endpoints:
        async with self._asking:
            if self._endpoints is None or self._now() >= self._until:
                self._endpoints = await self._discovered()
                self._until = self._now() + _KEPT_S
            return self._endpoints

    async def _discovered(self) -> _Endpoints:
        issuer = self._client.issuer
        told = await self._json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if told.get("issuer") != issuer:
            raise NoLogin("it says that it is another issuer")
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        addresses = [told.get(name) for name in names]
        if not all(isinstance(each, str) and is_safe(each) for each in addresses):
            raise NoLogin("it names an address that is not https")
        authorization, token, keys = map(str, addresses)
        return _Endpoints(authorization, token, keys)

    async def _key(self, kid: str) -> RsaKey:
        endpoints = await self._found()
        async with self._asking:
            age_s = None if self._keys_at is None else self._now() - self._keys_at
            is_old = age_s is None or age_s >= _KEPT_S
            if is_old or (kid not in self._keys and (age_s or 0) >= _AGAIN_S):
                self._keys = rsa_keys(await self._json(endpoints.keys))
                self._keys_at = self._now()
        if kid not in self._keys:
            raise NoLogin("its ID token is signed by a key that it does not name")
        return self._keys[kid]

    async def _json(
        self, url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        given = {"Accept": "application/json", **(headers or {})}
        fetched = await self._fetch(url, form=form, headers=given)
        if fetched.status != 200:
            raise NoLogin(f"it answered {fetched.status}")
        try:
            return from_json(fetched.body, dict[str, Any], field="answer")
        except (InvalidInput, RecursionError):
            pass
        raise NoLogin("its answer is no object")  # out here: no traceback carries it


async def fetch(url: str, *, form: bytes | None, headers: Mapping[str, str]) -> Fetched:
    """By aiohttp: bounded in time and size, and without following another address."""
    import aiohttp  # only such a server needs it

    sent = dict(headers)
    if form is not None:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    method = "GET" if form is None else "POST"
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                method, url, data=form, headers=sent, allow_redirects=False
            ) as response,
        ):
            body = await response.content.read(_ANSWER_BYTES + 1)
            while len(body) <= _ANSWER_BYTES and (more := await response.content.readany()):
                body += more
            if len(body) > _ANSWER_BYTES:
                raise NoLogin("its answer is too long")
            return Fetched(response.status, body)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        _LOGGER.warning("the identity provider cannot be reached: %s", type(error).__name__)
    raise NoLogin("it cannot be reached")
