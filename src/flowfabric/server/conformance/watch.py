"""A server that writes down what a worker asks, and loses, delays or refuses answers on purpose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from flowfabric.clock import monotonic
from flowfabric.server.exchange import PROBLEM, Message, Receive, Scope, Send
from flowfabric.server.serve import Asgi

CLAIM: Final = "/v1/workers/claim"
STOPS: Final = "/v1/workers/stops"
REGISTER: Final = "/v1/workers/register"
COMMANDS: Final = "/v1/commands"


@dataclass(slots=True)
class Exchange:
    """One request of the worker, and what it was answered."""

    at: float
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    status: int | None = None  # None: it waits, or its answer was lost
    answer: Any = None
    is_over: bool = False
    ended_at: float = 0.0

    def items(self, word: str) -> list[dict[str, Any]]:
        """The commands of this type."""
        return [each for each in self.body.get("items", ()) if each.get("type") == word]


@dataclass(slots=True)
class Fault:
    """What happens to the next requests of a path, as often as `times` says.

    `status`: they are refused, and nothing is done. Else they are done and the answer is lost:
    the connection ends after half of it, or before its first byte.
    """

    path: str
    times: int = 1
    status: int = 0
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    is_half: bool = False
    only: Callable[[Exchange], bool] = lambda _: True
    met: int = 0
    last: Exchange | None = None

    def takes(self, exchange: Exchange) -> bool:
        """Whether this request is one of them."""
        if self.met >= self.times or self.path not in ("*", exchange.path):
            return False
        if not self.only(exchange):
            return False
        self.met += 1
        self.last = exchange
        return True


class Watch:
    """An application around another one."""

    def __init__(self, inner: Asgi, cut: Callable[[Scope], None]) -> None:
        self._inner = inner
        self._cut = cut
        self.exchanges: list[Exchange] = []
        self.faults: list[Fault] = []
        self.is_deaf = False  # every connection is cut at its first request
        self.changed = asyncio.Event()
        self.adds: dict[str, Any] = {}  # fields that every answer has besides its own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        if self.is_deaf:
            await self._gone(scope, receive)
            return
        body, again = await _taken(receive)
        exchange = Exchange(
            monotonic(), scope["method"], scope["path"], _headers(scope), _object(body)
        )
        self.exchanges.append(exchange)
        self._ring()
        fault = next((each for each in self.faults if each.takes(exchange)), None)
        try:
            if fault is not None and fault.status:
                await _refused(fault, exchange, send)
            else:
                await self._answered(scope, again, send, exchange, fault)
        finally:
            exchange.is_over, exchange.ended_at = True, monotonic()
            self._ring()

    async def _answered(
        self, scope: Scope, receive: Receive, send: Send, exchange: Exchange, fault: Fault | None
    ) -> None:
        told: list[Message] = []

        async def keep(message: Message) -> None:
            told.append(message)

        await self._inner(scope, receive, keep)
        if not told:
            return
        head, body = told[0], b"".join(each.get("body", b"") for each in told[1:])
        if fault is not None and not fault.is_half:
            await self._gone(scope, receive)
            return
        body = self._with_more(body)
        headers = [each for each in head["headers"] if each[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({**head, "headers": headers})
        if fault is not None:
            await send(_body(body[: len(body) // 2], more=True))
            await self._gone(scope, receive)
            return
        exchange.status, exchange.answer = head["status"], _value(body)
        await send(_body(body))

    async def _gone(self, scope: Scope, receive: Receive) -> None:
        """Cut the connection, and wait until it is."""
        self._cut(scope)
        while (await receive())["type"] != "http.disconnect":
            continue

    def _with_more(self, body: bytes) -> bytes:
        """Fields may join an answer later: a worker that stumbles over one is found here."""
        value = _value(body)
        if not self.adds or not isinstance(value, dict):
            return body
        for each in (value, *(one for one in value.get("items", ()) if isinstance(one, dict))):
            each.update(self.adds)
        return json.dumps(value).encode()

    def _ring(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def of(self, path: str) -> list[Exchange]:
        """The requests to a path so far."""
        return [each for each in self.exchanges if each.path == path]


async def _taken(receive: Receive) -> tuple[bytes, Receive]:
    """The whole body, and a way to receive it again."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = b"".join(parts)
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> MutableMapping[str, Any]:
        return left.pop() if left else await receive()

    return body, again


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _value(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _object(body: bytes) -> dict[str, Any]:
    value = _value(body)
    return value if isinstance(value, dict) else {}


async def _refused(fault: Fault, exchange: Exchange, send: Send) -> None:
    problem = {
        "type": f"urn:flowfabric:error:{fault.code}",
        "title": "A refusal made on purpose.",
        "status": fault.status,
        "code": fault.code,
        "detail": "made on purpose",
        "retryable": fault.status not in (401, 403),
        "request_id": "conformance",
        "errors": [],
    }
    body = json.dumps(problem).encode()
    exchange.status, exchange.answer = fault.status, problem
    headers = [
        (b"content-type", PROBLEM),
        (b"content-length", str(len(body)).encode()),
        *((name.encode(), value.encode()) for name, value in fault.headers.items()),
    ]
    await send({"type": "http.response.start", "status": fault.status, "headers": headers})
    await send(_body(body))


def _body(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
