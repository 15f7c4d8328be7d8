"""Connections that are used again and again, the last used first.

asyncpg has a pool, but there each use costs a task, a proxy and two turns of the event loop, a
tenth of the time of a small commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from flowfabric.callers import kinds_of
from flowfabric.clock import stopwatch
from flowfabric.errors import InvalidInput, StoreUnavailable
from flowfabric.stores.postgres.faults import DRIVER_ERRORS, fault

IDLE_S_MAX = 300.0  # firewalls drop idle connections
CLOSE_S_MAX = 5.0


class Connections:
    """Up to `size` connections, made when they are needed. No driver's error passes `one`."""

    def __init__(
        self, connect: Callable[[], Awaitable[Any]], size: int, *, acquire_timeout_s: float
    ) -> None:
        self._connect = connect
        self._size = size
        self._acquire_timeout_s = acquire_timeout_s
        self._free = asyncio.Semaphore(size)
        self._idle: list[tuple[Any, float]] = []  # with the time of the last use, oldest first
        self._used: set[Any] = set()
        self._is_over = False
        self.waited: Callable[[float], None] | None = None  # told of each use

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """Exclusive use of a connection."""
        await self._acquire()
        try:
            connection = self._warmest() or await self._new()
            self._used.add(connection)
            try:
                yield connection
            except DRIVER_ERRORS as error:
                raise _fault(error, connection) from error
            except Exception:
                raise
            except BaseException:  # cancelled halfway: its state is unknown
                connection.terminate()
                raise
            finally:
                self._used.discard(connection)
                self._keep(connection)
        finally:
            self._free.release()

    async def _acquire(self) -> None:
        if not self._free.locked():  # the common case needs no timer
            await self._free.acquire()
            if self.waited is not None:
                self.waited(0.0)
            return
        began = stopwatch()
        try:
            async with asyncio.timeout(self._acquire_timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"all {self._size} connections (pool_size) were in use for "
                f"{self._acquire_timeout_s:g} s (acquire_timeout_ms)"
            ) from None
        finally:
            if self.waited is not None:
                self.waited(stopwatch() - began)

    async def _new(self) -> Any:
        try:
            return await self._connect()
        except DRIVER_ERRORS as error:
            raise fault(error) from error

    def _warmest(self) -> Any:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _keep(self, connection: Any) -> None:
        if self._is_over:  # it was still being made when all others were closed
            connection.terminate()
            return
        now = stopwatch()
        if not connection.is_closed():
            self._idle.append((connection, now))
        while self._idle and self._idle[0][1] < now - IDLE_S_MAX:
            self._idle.pop(0)[0].terminate()

    async def close(self) -> None:
        """Wait for those in use, then close; a connection that takes too long is cut off."""
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                for _ in range(self._size):
                    await self._free.acquire()
                while (connection := self._warmest()) is not None:
                    self._used.add(connection)
                    await connection.close()
                    self._used.discard(connection)
        except DRIVER_ERRORS:
            return  # it is closed already, or is cut off below
        finally:
            self._is_over = True
            for connection in (*self._used, *(each for each, _ in self._idle)):
                connection.terminate()


class Borrowed:
    """The same over a pool of the program's own, which stays open when we close."""

    def __init__(self, pool: Any, *, acquire_timeout_s: float) -> None:
        if "asyncpg.Pool" not in kinds_of(pool):
            detail = f"pool: expected an asyncpg.Pool, got {type(pool).__name__}"
            raise InvalidInput(detail, field="pool")
        self._pool = pool
        self._acquire_timeout_s = acquire_timeout_s
        self.waited: Callable[[float], None] | None = None

    def check_loop(self) -> None:
        """Refuse a pool of another event loop: its calls would hang here."""
        if self._pool._loop is not asyncio.get_running_loop():  # there is no public way to ask
            detail = "pool: it belongs to another event loop; make the pool in this one"
            raise InvalidInput(detail, field="pool")

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """Use of a connection of the pool."""
        connection = await self._acquire()
        try:
            yield connection
        except DRIVER_ERRORS as error:
            raise _fault(error, connection) from error
        except Exception:
            raise
        except BaseException:  # cancelled halfway: its state is unknown
            connection.terminate()
            raise
        finally:
            with suppress(*DRIVER_ERRORS):  # the pool drops a connection it cannot reset
                await self._pool.release(connection)

    async def _acquire(self) -> Any:
        began = stopwatch()
        try:
            return await self._pool.acquire(timeout=self._acquire_timeout_s)
        except TimeoutError:
            raise StoreUnavailable(
                f"the pool had no free connection for {self._acquire_timeout_s:g} s "
                "(acquire_timeout_ms)"
            ) from None
        except DRIVER_ERRORS as error:
            raise fault(error) from error
        finally:
            if self.waited is not None:
                self.waited(stopwatch() - began)

    async def close(self) -> None:
        """Nothing to close: the pool is the program's."""


def _fault(error: BaseException, connection: Any) -> Exception:
    """A driver's error as one of ours. After one that is not the server's the connection's state is
    unknown: it is dropped."""
    is_closed = connection.is_closed()
    if not is_closed and not hasattr(error, "sqlstate"):
        connection.terminate()
    return fault(error, is_closed=is_closed)
