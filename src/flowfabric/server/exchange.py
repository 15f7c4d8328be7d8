"""One request, and the answer to it, as the routes see them."""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import cached_property, lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl

from flowfabric.errors import MalformedRequest, PayloadTooLarge, UnsupportedMediaType, UriTooLong
from flowfabric.model.audit import RequestOrigin
from flowfabric.server.access.caller import ANYBODY, Caller

if TYPE_CHECKING:
    from flowfabric.server.routes.route import Route

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON: Final = b"application/json"
PROBLEM: Final = b"application/problem+json"
_PARAMETERS: Final = 200  # one of them stands for each state, each tag
_GZIP_WORD: Final = 16 + zlib.MAX_WBITS
_DIGITS_MAX: Final = 18


class Gone(Exception):
    """The client is gone: there is nothing to answer."""


class Call:
    """A request: its parts as they are needed."""

    __slots__ = (
        "__dict__",
        "caller",
        "headers",
        "kept",
        "method",
        "params",
        "receive",
        "request_id",
        "route",
        "scope",
    )

    def __init__(self, scope: Scope, receive: Receive, request_id: str) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        # Of a repeated header the last counts here; where it matters `all_headers` is asked.
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.request_id = request_id
        self.params: Mapping[str, str] = {}
        self.caller: Caller = ANYBODY
        self.route: Route | None = None
        self.kept: bytes | None = None

    @property
    def row(self) -> Route:
        """Its route, which a handler is called for."""
        return cast("Route", self.route)

    def all_headers(self, name: bytes) -> list[bytes]:
        """Every value of a header."""
        return [value for key, value in self.scope["headers"] if key == name]

    def header(self, name: bytes) -> str | None:
        """One header as text."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @cached_property
    def query(self) -> list[tuple[str, str]]:
        """The parameters after the question mark, in order."""
        text = self.scope.get("query_string", b"").decode("latin-1")
        try:
            return (
                parse_qsl(text, True, max_num_fields=_PARAMETERS, errors="strict") if text else []
            )
        except UnicodeDecodeError:
            raise MalformedRequest("query: is not UTF-8", field="query") from None
        except ValueError:
            raise UriTooLong(f"query: more than {_PARAMETERS} parameters", field="query") from None

    def accepts(self, several: Iterable[str]) -> bool:
        """Whether the client takes one of these types."""
        given = self.headers.get(b"accept")
        if given is None or b"*/*" in given:
            return True
        wanted = set()
        for each in given.decode("latin-1").lower().split(","):
            media, _, options = each.partition(";")
            if options.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
                wanted.add(media.strip())
        for media in several:
            plain = media.partition(";")[0]
            if plain in wanted or f"{plain.partition('/')[0]}/*" in wanted:
                return True
        return False

    @property
    def address(self) -> str:
        """Where the connection comes from; empty for a socket without addresses."""
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def origin(self) -> RequestOrigin:
        """As the audit trail names the request."""
        caller = self.caller
        spaces = caller.namespaces or ()
        return RequestOrigin(
            actor=caller.actor or "",
            address=self.address,
            request_id=self.request_id,
            namespace=next(iter(spaces)) if len(spaces) == 1 else "",
        )

    @property
    def is_local(self) -> bool:
        """Whether it comes from a program of this machine, and not through a proxy."""
        if b"x-forwarded-for" in self.headers or b"forwarded" in self.headers:
            return False
        return not self.address or _is_loopback(self.address)

    async def kept_body(self, most: int) -> bytes:
        """The body, which can be read again."""
        self.kept = await self.body(most)
        return self.kept

    async def body(self, most: int) -> bytes:
        """The body, inflated; more than so many bytes are refused before they are read."""
        if self.kept is not None:
            return self.kept
        announced = self.headers.get(b"content-length")
        if announced is not None and _number(announced) > most:
            raise too_large(most)
        encoding = self.headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding == b"gzip":
            return await self._inflated(most)
        if encoding != b"identity":
            detail = "Content-Encoding: expected gzip or none"
            raise UnsupportedMediaType(detail, field="Content-Encoding")
        parts = []
        size = 0
        async for part in self._parts():
            size += len(part)
            if size > most:
                raise too_large(most)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _inflated(self, most: int) -> bytes:
        """Counted as it is inflated, so that a small body never becomes a large one."""
        inflater = zlib.decompressobj(_GZIP_WORD)
        whole = bytearray()
        try:
            async for part in self._parts():
                whole += inflater.decompress(part, most + 1 - len(whole))
                if len(whole) > most or inflater.unconsumed_tail:
                    raise too_large(most)
        except zlib.error:
            raise MalformedRequest("body: is not gzip", field="body") from None
        if not inflater.eof:
            raise MalformedRequest("body: the gzip stream is cut off", field="body")
        return bytes(whole)

    async def _parts(self) -> Any:
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            more = message.get("more_body", False)
            if part := message.get("body", b""):
                yield part

    async def until_gone(self) -> None:
        """Return when the client has closed the connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


@lru_cache(1_024)
def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _number(digits: bytes) -> float:
    """What a header announces; more than any limit where it is no number, or too long to read."""
    plain = digits.lstrip(b"0") or b"0"
    return int(plain) if digits.isdigit() and len(plain) <= _DIGITS_MAX else math.inf


def too_large(most: int) -> PayloadTooLarge:
    """The body is over the limit of its route."""
    return PayloadTooLarge(f"body: more than {most} bytes", field="body", limit_bytes=most)


class Answer:
    """What is sent back: a status, headers and a whole body."""

    __slots__ = ("body", "headers", "media", "status")

    def __init__(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        media: bytes = JSON,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.media = media
        self.headers = headers


class Streamed(ABC):
    """An answer that writes its parts itself, for as long as it lasts. It is closed in any case."""

    status: Final = 200
    media: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @abstractmethod
    async def write(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send the parts, one after the other."""

    @abstractmethod
    def close(self) -> None:
        """Nothing more is written."""
