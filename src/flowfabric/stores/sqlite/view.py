"""Reads and writes over one SQLite connection; every call returns at once."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from flowfabric.model.execution import Body, Execution
from flowfabric.model.record import replace
from flowfabric.model.route import Route
from flowfabric.stores.base import Changes, Corrupt, Found, Wanted, look_in_order, within
from flowfabric.stores.codec import candidate_from_row, split_updates
from flowfabric.stores.execution_columns import (
    ALL,
    ATTEMPT,
    FREED,
    HOT,
    NEW_BODY,
    NEW_CORE,
    STEP,
    TAG,
    rows_alike,
)
from flowfabric.stores.indexes import EVERY_INDEX, ready_order
from flowfabric.stores.logs import LOGS, Log, LogCount, LogTally, Position
from flowfabric.stores.queries import RECORD_COLUMNS, queries_of
from flowfabric.stores.routebook import RouteBook
from flowfabric.stores.spoiled import NOT_TEXT, SpoiledRow
from flowfabric.stores.sqlite.bulk import Sheet, insert_columns, update_columns
from flowfabric.stores.sqlite.small import SmallTables
from flowfabric.stores.tables import TIMED_TABLES, Columns, names_of, next_row_due
from flowfabric.stores.values import sheets

Candidate = tuple[Execution, Body]


def _order(candidate: Candidate) -> tuple[int, str]:
    return ready_order(candidate[0])


AMONG: Final = "IN (SELECT value FROM json_each(?1))"
_NAMED: Final = (
    "json_each(?1) AS wanted CROSS JOIN ff_exec_core AS c ON c.execution_id = wanted.value "
    "CROSS JOIN ff_exec_body AS b ON b.execution_id = c.execution_id"
)
_ENDING: Final = "substr(n.execution_id, -length(?1))"
SQL: Final = queries_of("sqlite", (("among_ids", AMONG), ("named", _NAMED), ("ending", _ENDING)))
_SHEETS: Final = {
    "core": Sheet("ff_exec_core", names_of(NEW_CORE)),
    "body": Sheet("ff_exec_body", names_of(NEW_BODY)),
    "tag": Sheet("ff_exec_tag", names_of(TAG)),
    "attempt": Sheet("ff_attempt", ATTEMPT.names),
    "update_hot": Sheet("ff_exec_core", HOT.names),
    "update_all": Sheet("ff_exec_core", ALL.names),
    "update_payload": Sheet("ff_exec_body", ("execution_id", "payload", "payload_encoding")),
}
_NEXT_DUE: Final = ", ".join([SQL["next_due"], *map(next_row_due, TIMED_TABLES)])


class SqliteView(SmallTables):
    """One transaction, or one read, on a connection."""

    SQL = SQL
    RECORD_COLUMNS = RECORD_COLUMNS
    AMONG = AMONG
    NO_LIMIT = -1

    def __init__(self, connection: sqlite3.Connection, now: int, book: RouteBook) -> None:
        self._connection = connection
        self._book = book
        self._is_current = False  # whether the cached routes were compared with the file
        self.now = now

    async def routes_now(self) -> RouteBook:
        if not self._is_current:
            self._is_current = True
            version = (await self.fetch("catalog_version"))[0][0]
            if version != self._book.catalog.version:
                await self._read_book(version)
        return self._book

    # --- reads ---------------------------------------------------------------------------------

    async def load(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        wanted = self.listed([key[-36:] for key in ids])
        return await self.records_by_id(await self.fetch("get", wanted))

    get = load

    async def load_free(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        return await self.load(ids)  # the file's write lock covers everything

    async def ready(
        self, routes: Sequence[Route], limit: int, bytes_max: int | None = None
    ) -> list[Candidate]:
        with self._ranked(routes, await self.routes_now()) as found:
            return within(islice(found, limit), bytes_max)

    @contextmanager
    def _ranked(self, routes: Sequence[Route], book: RouteBook) -> Iterator[Iterable[Candidate]]:
        """The executions waiting on these routes, best first, each read on demand."""
        ids = book.ids
        lines = [self._line(ids[route]) for route in routes if route in ids]
        try:
            yield lines[0] if len(lines) == 1 else heapq.merge(*lines, key=_order)
        finally:
            for line in lines:
                line.close()

    def _line(self, route_id: int) -> Generator[Candidate, None, None]:
        """The executions waiting on a route, best first, read one by one: no input is read in vain.

        A row is dropped before the next is read: a thousand of them at once would keep the garbage
        collector busy.
        """
        routes = self._book.by_id
        rows = self._connection.execute(SQL["ready"], (route_id, self.now, -1))
        try:
            for row in rows:
                candidate = candidate_from_row(row, routes)
                if candidate is not None:
                    yield candidate
        finally:
            rows.close()

    async def look(self, wanted: Wanted) -> Found:
        return await look_in_order(self, wanted)

    async def log_ends(self) -> dict[Log[Any], Position]:
        newest = ", ".join(f"(SELECT max(event_id) FROM {log.name})" for log in LOGS)
        found = (await self.query(f"SELECT {newest}"))[0]
        return {log: number or 0 for log, number in zip(LOGS, found, strict=True)}

    async def log_place(
        self, log: Log[Any], after: Position, until: Position, count: int
    ) -> Position:
        return min(until, after + count)  # of the numbers in between, some may be missing

    async def count_log(self, log: Log[Any], tally: LogTally) -> list[LogCount]:
        """What is the same in all rows need not be sorted by."""
        sql, values = log.alike_sql(tally, self.mark), (tally.after, tally.until)
        alike = await self.query(sql, values)
        if len(alike) != 1:
            return await super().count_log(log, tally)
        common = alike[0]
        if type(common) is SpoiledRow:
            return []
        found = await super().count_log(log, replace(tally, by=()))
        return [each._replace(values=tuple(common)) for each in found]

    async def log_front(self) -> int:
        return 0

    async def next_due(self) -> int | None:
        times = self._connection.execute(_NEXT_DUE).fetchone()  # an idle engine asks this often
        return min((when for when in times if when is not None), default=None)

    async def audit(self, *, quick: bool = False) -> list[tuple[str, str]]:
        if quick:
            return []  # even SQLite's own quick_check reads every page
        found = self._connection.execute("PRAGMA integrity_check(20)").fetchall()
        problems = [("integrity", row[0]) for row in found if row[0] != "ok"]
        names = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_master")}
        for index in [
            each for each in EVERY_INDEX if each.name in names
        ]:  # the schema names the rest
            sql = f"SELECT count(*) FROM {index.on} {{}} WHERE {index.where or 'true'}"
            indexed = self._connection.execute(sql.format(f"INDEXED BY {index.name}")).fetchone()[0]
            counted = self._connection.execute(sql.format("NOT INDEXED")).fetchone()[0]
            if indexed != counted:
                problems.append((index.name, f"{indexed} in the index, {counted} rows"))
        return problems

    async def odd_values(self) -> list[tuple[str, str]]:
        found = await super().odd_values()
        named = {row for row, _ in found}
        return [*found, *(each for each in self._not_text() if each[0] not in named)]

    def _not_text(self) -> Iterator[tuple[str, str]]:
        """Rows marked for bytes that are not valid text; everything is read to find them."""
        for sheet in sheets():
            info = self._connection.execute(f"PRAGMA table_info({sheet.name})").fetchall()
            texts = [row[1] for row in info if row[2] == "TEXT" and row[1] not in sheet.key]
            names = ", ".join((*sheet.key, *texts))
            for row in self._connection.execute(f"SELECT {names} FROM {sheet.name}"):
                if type(row) is SpoiledRow:
                    yield sheet.named(row), NOT_TEXT

    # --- writes --------------------------------------------------------------------------------

    async def save(self, changes: Changes) -> None:
        if changes.created:
            await self.create(changes)
        await self.gather(changes)
        if any(table.in_catalog for table in changes.rows):
            self._is_current = False

    async def insert(self, name: str, columns: Columns) -> None:
        insert_columns(self._connection, _SHEETS[name], columns)

    def update(self, name: str, columns: Columns) -> None:
        update_columns(self._connection, _SHEETS[name], columns)

    def update_executions(self, changes: Changes) -> None:
        """Renewals and ends differ in their key only: one statement for all equal ones."""
        steps, hot, freed, everything = split_updates(changes)
        for name, part, written in (("update_step", STEP, steps), ("update_freed", FREED, freed)):
            for row, keys in rows_alike(part, written).items():
                self._connection.execute(SQL[name], (*row, self.listed(keys)))
        self.update("update_hot", HOT.to_columns(hot))
        self.update("update_all", ALL.to_columns(everything))
