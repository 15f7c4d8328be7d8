"""The logs over one Postgres connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from flowfabric.model.record import Record
from flowfabric.stores.logs import BEFORE_ALL, ENTRIES_MAX, LOGS, Log
from flowfabric.stores.postgres.arrays import Columns, Write
from flowfabric.stores.postgres.small import insert_of
from flowfabric.stores.readable import readable_rows

E = TypeVar("E", bound=Record)


def _mark(number: int) -> str:
    return f"${number}"


def affected(status: str) -> int:
    """How many rows a statement changed."""
    return int(status.rsplit(" ", 1)[-1])


class Logs:
    """Appends to, reads and trims any declared log."""

    _connection: Any
    _writes: list[tuple[Write, Columns]]

    def append(self, log: Log[E], events: Sequence[E]) -> None:
        """Defer the events to the flush; they are written in their order."""
        self._writes.append((insert_of(log), log.to_columns(events)))

    async def read_log(self, log: Log[E], after: int | None, limit: int) -> list[tuple[int, E]]:
        async def fetch(asked: int) -> Sequence[Any]:
            return await self._entries(log, BEFORE_ALL if after is None else after, asked)

        return await readable_rows(fetch, log.entry, limit)

    async def _entries(self, log: Log[Any], after: int, limit: int) -> Sequence[Any]:
        rows: Sequence[Any] = await self._connection.fetch(log.page_sql(_mark), after, limit)
        return rows

    async def trim(self, log: Log[Any], until: int, limit: int) -> int:
        """Delete old events; returns how many."""
        return affected(await self._connection.execute(log.trim_sql(_mark), until, limit))

    async def dump_logs(self) -> dict[str, list[Any]]:
        """Every event by the name of its log."""
        found = {}
        for log in LOGS:
            rows = await self._entries(log, BEFORE_ALL, ENTRIES_MAX)
            found[log.dumped_as] = [log.entry(row)[1] for row in rows]
        return found
