"""Connections to one file, and the thread that writes."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from flowfabric.clock import monotonic
from flowfabric.errors import FlowFabricError, StoreError, StoreUnavailable
from flowfabric.stores.base import StoreConflict

T = TypeVar("T")

OLDEST_SQLITE = (3, 38, 0)  # STRICT tables, UPDATE FROM, the ->> operator
WAL_PAUSE_S = 0.01
BUSY_TIMEOUT_MS = 10_000  # how long a writer waits for writers of other processes


def connect(path: str, *, synchronous: str) -> sqlite3.Connection:
    """A connection in WAL mode; transactions are begun by hand."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnavailable(f"SQLite {sqlite3.sqlite_version} is older than {wanted}")
    try:
        if path != ":memory:":
            Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            path,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_MS / 1000,
            cached_statements=256,
        )
        _use_wal(connection)
        connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA journal_size_limit = 67108864")
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"cannot open {path}: {error}") from error
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait for others who switch the mode, or leave the file, at this moment."""
    give_up_at = monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or monotonic() >= give_up_at:
                raise
            time.sleep(WAL_PAUSE_S)


def translated(error: sqlite3.Error) -> Exception:
    """What a driver error means: run it again, or tell the caller."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreConflict(str(error))
    if isinstance(error, sqlite3.IntegrityError) and "UNIQUE" in str(error):
        return StoreConflict(str(error))
    if isinstance(error, sqlite3.OperationalError) and code in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
    ):
        return StoreUnavailable(str(error))
    return StoreError(f"{type(error).__name__}: {error}")


class WorkThread:
    """One thread with one connection; jobs run one after the other, callers await them."""

    def __init__(self, path: str, *, synchronous: str, name: str) -> None:
        self._path, self._synchronous = path, synchronous
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work` run in the thread; driver errors come back translated."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result = work(self._connected())
            except sqlite3.Error as error:
                self._answer(loop, _fail, future, translated(error))
            except (FlowFabricError, StoreConflict, Exception) as error:  # noqa: BLE001
                self._answer(loop, _fail, future, error)
            else:
                self._answer(loop, _finish, future, result)

        self._jobs.put(job)
        return await future

    @staticmethod
    def _answer(loop: asyncio.AbstractEventLoop, call: Any, future: Any, value: Any) -> None:
        try:
            loop.call_soon_threadsafe(call, future, value)
        except RuntimeError:  # the caller's loop is gone; nobody waits any more
            return

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path, synchronous=self._synchronous)
        return self._connection

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def close(self) -> None:
        """Finish the waiting jobs and end."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)


def _finish(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
