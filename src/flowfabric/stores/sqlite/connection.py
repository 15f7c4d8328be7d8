"""Connections to one file, and the thread that writes."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from flowfabric import forks
from flowfabric.clock import stopwatch
from flowfabric.errors import FlowFabricError, OutcomeUnknown, StoreUnavailable
from flowfabric.stores.base import StoreConflict
from flowfabric.stores.sqlite.faults import code_of, is_busy, translated
from flowfabric.stores.sqlite.place import Place
from flowfabric.stores.sqlite.text import standing_any_text

T = TypeVar("T")

OLDEST_SQLITE = (3, 38, 0)  # STRICT tables, UPDATE FROM, the ->> operator
WAL_PAUSE_S = 0.01
BUSY_TIMEOUT_MS = 10_000  # how long a writer waits for writers of other processes


def connect(place: Place, *, synchronous: str) -> sqlite3.Connection:
    """A connection in WAL mode; transactions are begun by hand."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnavailable(f"SQLite {sqlite3.sqlite_version} is older than {wanted}")
    connection: sqlite3.Connection | None = None
    try:
        place.prepare()
        connection = sqlite3.connect(
            place.path,
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
        place.remember()
    except (sqlite3.Error, OSError, FlowFabricError) as error:
        if connection is not None:
            close(connection)
        raise _unopened(error, place) from error
    return connection


def _unopened(error: Exception, place: Place) -> Exception:
    """An error after waiting for a lock: not a conflict to be run again."""
    if isinstance(error, sqlite3.Error):
        error = translated(error, place.path)
    if isinstance(error, OSError):  # whose own text would name the path again
        error = StoreUnavailable(f"cannot open {place.path}: {error.strerror or error}")
    if isinstance(error, StoreConflict):
        return StoreUnavailable(f"cannot open {place.path}: {error}")
    return error


def close(connection: sqlite3.Connection) -> None:
    """Close a connection, even a broken one."""
    with suppress(sqlite3.Error):
        connection.close()


def _use_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait for connections that switch the mode or close the file just now."""
    give_up_at = stopwatch() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or stopwatch() >= give_up_at:
                raise
            time.sleep(WAL_PAUSE_S)


def in_transaction(connection: sqlite3.Connection, place: Place, work: Callable[[], T]) -> T:
    """Work under the write lock, committed into the file at the path.

    The second check is for a file that was removed meanwhile: its commit is lost.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        place.check()
        result = work()
        _commit(connection)
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):  # the thread then drops the connection
                connection.execute("ROLLBACK")
        raise
    place.check()
    return result


def _commit(connection: sqlite3.Connection) -> None:
    """A flush that fails may have left the whole commit in the log: a later recovery would find it
    there."""
    try:
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if code_of(error) == sqlite3.SQLITE_IOERR:
            raise OutcomeUnknown(f"during the commit: {error}") from error
        raise


class WorkThread:
    """One thread with one connection; jobs run one after the other, callers await them."""

    def __init__(self, place: Place, *, synchronous: str, name: str) -> None:
        self._place, self._synchronous = place, synchronous
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._busy = threading.Lock()  # held during a job, and while the process forks
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        forks.pause_at_forks(self)

    async def call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work` run in the thread; driver errors come back translated."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result = standing_any_text(work, self._connected())
            except sqlite3.Error as error:
                self._answer(loop, _fail, future, translated(error, self._place.path))
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
        except RuntimeError:  # the caller's loop is closed: there is no waiter
            return

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._connection.in_transaction:
            self._disconnect()  # the last job could not even roll back
        if self._connection is None:
            self._connection = connect(self._place, synchronous=self._synchronous)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            close(self._connection)
            self._connection = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._busy:
                job()
        with self._busy:
            self._disconnect()

    def pause(self) -> None:
        """While this process forks, have no connection: a child that inherits one cannot open the
        file itself, because SQLite takes the parent's locks for its own."""
        self._busy.acquire()
        self._disconnect()

    def resume(self) -> None:
        """Continue; the next job connects again."""
        self._busy.release()

    async def close(self) -> None:
        """Finish the waiting jobs and end."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        forks.pause_no_more(self)


def _finish(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
