"""A proxy between a client and a server that cuts, delays, truncates and stops forwarding."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

_PIECE = 65_536


class Proxy:
    """Forwards connections to one address, or to the next of several for each connection.

    `cut_after_s`: a connection is reset when no byte has come from the server for so long.
    `delay_s`: every piece comes so much later. `lose_answers`: of so many of the next answers
    nothing is passed on, and `truncate`: of so many only the first bytes.
    """

    def __init__(self, *addresses: str, cut_after_s: float | None = None) -> None:
        self._targets = [(urlsplit(each).hostname, urlsplit(each).port) for each in addresses]
        self.cut_after_s = cut_after_s
        self.delay_s = 0.0
        self.lose_answers = 0
        self.truncate = 0
        self.slow_s = 0.0  # each whole piece of a large request comes so much later
        self.marker = b""  # lose and truncate only answers to requests with this in them
        self.is_cut_off = False  # nothing is forwarded, and nobody is told
        self.cuts = 0
        self.taken = 0  # connections
        self._next = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def lead_to(self, *addresses: str) -> None:
        """Forward new connections elsewhere, and cut those there are."""
        self._targets = [(urlsplit(each).hostname, urlsplit(each).port) for each in addresses]
        self.drop_all()

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop_all()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def drop_all(self) -> None:
        """Cut every connection."""
        for each in self._tasks:
            each.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(reader, writer)
        except (asyncio.CancelledError, OSError, TimeoutError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._targets:  # one that does not answer is passed over, as balancers do
            host, port = self._targets[self._next % len(self._targets)]
            self._next += 1
            with suppress(OSError):
                there, back = await asyncio.open_connection(host, port)
                break
        else:
            return
        asked = bytearray()
        pumps = [
            asyncio.create_task(self._pump_up(reader, back, asked)),
            asyncio.create_task(self._pump_down(there, writer, asked)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            back.transport.abort()
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump_up(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, asked: bytearray
    ) -> None:
        while piece := await reader.read(_PIECE):
            await self._hold_back()
            if self.slow_s and len(piece) > _PIECE // 2:
                await asyncio.sleep(self.slow_s)
            if self.marker:
                asked += piece
            back.write(piece)
            await back.drain()

    async def _pump_down(
        self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytearray
    ) -> None:
        while True:
            try:
                async with asyncio.timeout(self.cut_after_s):
                    piece = await there.read(_PIECE)
            except TimeoutError:
                self.cuts += 1
                return
            if not piece:
                return
            await self._hold_back()
            is_meant = self.marker in asked
            asked.clear()
            if is_meant and self.lose_answers:
                self.lose_answers -= 1
                return
            if is_meant and self.truncate:
                self.truncate -= 1
                writer.write(piece[: len(piece) // 2])
                await writer.drain()
                return
            writer.write(piece)
            await writer.drain()

    async def _hold_back(self) -> None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        while self.is_cut_off:  # noqa: ASYNC110 - as a network does: without a word
            await asyncio.sleep(0.01)
