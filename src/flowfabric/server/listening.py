"""The HTTP server of a process, as its owner needs it: no signals, and an end without a wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socket import socket
from typing import Final

import uvicorn

from flowfabric.clock import stopwatch

_TICKS: Final = 10  # as uvicorn counts: every tenth renews the Date header
_RENEWED_S: Final = 1.0
_GRACE_S: Final = 0.1  # for answers that are on their way at the end
_LOOK_S: Final = 0.001


class Listening(uvicorn.Server):
    """Ends when it is told to. Its base looks ten times a second whether it was told, and sleeps at
    its end however soon the last connection is closed."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program around it."""
        yield

    def leave(self) -> None:
        """Close the sockets now; what is still in flight is cut off."""
        self.should_exit = self.force_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        """Renew the Date header now and then, until told to leave."""
        count = 0
        while not await self.on_tick(count):
            count += _TICKS
            with suppress(TimeoutError):
                async with asyncio.timeout(_RENEWED_S):
                    await self._leaving.wait()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Close what listens and what is idle; the rest has a moment to end."""
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        deadline = stopwatch() + _GRACE_S
        while self.server_state.connections and stopwatch() < deadline:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(_LOOK_S)
        for server in self.servers:
            await server.wait_closed()
