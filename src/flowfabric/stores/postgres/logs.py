"""The logs over one Postgres connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from flowfabric.model.record import Record
from flowfabric.stores.logs import (
    LOGS,
    NUMBER_MAX,
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
from flowfabric.stores.postgres.arrays import Columns, Write
from flowfabric.stores.postgres.small import insert_of, mark
from flowfabric.stores.readable import readable_rows

E = TypeVar("E", bound=Record)


_CAST: Final = "::text::xid8"
_ORDER: Final = LogOrder(
    ("xact_id", "event_id"), "xact_id::text::bigint, event_id", (_CAST, "::bigint")
)
# Every transaction before the oldest one that runs has ended, so no event can still appear there.
_HORIZON: Final = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1"
_OWN_NUMBER: Final = "SELECT pg_current_xact_id()::text::bigint"


def _bound(values: list[Any]) -> list[Any]:
    """A transaction's number travels as text."""
    return [str(values[0]), values[1], str(values[2]), *values[3:]]


class Logs:
    """Appends to, reads and trims any declared log."""

    _connection: Any
    _writes: list[tuple[Write, Columns]]

    def append(self, log: Log[E], events: Sequence[E]) -> None:
        """Defer the events to the flush; they are written in their order."""
        self._writes.append((insert_of(log), log.to_columns(events)))

    async def read_log(self, log: Log[E], query: LogQuery) -> list[tuple[Position, E]]:
        async def fetch(asked: int) -> Sequence[Any]:
            return await self._entries(log, query, asked)

        if query.limit is None:
            return list(map(log.entry, await self._entries(log, query, NUMBER_MAX)))
        return await readable_rows(fetch, log.entry, query.limit)

    async def _entries(self, log: Log[Any], query: LogQuery, limit: int) -> Sequence[Any]:
        sql = log.page_sql(_ORDER, columns_of(query), mark)
        values = _bound(query_values(query, _ORDER, limit))
        rows: Sequence[Any] = await self._connection.fetch(sql, *values)
        return rows

    async def read_about(self, log: Log[E], subject: str, limit: int) -> list[tuple[Position, E]]:
        rows = await self._connection.fetch(log.about_sql(_ORDER, mark), subject, limit)
        return list(map(log.entry, rows))

    async def log_ends(self) -> dict[Log[Any], Position]:
        horizon = (await self._connection.fetch(_HORIZON))[0][0]
        return dict.fromkeys(LOGS, (horizon, NUMBER_MAX))

    async def log_place(
        self, log: Log[Any], after: Position, until: Position, count: int
    ) -> Position:
        values = (*_bound([*after, *until]), count - 1)
        rows = await self._connection.fetch(log.nth_sql(_ORDER, mark), *values)
        return tuple(rows[0]) if rows else until

    async def count_log(self, log: Log[Any], tally: LogTally) -> list[LogCount]:
        values = _bound([*tally.after, *tally.until])
        rows = await self._connection.fetch(log.count_sql(_ORDER, tally, mark), *values)
        return [counted(tuple(row)) for row in rows]

    async def log_front(self) -> int:
        number: int = (await self._connection.fetch(_OWN_NUMBER))[0][0]
        return number

    async def trim(self, log: Log[Any], until: int, limit: int) -> list[Position]:
        rows = await self._connection.fetch(log.trim_sql(_ORDER, mark), until, limit)
        return [tuple(row) for row in rows]

    async def dump_logs(self) -> dict[str, list[Any]]:
        """Every event by the name of its log."""
        found = {}
        for log in LOGS:
            rows = await self._entries(log, LogQuery(), NUMBER_MAX)
            found[log.dumped_as] = [log.entry(row)[1] for row in rows]
        return found
