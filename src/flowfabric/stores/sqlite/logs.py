"""The logs over one SQLite connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from flowfabric.model.record import Record, replace
from flowfabric.stores.logs import (
    LOGS,
    Log,
    LogCount,
    LogOrder,
    LogQuery,
    LogTally,
    Position,
    columns_of,
    counted,
    query_values,
)
from flowfabric.stores.readable import readable_rows
from flowfabric.stores.spoiled import SpoiledRow
from flowfabric.stores.sqlite.bulk import insert_columns
from flowfabric.stores.sqlite.small import mark, sheet_of

E = TypeVar("E", bound=Record)


_ORDER: Final = LogOrder(("event_id",), "0, event_id", ("",))


class Logs:
    """Appends to, reads and trims any declared log."""

    _connection: sqlite3.Connection

    def append(self, log: Log[E], events: Sequence[E]) -> None:
        """Write events in their order."""
        insert_columns(self._connection, sheet_of(log), log.to_columns(events))

    async def read_log(self, log: Log[E], query: LogQuery) -> list[tuple[Position, E]]:
        async def fetch(asked: int) -> list[Any]:
            return self._entries(log, query, asked)

        if query.limit is None:
            return list(map(log.entry, self._entries(log, query, -1)))
        return await readable_rows(fetch, log.entry, query.limit)

    def _entries(self, log: Log[Any], query: LogQuery, limit: int) -> list[Any]:
        sql = log.page_sql(_ORDER, columns_of(query), mark)
        return self._connection.execute(sql, query_values(query, _ORDER, limit)).fetchall()

    async def read_about(self, log: Log[E], subject: str, limit: int) -> list[tuple[Position, E]]:
        sql = log.about_sql(_ORDER, mark)
        return list(map(log.entry, self._connection.execute(sql, (subject, limit)).fetchall()))

    async def log_ends(self) -> dict[Log[Any], Position]:
        newest = ", ".join(f"(SELECT max(event_id) FROM {log.name})" for log in LOGS)
        found = self._connection.execute(f"SELECT {newest}").fetchone()
        return {log: (0, number or 0) for log, number in zip(LOGS, found, strict=True)}

    async def log_place(
        self, log: Log[Any], after: Position, until: Position, count: int
    ) -> Position:
        return min(until, (0, after[1] + count))  # of the numbers in between, some may be missing

    async def count_log(self, log: Log[Any], tally: LogTally) -> list[LogCount]:
        values = (*_ORDER.values(tally.after), *_ORDER.values(tally.until))
        alike = self._connection.execute(log.alike_sql(_ORDER, tally, mark), values).fetchall()
        is_one = len(alike) == 1  # what is the same in all rows need not be sorted by
        wanted = replace(tally, by=()) if is_one else tally
        rows = self._connection.execute(log.count_sql(_ORDER, wanted, mark), values).fetchall()
        if not is_one:
            return [counted(row) for row in rows if type(row) is not SpoiledRow]
        common = alike[0]
        if type(common) is SpoiledRow:
            return []
        return [counted(row)._replace(values=tuple(common)) for row in rows]

    async def log_front(self) -> int:
        return 0

    async def trim(self, log: Log[Any], until: int, limit: int) -> list[Position]:
        sql = log.trim_sql(_ORDER, mark)
        return [tuple(row) for row in self._connection.execute(sql, (until, limit)).fetchall()]

    def dump_logs(self) -> dict[str, list[Any]]:
        """Every event by the name of its log."""
        return {
            log.dumped_as: [log.entry(row)[1] for row in self._entries(log, LogQuery(), -1)]
            for log in LOGS
        }
