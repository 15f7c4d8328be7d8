"""Bare SQL on the engine's own schema, for floors and preloads: no rules, no engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

Row = tuple[Any, ...]


class RawDatabase(Protocol):
    """One connection with the durability the store itself uses."""

    async def columns(self, table: str) -> dict[str, str]:
        """Column names and SQL types of a table, in order."""
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

    async def columns(self, table: str) -> dict[str, str]:
        """From the table itself."""
        rows = self._connection.execute(f"PRAGMA table_info({table})").fetchall()
        return {row[1]: row[2] for row in rows}

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

    async def columns(self, table: str) -> dict[str, str]:
        """From the catalog."""
        rows = await self._connection.fetch(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = $1::text::regclass AND attnum > 0 ORDER BY attnum",
            table,
        )
        return {row[0]: row[1] for row in rows}

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
