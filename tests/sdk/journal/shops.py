"""Databases of a program's own, by every kind of pool: a table, and a function that adds to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import psycopg
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from flowfabric.stores.callers.receipts import receipts_sql
from tests.support.callers import sqlalchemy_url

ASYNC = ("asyncpg", "asyncpg function", "psycopg", "sqlalchemy")
BLOCKING = ("psycopg blocking", "sqlalchemy blocking")


class Shop(NamedTuple):
    """A database: where connections come from, and how a function uses one."""

    kind: str
    url: str
    pool: Any

    @property
    def is_async(self) -> bool:
        return self.kind in ASYNC

    def run(self, connection: Any, sql: str) -> Any:
        """One statement, by a connection of the shop; to be awaited if it is async."""
        if self.kind.startswith("sqlalchemy"):
            return connection.exec_driver_sql(sql)
        return connection.execute(sql)

    def seller(self, before: Callable[[], Any] | None = None) -> Any:
        """A function that adds a row, `before` which something may happen."""

        async def sell(connection: Any, n: int) -> str:
            await self.run(connection, f"INSERT INTO sold VALUES ({n})")
            if before is not None:
                await before()
            return f"sold {n}"

        def sell_blocking(connection: Any, n: int) -> str:
            self.run(connection, f"INSERT INTO sold VALUES ({n})")
            if before is not None:
                before()
            return f"sold {n}"

        return sell if self.is_async else sell_blocking

    async def open(self, *, receipts: bool = False) -> None:
        """The table, and that of receipts."""
        dialect = "sqlite" if self.kind == "sqlite" else "postgres"
        await self.ask("CREATE TABLE sold (n INT)")
        if receipts:
            await self.ask(receipts_sql(dialect))

    async def ask(self, sql: str) -> list[Any]:
        """The answer to a statement."""
        if self.kind == "sqlite":
            with sqlite3.connect(self.url) as connection:
                return [tuple(row) for row in connection.execute(sql)]
        mine: Any = await asyncpg.connect(self.url)
        try:
            return [tuple(row) for row in await mine.fetch(sql)]
        finally:
            await mine.close()

    async def sold(self) -> list[int]:
        """The rows."""
        return sorted(row[0] for row in await self.ask("SELECT n FROM sold"))

    async def close(self) -> None:
        """Whatever was opened; the database may be used again."""
        for table in ("sold", "ff_receipt"):
            await self.ask(f"DROP TABLE IF EXISTS {table}")
        if self.kind == "asyncpg":
            await self.pool.close()
        elif self.kind == "sqlalchemy":
            await self.pool.dispose()


async def shop(kind: str, url: str | Path, **more: Any) -> Shop:
    """In the running event loop."""
    where = str(url)
    pool: Any
    if kind == "asyncpg":
        pool = await asyncpg.create_pool(where, min_size=1, max_size=4, **more)
    elif kind == "asyncpg function":
        pool = lambda: asyncpg.connect(where)  # noqa: E731 - what a program would write
    elif kind == "psycopg":
        pool = lambda: psycopg.AsyncConnection.connect(where)  # noqa: E731 - the same
    elif kind == "sqlalchemy":
        pool = create_async_engine(sqlalchemy_url(where, "asyncpg"), poolclass=NullPool)
    elif kind == "psycopg blocking":
        pool = lambda: psycopg.connect(where)  # noqa: E731 - the same
    elif kind == "sqlalchemy blocking":
        pool = create_engine(sqlalchemy_url(where, "psycopg"), poolclass=NullPool)
    else:
        pool = lambda: sqlite3.connect(where)  # noqa: E731 - the same
    return Shop(kind, where, pool)
