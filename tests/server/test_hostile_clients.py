"""Clients that send slowly, too much, or nothing: each costs its connection, for a while."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.server import connections
from flowfabric.server.access.guard import OpenGuard
from flowfabric.server.connections import Crowd
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings

IDLE: Final = int(os.environ.get("FF_IDLE_CONNECTIONS", "300"))
LIVE: Final = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
NEW: Final = (
    b"POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
_PATIENCE_S: Final = 20.0


class Line:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def rest(self) -> bytes:
        """All that comes until the server closes."""
        with suppress(ConnectionError):
            return await self.reader.read()
        return b""

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """One answer with a length."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split()[1]), headers, body

    async def is_refused(self) -> bool:
        with suppress(ConnectionError):
            return await self.reader.read() == b""
        return True


class Door:
    """A server in memory, and the connections to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._lines: list[Line] = []

    async def line(self) -> Line:
        port = int(self.server.address.rpartition(":")[2])
        self._lines.append(Line(*await asyncio.open_connection("127.0.0.1", port)))
        return self._lines[-1]

    async def close(self) -> None:
        for each in self._lines:
            each.writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def door(**settings: Any) -> AsyncIterator[Door]:
    engine = open_engine("memory://", config=EngineConfig(loops=False))
    wanted = ServerSettings(**{"bind": "127.0.0.1:0", **settings})
    async with engine, Server(engine, wanted, guard=OpenGuard()) as server:
        found = Door(server)
        try:
            async with asyncio.timeout(_PATIENCE_S * 3):
                yield found
        finally:
            await found.close()


def told(story: Callable[[Door], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with door(**settings) as found:
            await story(found)

    asyncio.run(main())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - what is looked at has no event of its own
        await asyncio.sleep(0.001)


def test_a_head_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.02)

    async def story(door: Door) -> None:
        slow = await door.line()
        slow.write(LIVE)
        assert await slow.rest() == b""

    told(story)


def test_a_body_that_comes_too_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_S", 0.02)

    async def story(door: Door) -> None:
        slow = await door.line()
        slow.write(NEW + b'Content-Length: 30\r\n\r\n{"exec')
        assert await slow.is_refused()
        await until(lambda: door.server.service.in_flight == 0)

    told(story)


def test_a_body_that_comes_at_its_pace_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_S", 0.01)
    monkeypatch.setattr(connections, "BODY_BYTES_PER_S", 1)

    async def story(door: Door) -> None:
        line = await door.line()
        body = b'{"execution_kind": "work"}'
        line.write(NEW + b"Content-Length: %d\r\n\r\n" % len(body))
        for each in body:
            line.write(bytes([each]))
            await asyncio.sleep(0.002)
        assert (await line.answer())[0] == 201

    told(story)


def test_a_connection_that_says_nothing_ends_as_an_idle_one_does() -> None:
    async def story(door: Door) -> None:
        silent = await door.line()
        assert await silent.rest() == b""

    told(story, keepalive_s=1)


@pytest.mark.parametrize(
    "head",
    [
        LIVE + b"X-Long: " + b"x" * 16_384 + b"\r\n\r\n",
        LIVE + b"".join(b"X-%d: 1\r\n" % each for each in range(100)) + b"\r\n",
        LIVE + b"X-Endless: " + b"x" * 400_000,
    ],
    ids=["long", "many", "endless"],
)
def test_headers_over_their_limit_are_431(head: bytes) -> None:
    async def story(door: Door) -> None:
        line = await door.line()
        line.write(head)
        status, headers, body = await line.answer()
        assert (status, json.loads(body)["code"]) == (431, "headers_too_large")
        assert headers["connection"] == "close"
        assert headers["x-request-id"] == json.loads(body)["request_id"]
        assert await line.is_refused()

    told(story)


def test_an_address_over_its_limit_is_414() -> None:
    async def story(door: Door) -> None:
        for target in (b"/v1/" + b"x" * 2_048, b"/livez?" + b"x" * 8_193):
            line = await door.line()
            line.write(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status, _, body = await line.answer()
            assert (status, json.loads(body)["code"]) == (414, "uri_too_long")

    told(story)


@pytest.mark.parametrize(
    "length",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: five\r\n",
        b"Content-Length: -1\r\n",
    ],
)
def test_a_length_that_is_wrong_or_said_twice_is_400_and_closed(length: bytes) -> None:
    async def story(door: Door) -> None:
        line = await door.line()
        line.write(NEW + length + b"\r\n{}{}{}")
        status, headers, body = await line.answer()
        assert (status, json.loads(body)["code"]) == (400, "malformed_request")
        assert headers["content-type"] == "application/problem+json"
        assert await line.is_refused()

    told(story)


def test_chunks_that_are_none_are_400_and_closed() -> None:
    async def story(door: Door) -> None:
        line = await door.line()
        line.write(NEW + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n")
        status, _, body = await line.answer()
        assert (status, json.loads(body)["code"]) == (400, "malformed_request")
        assert await line.is_refused()
        await until(lambda: door.server.service.in_flight == 0)

    told(story)


def test_requests_sent_at_once_are_answered_in_order() -> None:
    async def story(door: Door) -> None:
        line = await door.line()
        several = [b"X-Request-Id: r%d\r\n\r\n" % each for each in range(5)]
        line.write(b"".join(LIVE + each for each in several))
        ids = [(await line.answer())[1]["x-request-id"] for _ in several]
        assert ids == [f"r{each}" for each in range(5)]

    told(story)


def test_a_wait_ends_with_a_client_that_sends_no_more() -> None:
    async def story(door: Door) -> None:
        engine = door.server.service.engine
        made = await engine.create_execution(execution_kind="work")
        line = await door.line()
        path = f"/v1/executions/{made.execution_id[4:].replace('}:', '.')}/outcome?wait=25s"
        line.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await until(lambda: door.server.service.waits == 1)
        line.writer.write_eof()
        await until(lambda: door.server.service.waits == 0)

    told(story)


def test_connections_of_one_address_are_bounded() -> None:
    async def story(door: Door) -> None:
        first, second, third = [await door.line() for _ in range(3)]
        assert await third.is_refused()
        first.write(LIVE + b"Connection: close\r\n\r\n")
        assert (await first.rest()).startswith(b"HTTP/1.1 200")
        second.write(LIVE + b"\r\n")
        assert (await second.answer())[0] == 200
        fourth = await door.line()
        fourth.write(LIVE + b"\r\n")
        assert (await fourth.answer())[0] == 200

    told(story, connections_per_address=2)


def test_a_crowd_knows_its_proxies() -> None:
    settings = ServerSettings(
        connections_max=5, connections_per_address=1, trusted_proxies=("10.0.0.0/8", "proxy")
    )
    crowd = Crowd(settings)
    assert [crowd.enter("192.0.2.1"), crowd.enter("192.0.2.1")] == [True, False]
    assert all(crowd.enter(each) for each in ("10.1.1.1", "10.1.1.1", None, None))
    assert not crowd.enter("192.0.2.2")
    crowd.leave("192.0.2.1")
    assert crowd.enter("192.0.2.1")
    assert crowd.count == 5


def test_a_connection_of_some_age_ends_with_its_next_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(door: Door) -> None:
        young = await door.line()
        young.write(LIVE + b"\r\n")
        assert "connection" not in (await young.answer())[1]
        monkeypatch.setattr(connections, "AGE_S", 0.0)
        old = await door.line()
        old.write(LIVE + b"\r\n")
        assert (await old.answer())[1]["connection"] == "close"
        assert await old.is_refused()

    told(story)


def test_connections_end_at_ages_that_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter((0.0, 1.0))
    monkeypatch.setattr(connections, "jitter", lambda: next(drawn))

    async def story(door: Door) -> None:
        began = asyncio.get_running_loop().time()
        for _ in range(2):
            await (await door.line()).writer.drain()
        await until(lambda: len(door.server._uvicorn.server_state.connections) == 2)
        ages = sorted(
            each._ends_at - began for each in door.server._uvicorn.server_state.connections
        )
        assert ages == pytest.approx([240.0, 360.0], abs=5)

    told(story)


def test_idle_connections_leave_room_for_others() -> None:
    """300 of them here, thousands in a soak."""

    async def story(door: Door) -> None:
        for _ in range(IDLE):
            await door.line()
        line = await door.line()
        line.write(LIVE + b"\r\n")
        assert (await line.answer())[0] == 200

    told(story, connections_per_address=IDLE + 1)
