"""What the table of routes costs beside Starlette's routing and a bare ASGI function, in one run.

Each answers the same submit of a small JSON body in this process, without a socket: the request is
read with msgspec, and its field is answered. Rounds are interleaved, so that a busy machine slows
all of them alike. CPU time of the process is what is measured.

    python -m benchmarks.routing            medians of 30 rounds of 2,000 requests
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from flowfabric.server.routes.all import ROUTES
from flowfabric.server.routes.table import RouteTable

ROUNDS: Final = 30
REQUESTS: Final = 2_000
BODY: Final = (
    b'{"execution_kind": "work", "input": {"a": 1, "b": "two", "c": [3, 4]}, "priority": 7}'
)
SUBMIT: Final = ("POST", "/v1/executions")
READ: Final = ("GET", "/v1/executions/17.0193a1f0-0000-7000-8000-000000000000/attempts")
App = Callable[[Any, Any, Any], Awaitable[None]]


class New(msgspec.Struct):
    """A submit."""

    execution_kind: str
    input: msgspec.Raw = msgspec.Raw(b"null")
    priority: int = 0


_READER: Final = msgspec.json.Decoder(New)


def answered(method: str, body: bytes) -> bytes:
    """What every one of them does with a request."""
    if method == "GET":
        return b'{"items": []}'
    return msgspec.json.encode({"kind": _READER.decode(body).execution_kind})


async def body_of(receive: Any) -> bytes:
    """The whole body."""
    found = b""
    while True:
        message = await receive()
        found += message.get("body", b"")
        if not message.get("more_body", False):
            return found


async def write(send: Any, body: bytes) -> None:
    """An answer in two messages."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def bare() -> App:
    """Without any routing."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = await body_of(receive) if scope["method"] == "POST" else b""
        await write(send, answered(scope["method"], body))

    return app


def table() -> App:
    """By the server's own table of routes."""
    found = RouteTable(ROUTES)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.find(scope["method"], scope["raw_path"])
        body = await body_of(receive) if scope["method"] == "POST" else b""
        await write(send, answered(scope["method"], body))

    return app


def starlette() -> App:
    """The same routes by Starlette's router, in the same order, with its requests and answers."""
    from starlette.responses import Response
    from starlette.routing import Route, Router

    async def endpoint(request: Any) -> Response:
        body = await request.body() if request.method == "POST" else b""
        return Response(answered(request.method, body), media_type="application/json")

    return Router([Route(each.path, endpoint, methods=[each.method]) for each in ROUTES])


async def spent(app: App, method: str, path: str) -> float:
    """CPU seconds of a round."""
    message = {"type": "http.request", "body": BODY if method == "POST" else b""}

    async def receive() -> Any:
        return message

    async def send(_: Any) -> None:
        return

    began = time.process_time()
    for _ in range(REQUESTS):
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }
        await app(scope, receive, send)
    return time.process_time() - began


async def measured() -> dict[str, dict[str, float]]:
    """Microseconds for each request, by kind of request and by what answers it."""
    apps = {"bare": bare(), "table": table(), "starlette": starlette()}
    found: dict[str, dict[str, float]] = {}
    for name, (method, path) in {"submit": SUBMIT, "read": READ}.items():
        rounds: dict[str, list[float]] = {each: [] for each in apps}
        for _ in range(ROUNDS):
            for each, app in apps.items():
                rounds[each].append(await spent(app, method, path))
        found[name] = {
            each: statistics.median(several) / REQUESTS * 1e6 for each, several in rounds.items()
        }
    return found


def main() -> None:
    """A line for each."""
    for name, several in asyncio.run(measured()).items():
        for each, us in several.items():
            ratio = us / several["bare"]
            sys.stdout.write(f"{name:8}{each:12}{us:8.1f} us{ratio:8.2f} x bare\n")


if __name__ == "__main__":
    main()
