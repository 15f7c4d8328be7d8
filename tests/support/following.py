"""A client of a stream of events, in the process of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tests.support.http import Desk


class Happened:
    """One event as a browser would hand it over."""

    def __init__(self, block: bytes) -> None:
        self.name = "message"
        self.id: str | None = None
        self.data: Any = None
        for line in block.decode().split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                self.name = value
            elif field == "id":
                self.id = value
            elif field == "data":
                self.data = json.loads(value)


class Follower:
    """Follows a path. What it has read is in `events`; with `takes` off it takes nothing."""

    def __init__(self, desk: Desk, path: str, after: str | None = None) -> None:
        self._desk = desk
        self._path, _, self._query = path.partition("?")
        self._after = after
        self._gone = asyncio.Event()
        self._came = asyncio.Event()
        self.takes = asyncio.Event()
        self.takes.set()
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.events: list[Happened] = []
        self.last_id = after
        self.beats = 0
        self._rest = b""
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        headers = [(b"host", b"localhost"), (b"accept", b"text/event-stream")]
        if self._after is not None:
            headers.append((b"last-event-id", self._after.encode()))
        scope = {
            "type": "http",
            "method": "GET",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": self._query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }
        await self._desk.app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.takes.wait()
        if self._gone.is_set():
            return  # a broken connection takes everything and hands over nothing
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        self._rest += message.get("body", b"")
        *blocks, self._rest = self._rest.split(b"\n\n")
        if self.status == 200:
            for block in blocks:
                self._take(Happened(block), block)
        self._came.set()

    def _take(self, happened: Happened, block: bytes) -> None:
        if happened.id is not None:
            self.last_id = happened.id
        if happened.data is not None:
            self.events.append(happened)
        elif block.startswith(b":"):
            self.beats += 1

    async def until(self, count: int) -> list[Happened]:
        """The events, once there are so many."""
        while len(self.events) < count:
            self._came.clear()
            assert not self._task.done(), (self.status, self._rest, self.events)
            came = asyncio.ensure_future(self._came.wait())
            await asyncio.wait((came, self._task), return_when=asyncio.FIRST_COMPLETED)
            came.cancel()
        return self.events

    async def ended(self) -> list[Happened]:
        """All events, once the server has ended the stream."""
        await self._task
        return self.events

    async def answered(self) -> Any:
        """The body of an answer that is no stream."""
        await self._task
        return json.loads(self._rest) if self._rest else None

    async def leave(self) -> None:
        """The connection breaks."""
        self._gone.set()
        self.takes.set()
        with suppress(asyncio.CancelledError):
            await self._task
