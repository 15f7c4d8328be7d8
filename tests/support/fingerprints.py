"""Whether anything stored has changed, told in a fraction of the time that a dump takes."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import asyncpg

from tests.support.lab import Lab

Fingerprint = Callable[[], Awaitable[object]]  # two that are equal: nothing was committed between
# Each transaction that writes gets a number when it begins to; this one is behind all that ended.
NEXT_NUMBER = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"


@asynccontextmanager
async def fingerprints(lab: Lab) -> AsyncIterator[Fingerprint]:
    """Takes fingerprints of a lab's store for as long as the block runs."""
    if lab.url == "memory://":
        yield lab.dump  # there the dump itself is cheap
    elif lab.url.startswith("sqlite"):
        path = lab.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None)) as beside:

            async def count() -> object:
                # Raised by each commit of another connection that changed anything, and by nothing
                # else: a rollback leaves it, and so does a checkpoint.
                return beside.execute("PRAGMA data_version").fetchone()

            yield count
    else:
        cache_size = lab.config.statement_cache_size
        connection: Any = await asyncpg.connect(lab.url, statement_cache_size=cache_size)
        try:
            yield PostgresRows(connection).versions
        finally:
            await connection.close()


class PostgresRows:
    """Where every row of a database stands, and which transaction put it there.

    A row that is added or changed bears the number of its transaction, which no other has; one that
    is deleted is missing. All rows are looked at only when a transaction has ended since the last
    look. That alone says too little: it may have been rolled back, have done no more than lock, or
    belong to another database. Nor would the server's own counters do, which are late.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._number = ""
        self._statement = ""
        self._seen: dict[str, str | None] = {}

    async def versions(self) -> dict[str, str | None]:
        """A hash of them for each table."""
        number = await self._connection.fetchval(NEXT_NUMBER)  # before the look, to be exact
        if number != self._number:
            self._statement = self._statement or await self._over_all_tables()
            self._seen = dict(await self._connection.fetch(self._statement))
            self._number = number
        return self._seen

    async def _over_all_tables(self) -> str:
        found = await self._connection.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
            "AND relkind = 'r' ORDER BY relname"
        )
        return " UNION ALL ".join(
            f"SELECT '{name}', md5(string_agg(ctid::text || xmin, ' ' ORDER BY ctid)) FROM {name}"
            for (name,) in found
        )
