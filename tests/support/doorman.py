"""A door before a PostgreSQL server that can turn callers away, as one that starts or is full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

WORDS = {
    "57P03": "the database system is starting up",
    "53300": "sorry, too many clients already",
}


class Doorman:
    """Lets connections through, or answers them with an SQLSTATE and hangs up."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.refusal: str | None = None
        self.refused = 0
        self.someone_was_refused = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self.url = ""

    @asynccontextmanager
    async def on_duty(self) -> AsyncIterator[Doorman]:
        """Until the context ends."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        login, name = self._parts.netloc.rpartition("@")[0], self._parts.path
        self.url = f"postgresql://{login}@127.0.0.1:{port}{name}?sslmode=disable"
        try:
            yield self
        finally:
            server.close()
            await self._leave()

    def cut_all(self) -> None:
        """End every connection, without a word."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _leave(self) -> None:
        """End every connection, also one that is only just let through: what is open when the event
        loop ends is found by the garbage collector in the middle of another test."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        self.cut_all()

    def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        task = asyncio.create_task(self._converse(reader, writer))
        self._answering.add(task)

        def end(_: Any) -> None:  # also if it is cancelled before its first step
            self._answering.discard(task)
            self._shut(writer)

        task.add_done_callback(end)

    def _shut(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        self._open.discard(writer)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if self.refusal is None:
                await self._pass_on(reader, writer)
            else:
                await self._refuse(self.refusal, reader, writer)

    async def _refuse(self, code: str, reader: Any, writer: Any) -> None:
        """The start-up message is read; an ErrorResponse is the answer."""
        length = int.from_bytes(await reader.readexactly(4))
        await reader.readexactly(length - 4)
        fields = {"S": "FATAL", "V": "FATAL", "C": code, "M": WORDS[code]}
        body = b"".join(f"{key}{text}".encode() + b"\0" for key, text in fields.items()) + b"\0"
        writer.write(b"E" + (len(body) + 4).to_bytes(4) + body)
        await writer.drain()
        self.refused += 1
        self.someone_was_refused.set()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        folder = parse_qs(self._parts.query).get("host")
        if folder:
            return await asyncio.open_unix_connection(f"{folder[0]}/.s.PGSQL.5432")
        host, port = self._parts.hostname or "localhost", self._parts.port or 5432
        return await asyncio.open_connection(host, port)

    async def _pass_on(self, reader: Any, writer: Any) -> None:
        inner_reader, inner_writer = await self._connect()
        self._open.add(inner_writer)
        try:
            pipes = [_pipe(reader, inner_writer), _pipe(inner_reader, writer)]
            await asyncio.gather(*pipes, return_exceptions=True)
        finally:  # a pipe that is cancelled before its first step closes nothing
            self._shut(inner_writer)


async def _pipe(source: Any, sink: Any) -> None:
    try:
        while chunk := await source.read(65_536):
            sink.write(chunk)
            await sink.drain()
    finally:
        sink.close()
