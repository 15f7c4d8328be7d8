"""Connections that are used again and again, the warmest first.

asyncpg has a pool, but there each use costs a task, a proxy and two turns of the event loop, a
tenth of what a small commit takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from flowfabric.clock import monotonic

IDLE_S_MAX = 300.0  # firewalls forget connections that nobody uses
CLOSE_S_MAX = 5.0


class Connections:
    """Up to `size` connections, made when they are needed."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], size: int) -> None:
        self._connect = connect
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._idle: list[tuple[Any, float]] = []  # with the time of the last use, oldest first
        self._used: set[Any] = set()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """A connection of one's own for a while."""
        async with self._free:
            connection = self._warmest() or await self._connect()
            self._used.add(connection)
            try:
                yield connection
            except Exception:
                raise
            except BaseException:  # cut off in the middle: who knows what it still waits for
                connection.terminate()
                raise
            finally:
                self._used.discard(connection)
                self._keep(connection)

    def _warmest(self) -> Any:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _keep(self, connection: Any) -> None:
        now = monotonic()
        if not connection.is_closed():
            self._idle.append((connection, now))
        while self._idle and self._idle[0][1] < now - IDLE_S_MAX:
            self._idle.pop(0)[0].terminate()

    async def close(self) -> None:
        """Wait for those in use, then hang up; what takes too long is cut off."""
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                for _ in range(self._size):
                    await self._free.acquire()
                while (connection := self._warmest()) is not None:
                    self._used.add(connection)
                    await connection.close()
                    self._used.discard(connection)
        finally:
            for connection in (*self._used, *(each for each, _ in self._idle)):
                connection.terminate()
