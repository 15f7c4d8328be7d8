"""Requests to a server's application without a socket, for tests of what it answers."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from flowfabric.api.backend import EngineBackend
from flowfabric.server.access.guard import Guard
from flowfabric.server.app import Application
from flowfabric.server.routes.all import ALL_ROUTES
from flowfabric.server.service import Service
from flowfabric.server.settings import ServerSettings
from tests.support.contract import answer_faults, template_of

NOTHING: Any = object()


class Reply:
    """An answer: its status, headers and body."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.sent = body
        self.body = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"Reply({self.status}, {self.body[:2000]!r})"


class Desk:
    """A server in this process, asked as by a client. Each answer must be in its document."""

    def __init__(self, engine: EngineBackend, guard: Guard | None = None, **settings: Any) -> None:
        self.service = Service(engine, ServerSettings(**settings), guard)
        self.service.guard.start()
        self.app = Application(self.service, ALL_ROUTES)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = NOTHING,
        *,
        headers: Mapping[str, str] | None = None,
        parts: list[bytes] | None = None,
    ) -> Reply:
        """One request; `parts`: a body as it arrives."""
        given = {"host": "localhost", **{k.lower(): v for k, v in (headers or {}).items()}}
        if body is not NOTHING:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            given.setdefault("content-type", "application/json")
            given.setdefault("content-length", str(len(data)))
            parts = [data]
        return await self.send(method, path, list(given.items()), parts or [b""])

    async def send(
        self, method: str, target: str, headers: list[tuple[str, str]], parts: list[bytes]
    ) -> Reply:
        path, _, query = target.partition("?")
        incoming = list(parts)
        told: dict[str, Any] = {"body": b""}

        async def receive() -> dict[str, Any]:
            if incoming:
                part = incoming.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(incoming)}
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
                told["headers"] = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                told["body"] += message.get("body", b"")

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers],
            "client": ("127.0.0.1", 1),
        }
        await self.app(scope, receive, send)
        reply = Reply(told["status"], told["headers"], told["body"])
        if path == "/" or path.startswith("/ui"):  # for people: no part of the document
            return reply
        faults = answer_faults(
            method, template_of(method, target), reply.status, reply.headers, reply.body
        )
        assert not faults, (faults, reply)
        return reply

    async def get(self, path: str, **more: Any) -> Reply:
        return await self.ask("GET", path, **more)

    async def post(self, path: str, body: Any = NOTHING, **more: Any) -> Reply:
        return await self.ask("POST", path, body, **more)

    async def patch(self, path: str, body: Any = NOTHING, **more: Any) -> Reply:
        return await self.ask("PATCH", path, body, **more)

    async def created(
        self, kind: str = "work", *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> str:
        """The path form of a new execution's id."""
        new = {"execution_kind": kind, **fields}
        made = await self.post("/v1/executions", new, headers=headers)
        assert made.status == 201, made
        return made.headers["location"].rpartition("/")[2]


def escaped(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="")
