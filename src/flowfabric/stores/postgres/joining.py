"""Work inside a caller's own transaction, whichever driver its connection belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol

import asyncpg

from flowfabric.callers import ACCEPTED, ASYNCPG, driver_of, kinds_of, refused
from flowfabric.errors import ContentionError
from flowfabric.stores.base import StoreConflict
from flowfabric.stores.postgres.faults import DRIVER_ERRORS, fault

_SAVEPOINT: Final = "flowfabric"
# Which server, which of its databases, and which tables the search_path leads to.
WHERE: Final = (
    "SELECT extract(epoch FROM pg_postmaster_start_time())::text, oid::text, "
    "to_regclass('ff_exec_core')::oid::text FROM pg_database WHERE datname = current_database()"
)
_NO_TRANSACTION: Final = (
    "it has no open transaction; begin one, so that the work and your own rows commit together"
)
_ABORTED: Final = "its transaction is aborted; roll it back and begin again"
_INVISIBLE: Final = (
    "it does not see the tables of FlowFabric; connect it to the same database, with their schema "
    "in its search_path"
)
_REFUSALS: Final = {"25P02": _ABORTED, "42P01": _INVISIBLE, "3F000": _INVISIBLE}


class Joined(Protocol):
    """The methods that work needs of a connection it does not own."""

    def is_closed(self) -> bool:
        """Whether it is unusable."""
        ...

    async def fetch(self, sql: str, *values: Any) -> Sequence[Any]:
        """The rows of one statement with `$1` parameters."""
        ...

    async def copy_records_to_table(
        self, table: str, *, records: Iterable[Sequence[Any]], columns: Sequence[str]
    ) -> Any:
        """Many rows at once."""
        ...


@asynccontextmanager
async def joined(given: Any) -> AsyncIterator[Joined]:
    """A savepoint in the caller's transaction: a refusal leaves the rest of it alone."""
    connection: Joined | None = None
    try:
        connection = await _adapted(given)
        await connection.fetch(f"SAVEPOINT {_SAVEPOINT}")
        try:
            yield connection
        except BaseException:
            with suppress(Exception):  # the caller must see the first error
                await connection.fetch(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            raise
        await connection.fetch(f"RELEASE SAVEPOINT {_SAVEPOINT}")
    except StoreConflict as conflict:
        raise _run_again(conflict) from conflict
    except Exception as error:
        if not _is_driver_error(error):
            raise
        raise _typed(error, connection) from error


def _is_driver_error(error: Exception) -> bool:
    return isinstance(error, DRIVER_ERRORS) or "psycopg.Error" in kinds_of(error)


def _typed(error: Exception, connection: Joined | None) -> Exception:
    reason = _REFUSALS.get(getattr(error, "sqlstate", None) or "")
    if reason is not None:
        return refused(reason)
    problem = fault(error, is_closed=connection is None or _is_gone(connection))
    return _run_again(problem) if isinstance(problem, StoreConflict) else problem


def _is_gone(connection: Joined) -> bool:
    """Whether a connection is closed; one that died went back to its pool, and cannot be asked."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


def _run_again(conflict: StoreConflict) -> ContentionError:
    """The error for a conflict: only the caller can run its own transaction again."""
    return ContentionError(f"roll back and run your transaction again ({conflict})")


async def _adapted(given: Any) -> Joined:
    connection = await driver_of(given)
    kinds = kinds_of(connection)
    if kinds & ASYNCPG:
        return _checked_asyncpg(connection)
    if "psycopg.AsyncConnection" in kinds:
        return AsyncPsycopg(_checked_psycopg(connection))
    if "psycopg.Connection" in kinds:
        return BlockingPsycopg(_checked_psycopg(connection))
    raise refused(f"expected {ACCEPTED}; got {type(connection).__name__}")


def _checked_asyncpg(connection: Any) -> Joined:
    """asyncpg's own connection is all that is needed."""
    try:
        is_closed, is_begun = connection.is_closed(), connection.is_in_transaction()
        loop = connection._loop  # there is no public way to ask
    except asyncpg.InterfaceError:
        raise refused("it went back to its pool") from None
    if is_closed:
        raise refused("it is closed")
    if loop is not asyncio.get_running_loop():
        raise refused("it belongs to another event loop")
    if not is_begun:
        raise refused(_NO_TRANSACTION)
    own: Joined = connection
    return own


def _checked_psycopg(connection: Any) -> Any:
    """Without autocommit psycopg begins with the first statement, and the caller commits."""
    if connection.closed:
        raise refused("it is closed")
    status = connection.info.transaction_status.name
    if status == "INERROR":
        raise refused(_ABORTED)
    if status == "IDLE" and connection.autocommit:
        raise refused(_NO_TRANSACTION)
    return connection


class AsyncPsycopg:
    """A psycopg connection of this event loop."""

    def __init__(self, connection: Any) -> None:
        from psycopg import AsyncRawCursor
        from psycopg.rows import tuple_row

        self._connection = connection
        self._cursor: Callable[[], Any] = lambda: AsyncRawCursor(connection, row_factory=tuple_row)

    def is_closed(self) -> bool:
        return bool(self._connection.closed)

    async def fetch(self, sql: str, *values: Any) -> Sequence[Any]:
        async with self._cursor() as cursor:
            await cursor.execute(sql, values or None)
            return await cursor.fetchall() if cursor.description else ()

    async def copy_records_to_table(
        self, table: str, *, records: Iterable[Sequence[Any]], columns: Sequence[str]
    ) -> None:
        async with self._cursor() as cursor, cursor.copy(_copy(table, columns)) as copy:
            for record in records:
                await copy.write_row(record)


class BlockingPsycopg:
    """A psycopg connection of code without asyncio: used in a thread, so that it never blocks the
    event loop."""

    def __init__(self, connection: Any) -> None:
        from psycopg import RawCursor
        from psycopg.rows import tuple_row

        self._connection = connection
        self._cursor: Callable[[], Any] = lambda: RawCursor(connection, row_factory=tuple_row)

    def is_closed(self) -> bool:
        return bool(self._connection.closed)

    async def fetch(self, sql: str, *values: Any) -> Sequence[Any]:
        return await asyncio.to_thread(self._fetch, sql, values)

    def _fetch(self, sql: str, values: tuple[Any, ...]) -> Sequence[Any]:
        with self._cursor() as cursor:
            cursor.execute(sql, values or None)
            rows: Sequence[Any] = cursor.fetchall() if cursor.description else ()
            return rows

    async def copy_records_to_table(
        self, table: str, *, records: Iterable[Sequence[Any]], columns: Sequence[str]
    ) -> None:
        await asyncio.to_thread(self._copy, _copy(table, columns), records)

    def _copy(self, sql: str, records: Iterable[Sequence[Any]]) -> None:
        with self._cursor() as cursor, cursor.copy(sql) as copy:
            for record in records:
                copy.write_row(record)


def _copy(table: str, columns: Sequence[str]) -> str:
    return f"COPY {table} ({', '.join(columns)}) FROM STDIN"
