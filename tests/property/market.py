"""A database of a program's own beside the store, in which steps write rows in transactions."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from flowfabric.stores.callers.receipts import receipts_sql


class Fate(Protocol):
    """When a worker dies."""

    async def point(self) -> None:
        """Go on, or never again."""
        ...


class Mortal(asyncpg.Connection):  # type: ignore[misc]
    """A connection of a worker that may die before and after its commits."""

    fate: Fate

    async def execute(self, query: str, *args: Any, **more: Any) -> str:
        """As any other."""
        if not query.startswith("COMMIT"):
            return str(await super().execute(query, *args, **more))
        try:
            await Mortal.fate.point()
            done = str(await super().execute(query, *args, **more))
            await Mortal.fate.point()
        except asyncio.CancelledError:
            self.terminate()  # it goes with its process
            raise
        return done


class Server:
    """In the database of the store."""

    is_async = True

    def __init__(self, url: str) -> None:
        self._url = url
        self.pool: Any = None

    async def open(self) -> None:
        """A table."""
        self.pool = await asyncpg.create_pool(
            self._url, min_size=0, max_size=8, connection_class=Mortal
        )
        await self.pool.execute("DROP TABLE IF EXISTS sold")
        await self.pool.execute("CREATE TABLE sold (word text)")

    async def close(self) -> None:
        """The database is used again."""
        await self.pool.execute("DROP TABLE sold")
        await self.pool.close()

    async def words(self) -> list[str]:
        """What was sold; it is forgotten then."""
        return [row[0] for row in await self.pool.fetch("DELETE FROM sold RETURNING word")]


class File:
    """A file of SQLite, with receipts."""

    is_async = False

    def __init__(self, path: Path) -> None:
        self._path = path

    def pool(self) -> sqlite3.Connection:
        """A new connection."""
        connection = sqlite3.connect(self._path)
        connection.execute("PRAGMA synchronous = off")
        return connection

    async def open(self) -> None:
        """The tables."""
        with self.pool() as connection:
            connection.execute("CREATE TABLE sold (word text)")
            connection.execute(receipts_sql("sqlite"))

    async def close(self) -> None:
        """Nothing is left open."""

    async def words(self) -> list[str]:
        """What was sold; it is forgotten then."""
        with self.pool() as connection:
            return [row[0] for row in connection.execute("DELETE FROM sold RETURNING word")]


Market = Server | File
