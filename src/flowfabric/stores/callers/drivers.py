"""Connections of callers, whichever driver they belong to: begin, commit, roll back, and one
statement of our own.

A library is imported only where a connection of it is there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from flowfabric.callers import ASYNCPG, kinds_of
from flowfabric.errors import InvalidInput

Rows = Sequence[Any]
_SQL_BEGINS = "SELECT 1"  # psycopg begins with the first statement


class AsyncDriver(Protocol):
    """A connection of the running event loop, with one transaction."""

    connection: Any
    is_postgres: bool

    async def begin(self) -> None:
        """Begin it."""
        ...

    async def commit(self) -> None:
        """End it."""
        ...

    async def rollback(self) -> None:
        """Undo it."""
        ...

    async def close(self) -> None:
        """Close a connection that was made for it."""
        ...

    async def fetch(self, sql: str, *values: Any) -> Rows:
        """The rows of a statement with `{}` for its parameters."""
        ...

    def is_begun(self) -> bool:
        """Whether it is still open."""
        ...


class BlockingDriver(Protocol):
    """The same for code without asyncio."""

    connection: Any
    is_postgres: bool

    def begin(self) -> None:
        """Begin it."""
        ...

    def commit(self) -> None:
        """End it."""
        ...

    def rollback(self) -> None:
        """Undo it."""
        ...

    def close(self) -> None:
        """Close a connection that was made for it."""
        ...

    def fetch(self, sql: str, *values: Any) -> Rows:
        """The rows of a statement with `{}` for its parameters."""
        ...

    def is_begun(self) -> bool:
        """Whether it is still open."""
        ...


# --- on the event loop ---------------------------------------------------------------------------


class Asyncpg:
    """A connection of asyncpg."""

    is_postgres = True

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._transaction: Any = None

    async def begin(self) -> None:
        _refuse_open(self.is_begun())
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def close(self) -> None:
        await self.connection.close()

    async def fetch(self, sql: str, *values: Any) -> Rows:
        marked = sql.format(*(f"${number}" for number in range(1, len(values) + 1)))
        rows: Rows = await self.connection.fetch(marked, *values)
        return rows

    def is_begun(self) -> bool:
        return bool(self.connection.is_in_transaction())


class AsyncPsycopg:
    """An async connection of psycopg 3."""

    is_postgres = True

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def begin(self) -> None:
        _refuse_open(self.is_begun())
        begins = "BEGIN" if self.connection.autocommit else _SQL_BEGINS
        await self.connection.execute(begins)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()

    async def fetch(self, sql: str, *values: Any) -> Rows:
        from psycopg.rows import tuple_row

        async with self.connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(sql.format(*["%s"] * len(values)), values)
            rows: Rows = await cursor.fetchall()
            return rows

    def is_begun(self) -> bool:
        return bool(self.connection.info.transaction_status.name != "IDLE")


class AsyncAlchemy:
    """An async connection or session of SQLAlchemy 2."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.is_postgres = _dialect(connection) == "postgresql"

    async def begin(self) -> None:
        _refuse_open(self.is_begun())
        await self.fetch(_SQL_BEGINS)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()

    async def fetch(self, sql: str, *values: Any) -> Rows:
        text, named = _named(sql, values)
        rows: Rows = (await self.connection.execute(text, named)).fetchall()
        return rows

    def is_begun(self) -> bool:
        return bool(self.connection.in_transaction())


# --- blocking ------------------------------------------------------------------------------------


class Psycopg:
    """A blocking connection of psycopg 3."""

    is_postgres = True

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def begin(self) -> None:
        _refuse_open(self.is_begun())
        self.connection.execute("BEGIN" if self.connection.autocommit else _SQL_BEGINS)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()

    def fetch(self, sql: str, *values: Any) -> Rows:
        from psycopg.rows import tuple_row

        with self.connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(sql.format(*["%s"] * len(values)), values)
            rows: Rows = cursor.fetchall()
            return rows

    def is_begun(self) -> bool:
        return bool(self.connection.info.transaction_status.name != "IDLE")


class Alchemy:
    """A blocking connection or session of SQLAlchemy 2."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.is_postgres = _dialect(connection) == "postgresql"

    def begin(self) -> None:
        _refuse_open(self.is_begun())
        self.fetch(_SQL_BEGINS)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()

    def fetch(self, sql: str, *values: Any) -> Rows:
        text, named = _named(sql, values)
        rows: Rows = self.connection.execute(text, named).fetchall()
        return rows

    def is_begun(self) -> bool:
        return bool(self.connection.in_transaction())


class Sqlite:
    """A connection of sqlite3. It takes the write lock at once: a reader that writes later may be
    refused."""

    is_postgres = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def begin(self) -> None:
        if getattr(self.connection, "autocommit", None) is False:
            return  # then one is always open
        _refuse_open(self.is_begun())
        self.connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def close(self) -> None:
        self.connection.close()

    def fetch(self, sql: str, *values: Any) -> Rows:
        marked = sql.format(*["?"] * len(values))
        return [tuple(row) for row in self.connection.execute(marked, values)]

    def is_begun(self) -> bool:
        return bool(self.connection.in_transaction)


# --- which is which ------------------------------------------------------------------------------


def async_driver(connection: Any) -> AsyncDriver | None:
    """The driver of a connection of an event loop."""
    kinds = kinds_of(connection)
    if kinds & ASYNCPG:
        return Asyncpg(connection)
    if "psycopg.AsyncConnection" in kinds:
        return AsyncPsycopg(connection)
    if kinds & {"sqlalchemy.AsyncConnection", "sqlalchemy.AsyncSession"}:
        return AsyncAlchemy(connection)
    return None


def blocking_driver(connection: Any) -> BlockingDriver | None:
    """The driver of a connection of code without asyncio."""
    kinds = kinds_of(connection)
    if "psycopg.Connection" in kinds:
        return Psycopg(connection)
    if "sqlite3.Connection" in kinds:
        return Sqlite(connection)
    if kinds & {"sqlalchemy.Connection", "sqlalchemy.Session"}:
        return Alchemy(connection)
    return None


def _refuse_open(is_begun: bool) -> None:
    if is_begun:
        detail = "transaction: the connection has an open one; it must be begun and ended here"
        raise InvalidInput(detail, field="transaction")


def _dialect(connection: Any) -> str:
    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    name: str = bind.dialect.name
    if name not in ("postgresql", "sqlite"):
        detail = f"transaction: expected PostgreSQL or SQLite, got {name}"
        raise InvalidInput(detail, field="transaction")
    return name


def _named(sql: str, values: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    from sqlalchemy import text

    names = [f"p{number}" for number in range(len(values))]
    marked = sql.format(*(f":{name}" for name in names))
    return text(marked), dict(zip(names, values, strict=True))
