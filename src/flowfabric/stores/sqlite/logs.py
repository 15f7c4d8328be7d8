"""The logs over one SQLite connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, TypeVar

from flowfabric.model.record import Record
from flowfabric.stores.logs import BEFORE_ALL, ENTRIES_MAX, LOGS, Log
from flowfabric.stores.readable import readable_rows
from flowfabric.stores.sqlite.bulk import insert_columns
from flowfabric.stores.sqlite.small import sheet_of

E = TypeVar("E", bound=Record)


def _mark(number: int) -> str:
    return f"?{number}"


class Logs:
    """Appends to, reads and trims any declared log."""

    _connection: sqlite3.Connection

    def append(self, log: Log[E], events: Sequence[E]) -> None:
        """Write events in their order."""
        insert_columns(self._connection, sheet_of(log), log.to_columns(events))

    async def read_log(self, log: Log[E], after: int | None, limit: int) -> list[tuple[int, E]]:
        async def fetch(asked: int) -> list[Any]:
            return self._entries(log, BEFORE_ALL if after is None else after, asked)

        return await readable_rows(fetch, log.entry, limit)

    def _entries(self, log: Log[Any], after: int, limit: int) -> list[Any]:
        return self._connection.execute(log.page_sql(_mark), (after, limit)).fetchall()

    def trim(self, log: Log[Any], until: int, limit: int) -> int:
        """Delete old events; returns how many."""
        return self._connection.execute(log.trim_sql(_mark), (until, limit)).rowcount

    def dump_logs(self) -> dict[str, list[Any]]:
        """Every event by the name of its log."""
        return {
            log.dumped_as: [
                log.entry(row)[1] for row in self._entries(log, BEFORE_ALL, ENTRIES_MAX)
            ]
            for log in LOGS
        }
