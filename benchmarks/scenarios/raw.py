"""Bare SQL on the engine's own schema, for floors and preloads: no rules, no engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from flowfabric.model.record import Record

Row = tuple[Any, ...]


class Column(Record, frozen=True):
    """How a table declares a column."""

    type: str
    default: str | None  # as SQL

    def is_filled_with(self, value: Any) -> bool:
        """Whether an insert that leaves the column out stores this value."""
        if self.default is None:
            return value is None
        return value is not None and self.default.split("::")[0].strip("'") == str(value)


class RawDatabase(Protocol):
    """One connection with the durability the store itself uses."""

    async def columns(self, table: str) -> dict[str, Column]:
        """The columns of a table by name, in order."""
        ...

    async def fetch(self, sql: str) -> list[Row]:
        """The rows of a query."""
        ...

    async def execute(self, sql: str) -> None:
        """One statement."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...


async def connect(url: str) -> SqliteDatabase | PostgresDatabase:
    """A raw connection to an existing database."""
    if urlsplit(url).scheme == "sqlite":
        return SqliteDatabase(unquote(urlsplit(url).path)[1:])
    return PostgresDatabase(await import_module("asyncpg").connect(url))


class SqliteDatabase:
    """WAL and synchronous=FULL, as the store's writer."""

    family = "sqlite"

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "cache_size = -65536",
            "journal_size_limit = 67108864",
        ):
            self._connection.execute(f"PRAGMA {pragma}")

    async def columns(self, table: str) -> dict[str, Column]:
        """From the table itself."""
        rows = self._connection.execute(f"PRAGMA table_info({table})").fetchall()
        return {row[1]: Column(row[2], row[4]) for row in rows}

    async def fetch(self, sql: str) -> list[Row]:
        """The rows of a query."""
        return self._connection.execute(sql).fetchall()

    async def execute(self, sql: str) -> None:
        """One statement."""
        self._connection.execute(sql)

    async def write(self, sql: str, rows: Sequence[Row]) -> None:
        """One prepared statement for many rows."""
        self._connection.executemany(sql, rows)

    async def close(self) -> None:
        """Hang up."""
        self._connection.close()


class PostgresDatabase:
    """An asyncpg connection with the server's own durability."""

    family = "postgres"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def columns(self, table: str) -> dict[str, Column]:
        """From the catalog."""
        rows = await self._connection.fetch(
            "SELECT attname, format_type(atttypid, atttypmod), pg_get_expr(adbin, adrelid) "
            "FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum "
            "WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum",
            table,
        )
        return {row[0]: Column(row[1], row[2]) for row in rows}

    async def fetch(self, sql: str) -> list[Row]:
        """The rows of a query."""
        return [tuple(row) for row in await self._connection.fetch(sql)]

    async def execute(self, sql: str) -> None:
        """One statement."""
        await self._connection.execute(sql)

    async def write(self, sql: str, arrays: Sequence[Any]) -> None:
        """One statement with an array per column."""
        await self._connection.fetch(sql, *arrays)

    async def close(self) -> None:
        """Hang up."""
        await self._connection.close()
