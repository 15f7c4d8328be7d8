"""Reads and writes over one Postgres connection."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar, cast

import asyncpg

from flowfabric.clock import Clock
from flowfabric.model.attempt import Attempt
from flowfabric.model.execution import Body, Execution
from flowfabric.model.record import Record
from flowfabric.model.route import Catalog, Route
from flowfabric.stores.base import (
    Changes,
    Corrupt,
    Found,
    ListFilter,
    StoreConflict,
    Wanted,
    look_further,
    look_in_order,
)
from flowfabric.stores.codec import (
    attempt_from_row,
    body_from_row,
    bounds_text,
    candidates_of,
    execution_from_row,
    execution_id_of,
    split_updates,
    tags_text,
)
from flowfabric.stores.execution_columns import ALL, ATTEMPT, FREED, HOT, new_columns
from flowfabric.stores.indexes import EVERY_INDEX, PURGE, ExecutionIndex, Search
from flowfabric.stores.listing import Bound, counting_sql, listing_sql
from flowfabric.stores.postgres.arrays import (
    INSERTS,
    PARAMETERS,
    Columns,
    Write,
    columns_of,
    one_statement,
    updates_of,
)
from flowfabric.stores.postgres.logs import Logs
from flowfabric.stores.postgres.small import SmallTables, merged_sql, search_values
from flowfabric.stores.postgres.usual import RECORD_COLUMNS
from flowfabric.stores.queries import queries_of
from flowfabric.stores.readable import first_readable
from flowfabric.stores.routebook import EMPTY_BOOK, RouteBook
from flowfabric.stores.rows import (
    counts_by_state,
    members_by_state,
)
from flowfabric.stores.searches import Form, form_of
from flowfabric.stores.tables import LANES, SCOPES, SWEPT_TABLES, TIMED_TABLES, Key, next_row_due
from flowfabric.stores.values import odd_values

SQL: Final = queries_of("postgres", PARAMETERS)
_UPDATES: Final = updates_of(SQL)
_NEXT_DUE: Final = ", ".join([SQL["next_due"], *map(next_row_due, TIMED_TABLES)])
# Statements with ids as their first parameter.
_BY_IDS: Final = frozenset(
    ("load", "load_free", "look", "get", "get_one", "results", "result_sizes", "bodies")
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_ID: Final = "00000000-0000-0000-0000-000000000000"

R = TypeVar("R", bound=Record)
_ANY_SIZE: Final = 2**31 - 1  # more than a value can have


_KINDS: Final = {"route_id": "int", "blocked_on": "text"}  # columns with which indexes begin


@cache
def _search_sql(form: Form) -> str:
    """Executions by an index."""
    if form.is_keys:
        return merged_sql(form, "c.partition_key, c.execution_id", "ff_exec_core AS c", "c", _KINDS)
    body = f" {dict(PARAMETERS)['body_of_c']}"
    return merged_sql(form, RECORD_COLUMNS, "ff_exec_core AS c", "c", _KINDS, body)


def _heavy_of(rows: Sequence[Sequence[Any]]) -> dict[str, int]:
    """The candidates read without their inputs, and the sizes of these."""
    return {execution_id_of(row[1], str(row[0])): row[-1] for row in rows if row[-5] is None}


class PostgresView(SmallTables, Logs):
    """One transaction, or one read, on a connection. The database's clock is read along the way."""

    def __init__(self, connection: Any, clock: Clock | None, book: RouteBook) -> None:
        self._connection = connection
        self._clock = clock
        self._book = book
        self._now: int | None = None if clock is None else clock.now_ms()
        self._version: int | None = None  # of the catalog, as last seen along the way
        self._writes: list[tuple[Write, Columns]] = []
        self._attempts: dict[tuple[str, int], Attempt] = {}  # read along with their executions

    @property
    def book(self) -> RouteBook:
        """The routes as of this view, for the next one to start from."""
        return self._book

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
            await self._routes()

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

    async def run(self, name: str, *values: Any) -> list[Any]:
        """A statement with locks and writes that belong to this view's transaction."""
        return await self.fetch(name, *values)

    async def _insert(self, name: str, columns: Columns) -> None:
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

    def _update(self, name: str, columns: Columns) -> None:
        if columns:
            self._writes.append((_UPDATES[name], columns))

    async def _flush(self) -> None:
        """Send the deferred writes in one statement: a small commit costs few round trips."""
        if self._writes:
            sql, values = one_statement(self._writes)
            self._writes.clear()
            await self._connection.fetch(sql, *values)

    async def _routes(self) -> RouteBook:
        row = (await self.fetch("clock"))[0]
        self._version = row[1]
        self._see_clock(row[0])
        if row[1] != self._book.catalog.version:
            self._book = RouteBook(
                row[1],
                await self.fetch("routes"),
                await self.every_row(LANES),
                await self.every_row(SCOPES),
            )
        return self._book

    async def _numbers(self, routes: Sequence[Route]) -> list[int]:
        ids = (self._book if self._book is not EMPTY_BOOK else await self._routes()).ids
        return [ids[route] for route in routes if route in ids]

    async def records(self, rows: Sequence[Any]) -> list[Execution | Corrupt]:
        routes = self._book.by_id
        if any(row[2] not in routes for row in rows):
            routes = (await self._routes()).by_id
        return [execution_from_row(row, routes) for row in rows]

    async def _executions(self, rows: Sequence[Any]) -> list[Execution]:
        """Decodable ones only: a corrupt row must not stop a loop or a claim."""
        records = await self.records(rows)
        return [record for record in records if isinstance(record, Execution)]

    # --- reads ---------------------------------------------------------------------------------

    async def catalog(self) -> Catalog:
        return (await self._routes()).catalog

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
        return by_id(await self.records([tuple(row)[:-2] for row in rows]))

    async def load_free(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        rows = await self.run("load_free", [key[-36:] for key in ids])
        return by_id(await self.records([tuple(row)[:-2] for row in rows]))

    async def results(self, ids: Sequence[str]) -> dict[str, Attempt]:
        wanted = {key[-36:]: key for key in ids}
        found = {}
        for row in await self.fetch("results", list(wanted)):
            key = wanted[str(row[0])]
            found[key] = attempt_from_row(key, tuple(row))
        return found

    async def result_sizes(self, ids: Sequence[str]) -> dict[str, int]:
        wanted = {key[-36:]: key for key in ids}
        rows = await self.fetch("result_sizes", list(wanted))
        return {wanted[str(row[0])]: row[1] for row in rows}

    async def count_members(self, flow_id: str) -> list[tuple[str, int]]:
        return members_by_state(await self.fetch("count_members", flow_id))

    async def get(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        if len(ids) == 1:
            return await self._get_one(ids[0])
        rows = await self.run("get", [key[-36:] for key in ids])
        return by_id(await self.records([tuple(row) for row in rows]))

    async def _get_one(self, execution_id: str) -> dict[str, Execution | Corrupt]:
        """A caller that reads one often wants its result next: a small one is read along."""
        size = len(ATTEMPT.names)
        rows = [tuple(row) for row in await self.run("get_one", execution_id[-36:])]
        for row in rows:
            if row[-size] is not None:
                attempt = attempt_from_row(execution_id, row[-size:])
                self._attempts[execution_id, attempt.attempt_index] = attempt
        return by_id(await self.records([row[:-size] for row in rows]))

    async def ready(
        self, routes: Sequence[Route], limit: int, bytes_max: int | None = None
    ) -> list[tuple[Execution, Body]]:
        numbers = await self._numbers(routes)
        if not numbers:
            return []
        # Inputs that fit in any number are sent along, so mostly one statement is enough.
        light = _ANY_SIZE if bytes_max is None else bytes_max // limit

        async def fetch(asked: int) -> list[Any]:
            if len(numbers) == 1:
                return await self.run("ready_one", numbers[0], self.now, asked, light)
            return await self.run("ready_many", numbers, self.now, asked, light)

        heavy: dict[str, int] = {}

        async def decode(rows: Sequence[Any]) -> list[tuple[Execution, Body]]:
            plain = [tuple(row) for row in rows]
            records = await self.records([row[:-5] for row in plain])
            heavy.update(_heavy_of(plain))
            bodies = [(b"", *row[-4:-1]) if row[-5] is None else row[-5:-1] for row in plain]
            return candidates_of(records, bodies)

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

    async def search(self, search: Search[R]) -> list[R]:
        if not search.prefixes:
            return []
        if search.is_held:
            await self.begin()
        if isinstance(search.index, ExecutionIndex):
            return cast("list[R]", await self._search_executions(search))
        return await self.search_rows(search)

    async def search_keys(self, search: Search[Any]) -> list[Key]:
        if not search.prefixes:
            return []
        if search.is_held:
            await self.begin()
        if not isinstance(search.index, ExecutionIndex):
            return await self.search_row_keys(search)
        rows = await self._execution_rows(search, search.limit, is_keys=True)
        return [(execution_id_of(row[0], str(row[1])),) for row in rows]

    async def _search_executions(self, search: Search[Any]) -> list[Execution]:
        async def fetch(asked: int | None) -> list[Any]:
            return await self._execution_rows(search, asked)

        if search.limit is None:
            return await self._executions(await fetch(None))
        return await first_readable(fetch, self._executions, search.limit)

    async def _execution_rows(
        self, search: Search[Any], limit: int | None, *, is_keys: bool = False
    ) -> list[Any]:
        prefixes: Sequence[Key] = search.prefixes
        if search.size and search.index.order[0] == "route_id":
            ids = (await self._routes()).ids
            prefixes = [(ids[key[0]], *key[1:]) for key in prefixes if key[0] in ids]
            if not prefixes:
                return []
        form = form_of(search, is_keys=is_keys)._replace(is_one=len(prefixes) == 1)
        values = search_values(search, prefixes, limit)
        rows = await self._connection.fetch(_search_sql(form), *values)
        return [tuple(row) for row in rows]

    async def bodies(self, ids: Sequence[str]) -> dict[str, Body]:
        found = {}
        for row in await self.run("bodies", [key[-36:] for key in ids]):
            key = execution_id_of(row[1], str(row[0]))
            found[key] = body_from_row(key, (row[2], row[3], row[4], row[5]))
        return found

    async def attempts(self, execution_id: str) -> list[Attempt]:
        rows = await self.run("attempts", execution_id[-36:])
        return [attempt_from_row(execution_id, tuple(row)) for row in rows]

    async def result(self, execution_id: str, attempt_index: int) -> Attempt | None:
        if (execution_id, attempt_index) in self._attempts:
            return self._attempts[execution_id, attempt_index]
        rows = await self.run("result", execution_id[-36:], attempt_index)
        return attempt_from_row(execution_id, tuple(rows[0])) if rows else None

    async def list_executions(self, wanted: ListFilter, limit: int) -> list[Execution | Corrupt]:
        numbers, values = await self._listed(wanted), Bound()
        sql = listing_sql(wanted, numbers, limit, values.numbered("$"), RECORD_COLUMNS)
        rows = await self._connection.fetch(sql, *values)
        return await self.records([tuple(row) for row in rows])

    async def count_listed(self, wanted: ListFilter) -> int:
        numbers, values = await self._listed(wanted), Bound()
        sql = counting_sql(wanted, numbers, values.numbered("$"))
        return int(await self._connection.fetchval(sql, *values))

    async def _listed(self, wanted: ListFilter) -> list[int] | None:
        """The numbers of a listing's routes."""
        ids = (await self._routes()).ids
        if wanted.routes is None:
            return None
        return [ids[route] for route in wanted.routes if route in ids]

    async def ids_between(self, first: str, last: str, limit: int) -> list[str]:
        rows = await self.run("ids_between", first, last, limit)
        return [execution_id_of(row[0], str(row[1])) for row in rows]

    async def ids_ending(self, ending: str, among: int, limit: int) -> list[str]:
        rows = await self.run("ids_ending", ending, among, limit)
        return [execution_id_of(row[0], str(row[1])) for row in rows]

    async def count(self) -> list[tuple[Route, str, int]]:
        routes = (await self._routes()).by_id
        return counts_by_state(routes, await self.run("count"))

    async def next_due(self) -> int | None:
        row = await self._connection.fetchrow(_NEXT_DUE)  # an idle engine asks this often
        self._see_clock(row[0])
        times = tuple(row)[1:]
        return min((when for when in times if when is not None), default=None)

    async def audit(self, *, quick: bool = False) -> list[tuple[str, str]]:
        if quick:
            return []
        problems: list[tuple[str, str]] = []
        for index in EVERY_INDEX:
            sql = f"SELECT count(*) FROM {index.on} WHERE {index.where or 'true'}"
            indexed = await self._count(sql, "enable_seqscan")
            counted = await self._count(
                sql, "enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"
            )
            if indexed != counted:
                problems.append((index.name, f"{indexed} in the index, {counted} rows"))
        return problems

    async def odd_values(self) -> list[tuple[str, str]]:
        async def fetch(sql: str, values: Sequence[Any]) -> list[Any]:
            return [tuple(row) for row in await self._connection.fetch(sql, *values)]

        return await odd_values(fetch, lambda number: f"${number}")

    async def _count(self, sql: str, *without: str) -> int:
        """Count with some kinds of plans switched off."""
        async with self._connection.transaction():
            for way in without:
                await self._connection.execute(f"SET LOCAL {way} = off")
            return int(await self._connection.fetchval(sql))

    # --- writes --------------------------------------------------------------------------------

    async def save(self, changes: Changes) -> None:
        if changes.created:
            await self._create(changes)
            if changes.updated:
                await self._flush()  # an update in the same statement would not see the new rows
        await self._gather(changes)
        await self._flush()

    async def _gather(self, changes: Changes) -> None:
        """Everything but new executions; small sets of rows are deferred to the flush."""
        # Every updated row is locked already, so the order of these writes cannot deadlock.
        steps, hot, freed, everything = split_updates(changes)
        self._update("update_hot", HOT.to_columns(steps + hot))
        self._update("update_freed", FREED.to_columns(freed))
        self._update("update_all", ALL.to_columns(everything))
        if changes.retagged:
            await self._retag(changes)
        for key in sorted(changes.rebound):
            await self.run("update_bounds", key[-36:], bounds_text(changes.updated[key].bounds))
        await self._insert("attempt", ATTEMPT.to_columns(changes.attempts))
        for log, events in changes.appended():
            self.append(log, events)
        passed = changes.payloads.items()
        self._update("update_payload", columns_of([(*body, key[-36:]) for key, body in passed]))
        for table, written in changes.rows.items():
            self.write_rows(table, written)
            if table.in_catalog:
                await self.run("bump_catalog")

    async def _create(self, changes: Changes) -> None:
        """Insert, never upsert: an absent row cannot be locked, so rivals must collide here."""
        book = self._book
        if any(e.route not in book.ids for e, _ in changes.created.values()):
            book = await self._routes()
            if any(e.route not in book.ids for e, _ in changes.created.values()):
                raise StoreConflict("the transaction began before a lane and kind were known")
        created = changes.created.values()
        core, body = new_columns(created, book.ids)
        await self._insert("core", core)
        await self._insert("body", body)
        tags = [(e.execution_id[-36:], *pair) for e, _ in created for pair in e.tags.items()]
        await self._insert("tag", columns_of(tags))

    async def _retag(self, changes: Changes) -> None:
        for key in sorted(changes.retagged, key=lambda each: each[-36:]):
            uuid, tags = key[-36:], changes.updated[key].tags
            await self.run("update_tags", uuid, tags_text(tags))
            await self.run("delete_tags", uuid)
            await self._insert("tag", columns_of([(uuid, *pair) for pair in tags.items()]))

    async def purge(self, until: int, limit: int) -> int:
        keys = await self.search_keys(Search(PURGE, until=until, limit=limit, is_held=True))
        if keys:
            await self.purge_rows([key[0] for key in keys])
            gone = [key[0][-36:] for key in keys]
            for name in ("purge_tags", "purge_attempts", "purge_body", "purge_core"):
                await self.run(name, gone)
        return len(keys)

    async def sweep(self, *, keys_until: int, limit: int) -> int:
        swept = 0
        for small in SWEPT_TABLES:
            swept += await self.sweep_rows(small, keys_until, limit)
        return swept


def _with_ids(values: Sequence[Any]) -> list[Any]:
    """The parameters with valid ids first; a single malformed id finds nothing."""
    wanted, *others = values
    if isinstance(wanted, str):
        return [wanted if _UUID.fullmatch(wanted) else _NO_ID, *others]
    return [[each for each in wanted if _UUID.fullmatch(each)], *others]


def by_id(records: Sequence[Execution | Corrupt]) -> dict[str, Execution | Corrupt]:
    """Records by their ids."""
    return {record.execution_id: record for record in records}
