"""Reads and writes over one Postgres connection."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import asyncpg

from flowfabric.clock import Clock
from flowfabric.model.attempt import Attempt
from flowfabric.model.execution import Body, Execution
from flowfabric.model.route import Route
from flowfabric.stores.base import (
    Changes,
    Corrupt,
    Found,
    StoreConflict,
    Wanted,
    look_further,
    look_in_order,
)
from flowfabric.stores.codec import attempt_from_row, candidates_of, execution_id_of, split_updates
from flowfabric.stores.execution_columns import ALL, ATTEMPT, BODY_PARTS, FREED, HOT
from flowfabric.stores.indexes import EVERY_INDEX, Index
from flowfabric.stores.logs import LOGS, Log, LogIndex, Position
from flowfabric.stores.postgres.arrays import (
    GATE_NAME,
    INSERTS,
    NUMBERS,
    PARAMETERS,
    UPDATES,
    Write,
    one_statement,
)
from flowfabric.stores.postgres.small import SmallTables
from flowfabric.stores.postgres.usual import RECORD_COLUMNS
from flowfabric.stores.queries import queries_of
from flowfabric.stores.readable import first_readable
from flowfabric.stores.routebook import EMPTY_BOOK, RouteBook
from flowfabric.stores.tables import TIMED_TABLES, Columns, next_row_due

SQL: Final = queries_of("postgres", PARAMETERS)
_NEXT_DUE: Final = ", ".join([SQL["next_due"], *map(next_row_due, TIMED_TABLES)])
# Statements with ids as their first parameter.
_BY_IDS: Final = frozenset(
    ("load", "load_free", "look", "get", "get_one", "results", "result_sizes", "bodies")
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PARTS: Final = len(BODY_PARTS)
_NO_ID: Final = "00000000-0000-0000-0000-000000000000"

# No event with a number up to this one can still appear. A transaction that will draw numbers has
# said which was the last before (`GATE`); one that says so later draws larger ones, for the last
# number is read before the locks are; and one that no longer says it has ended.
_HORIZON: Final = f"""
WITH newest AS MATERIALIZED (SELECT last_value FROM ff_event_id)
SELECT least(last_value, (
    SELECT min((classid::bigint << 32 | objid::bigint) & {NUMBERS}) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 16 = {GATE_NAME}
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND newest.last_value IS NOT NULL)) FROM newest"""
# Two ways to count the rows that an index should have: by indexes only, and without any.
_WAYS: Final = {
    "indexed": ("SET LOCAL enable_seqscan = off",),
    "counted": (
        "SET LOCAL enable_seqscan = on",
        "SET LOCAL enable_indexscan = off",
        "SET LOCAL enable_indexonlyscan = off",
        "SET LOCAL enable_bitmapscan = off",
    ),
}
_COUNTING_S: Final = 3_600.0  # the server bounds each count
_ANY_SIZE: Final = 2**31 - 1  # more than a value can have


def _body(row: Sequence[Any]) -> Sequence[Any]:
    """The columns of the body, which come before the size of its input; a heavy input is empty."""
    parts = row[-_PARTS - 1 : -1]
    return (b"", *parts[1:]) if parts[0] is None else parts


def _heavy_of(rows: Sequence[Sequence[Any]]) -> dict[str, int]:
    """The candidates read without their inputs, and the sizes of these."""
    return {
        execution_id_of(row[1], str(row[0])): row[-1] for row in rows if row[-_PARTS - 1] is None
    }


class PostgresView(SmallTables):
    """One transaction, or one read, on a connection. The database's clock is read along the way."""

    SQL = SQL
    RECORD_COLUMNS = RECORD_COLUMNS
    AMONG = "= ANY($1::text[])"
    SKIPPING = " FOR UPDATE SKIP LOCKED"

    def __init__(self, connection: Any, clock: Clock | None, book: RouteBook) -> None:
        self._connection = connection
        self._clock = clock
        self._book = book
        self._now: int | None = None if clock is None else clock.now_ms()
        self._version: int | None = None  # of the catalog, as last seen along the way
        self._writes: list[tuple[Write, Columns]] = []
        self._attempts: dict[tuple[str, int], Attempt] = {}  # read along with their executions

    @property
    def now(self) -> int:
        if self._now is None:
            raise RuntimeError("the clock is read with the first load or the catalog")
        return self._now

    def _see_clock(self, milliseconds: int) -> None:
        if self._now is None:
            self._now = milliseconds

    async def _see_clock_of(self, rows: Sequence[Any]) -> None:
        """The version of the catalog and the clock are the last columns; without rows they are
        queried, unless the clock is known."""
        if rows:
            self._version = rows[-1][-2]
            self._see_clock(rows[-1][-1])
        elif self._now is None:
            await self.routes_now()

    async def fetch(self, name: str, *values: Any) -> list[Any]:
        """The rows of a named statement."""
        rows: list[Any]
        try:
            rows = await self._connection.fetch(SQL[name], *values)
        except asyncpg.DataError:
            if name not in _BY_IDS:
                raise
            # A corrupt row names an execution by a malformed id. Nothing was sent to the server.
            rows = await self._connection.fetch(SQL[name], *_with_ids(values))
        return rows

    async def insert(self, name: str, columns: Columns) -> None:
        """Append rows: heavy ones now, all others with the rest of the save."""
        if not columns:
            return
        write = INSERTS[name]
        if write.is_heavy(columns):
            rows = zip(*columns, strict=True)
            await self._connection.copy_records_to_table(
                write.table, records=rows, columns=write.columns
            )
        else:
            self._writes.append((write, columns))

    def update(self, name: str, columns: Columns) -> None:
        if columns:
            self._writes.append((UPDATES[name], columns))

    async def _flush(self) -> None:
        """Send the deferred writes in one statement: a small commit costs few round trips."""
        if self._writes:
            sql, values = one_statement(self._writes)
            self._writes.clear()
            await self._connection.fetch(sql, *values)

    async def routes_now(self) -> RouteBook:
        row = (await self.fetch("clock"))[0]
        self._version = row[1]
        self._see_clock(row[0])
        if row[1] != self._book.catalog.version:
            await self._read_book(row[1])
        return self._book

    async def _numbers(self, routes: Sequence[Route]) -> list[int]:
        ids = (self._book if self._book is not EMPTY_BOOK else await self.routes_now()).ids
        return [ids[route] for route in routes if route in ids]

    async def records(self, rows: Sequence[Any]) -> list[Execution | Corrupt]:
        return await super().records([tuple(row) for row in rows])

    # --- reads ---------------------------------------------------------------------------------

    async def look(self, wanted: Wanted) -> Found:
        """The executions tell whether the catalog has changed, and what time it is."""
        if not wanted.executions:
            return await look_in_order(self, wanted)
        found = Found()
        found.executions = await self.load(wanted.executions)
        if wanted.catalog:
            is_current = self._version == self._book.catalog.version
            found.catalog = self._book.catalog if is_current else await self.catalog()
        await look_further(self, wanted, found)
        return found

    async def load(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        rows = await self.run("load", [key[-36:] for key in ids])
        await self._see_clock_of(rows)
        return await self.records_by_id(rows)

    async def load_free(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        return await self.records_by_id(await self.run("load_free", [key[-36:] for key in ids]))

    async def get(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        if len(ids) == 1:
            return await self._get_one(ids[0])
        return await self.records_by_id(await self.run("get", [key[-36:] for key in ids]))

    async def _get_one(self, execution_id: str) -> dict[str, Execution | Corrupt]:
        """A caller that reads one often wants its result next: a small one is read along."""
        size = len(ATTEMPT.names)
        rows = await self.run("get_one", execution_id[-36:])
        for row in rows:
            if row[-size] is not None:
                attempt = attempt_from_row(execution_id, row[-size:])
                self._attempts[execution_id, attempt.attempt_index] = attempt
        return await self.records_by_id(rows)

    async def result(self, execution_id: str, attempt_index: int) -> Attempt | None:
        if (execution_id, attempt_index) in self._attempts:
            return self._attempts[execution_id, attempt_index]
        return await super().result(execution_id, attempt_index)

    async def ready(
        self, routes: Sequence[Route], limit: int, bytes_max: int | None = None
    ) -> list[tuple[Execution, Body]]:
        numbers = await self._numbers(routes)
        if not numbers:
            return []
        # Inputs that fit in any number are sent along, so mostly one statement is enough.
        light = _ANY_SIZE if bytes_max is None else bytes_max // limit

        async def fetch(asked: int) -> Sequence[Any]:
            if len(numbers) == 1:
                return await self.run("ready_one", numbers[0], self.now, asked, light)
            return await self.run("ready_many", numbers, self.now, asked, light)

        heavy: dict[str, int] = {}

        async def decode(rows: Sequence[Any]) -> list[tuple[Execution, Body]]:
            heavy.update(_heavy_of(rows))
            bodies = [_body(row) for row in rows]
            return candidates_of(await self.records(rows), bodies)

        found = await first_readable(fetch, decode, limit)
        if not heavy or bytes_max is None:
            return found
        return await self._with_heavy(found, heavy, bytes_max)

    async def _with_heavy(
        self, found: Sequence[tuple[Execution, Body]], heavy: Mapping[str, int], bytes_max: int
    ) -> list[tuple[Execution, Body]]:
        """Candidates up to the one with which the inputs reach `bytes_max`. Heavy inputs are read
        now; those behind are never needed."""
        taken, left = [], bytes_max
        for execution, body in found:
            taken.append((execution, body))
            left -= heavy.get(execution.execution_id) or len(body.payload)
            if left <= 0:
                break
        ids = [execution.execution_id for execution, _ in taken if execution.execution_id in heavy]
        bodies = await self.bodies(ids)
        return [(execution, bodies.get(execution.execution_id, body)) for execution, body in taken]

    async def log_ends(self) -> dict[Log[Any], Position]:
        horizon = (await self.query(_HORIZON))[0][0]
        return dict.fromkeys(LOGS, horizon)

    async def log_front(self) -> int:
        number: int = (await self.query("SELECT nextval('ff_event_id')"))[0][0]
        return number

    async def next_due(self) -> int | None:
        row = await self._connection.fetchrow(_NEXT_DUE)  # an idle engine asks this often
        self._see_clock(row[0])
        times = tuple(row)[1:]
        return min((when for when in times if when is not None), default=None)

    async def audit(self, *, quick: bool = False) -> list[tuple[str, str]]:
        if quick:
            return []
        problems: list[tuple[str, str]] = []
        for _, group in groupby(EVERY_INDEX, key=lambda index: index.on):
            for index, indexed, counted in await self._counted(tuple(group)):
                if indexed != counted:
                    problems.append((index.name, f"{indexed} in the index, {counted} rows"))
        return problems

    async def _counted(
        self, indexes: Sequence[Index[Any] | LogIndex]
    ) -> list[tuple[Index[Any] | LogIndex, int, int]]:
        """What each index has, and what its table has, at one instant. As a script: a prepared
        statement would be counted with the plan of its first time, by the index again."""
        script: list[str] = []
        for side, ways in _WAYS.items():
            script += ways
            script += [
                f"SELECT set_config('flowfabric.{side}_{at}', count(*)::text, true) "
                f"FROM {index.on} WHERE {index.where or 'true'}"
                for at, index in enumerate(indexes)
            ]
        told = ", ".join(
            f"current_setting('flowfabric.{side}_{at}')::bigint"
            for at in range(len(indexes))
            for side in _WAYS
        )
        async with self._connection.transaction(isolation="repeatable_read"):
            await self._connection.execute("; ".join(script), timeout=_COUNTING_S)
            row = await self._connection.fetchrow(f"SELECT {told}")
        return list(zip(indexes, row[::2], row[1::2], strict=True))

    # --- writes --------------------------------------------------------------------------------

    async def save(self, changes: Changes) -> None:
        if changes.created:
            await self.create(changes)
            if changes.updated:
                await self._flush()  # an update in the same statement would not see the new rows
        await self.gather(changes)
        await self._flush()

    def update_executions(self, changes: Changes) -> None:
        """Every updated row is locked already, so the order of these writes cannot deadlock."""
        steps, hot, freed, everything = split_updates(changes)
        self.update("update_hot", HOT.to_columns(steps + hot))
        self.update("update_freed", FREED.to_columns(freed))
        self.update("update_all", ALL.to_columns(everything))

    async def create(self, changes: Changes) -> None:
        wanted, ids = {execution.route for execution, _ in changes.created.values()}, self._book.ids
        if not wanted <= ids.keys() and not wanted <= (await self.routes_now()).ids.keys():
            raise StoreConflict("the transaction began before a lane and kind were known")
        await super().create(changes)


def _with_ids(values: Sequence[Any]) -> list[Any]:
    """The parameters with valid ids first; a single malformed id finds nothing."""
    wanted, *others = values
    if isinstance(wanted, str):
        return [wanted if _UUID.fullmatch(wanted) else _NO_ID, *others]
    return [[each for each in wanted if _UUID.fullmatch(each)], *others]
