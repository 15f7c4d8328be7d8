"""Who a request comes from: proved by its token, by the session of its browser, or by its coming
from this machine."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from flowfabric.api.access import Authenticate, ListAccessTokens
from flowfabric.api.backend import EngineBackend
from flowfabric.api.hints import ACCESS_TOPIC
from flowfabric.api.sessions import ReadSession
from flowfabric.clock import monotonic
from flowfabric.errors import InvalidInput, Unauthorized
from flowfabric.model.access import looks_like_token
from flowfabric.model.suspension import Token
from flowfabric.server.access.caller import (
    ANYBODY,
    UNGUARDED,
    Caller,
    caller_in,
    caller_with,
)
from flowfabric.server.access.grants import grants_of
from flowfabric.server.access.proxies import is_vouched_for
from flowfabric.server.access.rates import Rates
from flowfabric.server.access.sessions import text_of
from flowfabric.server.settings import ServerSettings

if TYPE_CHECKING:
    from flowfabric.server.exchange import Call

_KEPT_S: Final = 30.0  # so long a token is good here without another look
_LOOK_S: Final = 2.0  # so long a server without tokens believes that there is none
_KEPT: Final = 10_000
_SCHEME: Final = b"bearer "
_HEADER_BYTES: Final = 1_024
# Words of a query under which people try to send a token.
_WORDS: Final = frozenset(("token", "access_token", "api_key", "apikey", "authorization"))


class Guard(Protocol):
    """Tells callers apart."""

    def start(self) -> None:
        """The engine is there."""
        ...

    def stop(self) -> None:
        """The server ends."""
        ...

    async def has_tokens(self) -> bool:
        """Whether a token was ever made: else everything is open to this machine."""
        ...

    async def caller_of(self, call: Call) -> Caller:
        """What the request proves; `Unauthorized` if it claims more than it proves."""
        ...


class OpenGuard:
    """Nobody is asked for a token: the server listens on loopback only, and allows all there."""

    def start(self) -> None:
        """Nothing is to be heard."""

    def stop(self) -> None:
        """Likewise."""

    async def has_tokens(self) -> bool:
        """None counts."""
        return False

    async def caller_of(self, call: Call) -> Caller:
        """Everything."""
        return UNGUARDED


class _Known(NamedTuple):
    caller: Caller
    until: float


class TokenGuard:
    """Tells callers by their tokens and sessions. While no token was ever made, programs of this
    machine are allowed everything, and the server listens to no others.

    What the store said of one holds for 30 seconds, unless a hint tells that some have changed. No
    text is kept: what is remembered is found by a hash of it.
    """

    def __init__(
        self,
        engine: EngineBackend,
        rates: Rates,
        settings: ServerSettings,
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._engine = engine
        self._rates = rates
        self._settings = settings
        self._grants = grants_of(settings.oidc_groups)
        self._now = now
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._changes = 0
        self._has_tokens = False
        self._looked_at: float | None = None
        self._forget: Callable[[], None] | None = None

    def start(self) -> None:
        """Hear of revocations from now on."""
        if self._forget is None:
            self._forget = self._engine.follow(self._hear)

    def stop(self) -> None:
        """Hear no more."""
        if self._forget is not None:
            self._forget()
            self._forget = None

    def _hear(self, topics: Mapping[str, int]) -> None:
        if ACCESS_TOPIC in topics:
            self.forget()

    def forget(self) -> None:
        """Ask the store again for whatever is known."""
        self._changes += 1
        self._known.clear()
        self._looked_at = None

    async def has_tokens(self) -> bool:
        """Whether a token was ever made, or people sign in otherwise."""
        if self._has_tokens or self._settings.knows_people:
            return True
        now = self._now()
        if self._looked_at is None or now - self._looked_at >= _LOOK_S:
            page = await self._engine.call(ListAccessTokens(limit=1))
            self._has_tokens = bool(page.items)
            self._looked_at = now
        return self._has_tokens

    async def caller_of(self, call: Call) -> Caller:
        """By its header `Authorization`, else by its cookie."""
        given = call.all_headers(b"authorization")
        if not given:
            text = text_of(self._settings, call)
            found = None if text is None else await self._in_session(text, call.address)
            if found is not None and is_vouched_for(self._settings, call, found, self._grants):
                return found
            return ANYBODY if await self.has_tokens() else UNGUARDED
        value = given[0].strip()
        is_bearer = value[: len(_SCHEME)].lower() == _SCHEME
        if len(given) > 1 or len(value) > _HEADER_BYTES or not is_bearer:
            self._rates.failed(call.address)
            raise Unauthorized
        return await self._shown(value[len(_SCHEME) :].strip(), call.address)

    async def _in_session(self, text: str, address: str) -> Caller | None:
        """Whose session it is; None if it is over. Whoever has an old cookie is not guessing."""
        mark = _mark(b"session", text.encode("latin-1"))
        if (known := self._kept(mark)) is not None:
            return known
        self._rates.require_room(address)
        asked = self._changes
        try:
            session = await self._engine.call(ReadSession(text=Token(text)))
            caller = caller_in(session, self._grants)
        except Unauthorized:
            return None
        await self._keep(mark, caller, session.ends_at, asked)
        return caller

    def _kept(self, mark: bytes) -> Caller | None:
        known = self._known.get(mark)
        if known is not None and self._now() < known.until:
            return known.caller
        self._known.pop(mark, None)
        return None

    async def _keep(self, mark: bytes, caller: Caller, ends_at: int, asked: int) -> None:
        """Believe it for a while, unless a hint came since it was asked for: it may have ended."""
        now = self._now()
        life_s = (ends_at - await self._engine.server_time_ms()) / 1_000
        if asked == self._changes:
            self._known[mark] = _Known(caller, now + min(_KEPT_S, life_s))
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)

    async def _shown(self, text: bytes, address: str) -> Caller:
        mark = _mark(b"token", text)
        if (known := self._kept(mark)) is not None:
            return known
        self._rates.require_trials(address)
        asked = self._changes
        try:
            token = await self._engine.call(Authenticate(token=Token(text.decode("latin-1"))))
        except Unauthorized:
            self._rates.failed(address)
            raise
        caller = caller_with(token)
        await self._keep(mark, caller, token.expires_at, asked)
        return caller


def _mark(what: bytes, text: bytes) -> bytes:
    """By which a token or a session is remembered: its text is kept nowhere."""
    return hashlib.sha256(what + b" " + text).digest()


def refuse_in_address(call: Call) -> None:
    """A token in an address ends up in logs and histories: it is refused, so that nobody gets used
    to it."""
    query: bytes = call.scope.get("query_string", b"")
    path: bytes = call.scope.get("raw_path") or b""
    words = {part.partition(b"=")[0].lower().decode("latin-1") for part in query.split(b"&")}
    found = not _WORDS.isdisjoint(words)
    if not found and b"ff" in query + path:
        found = any(
            looks_like_token(unquote_to_bytes(each).decode("latin-1")) for each in (query, path)
        )
    if found:
        raise InvalidInput(
            "query: a token in an address would be written to logs and histories; send it as "
            "Authorization: Bearer",
            field="query",
        )
