"""Reads and writes over one SQLite connection; every call returns at once."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar, cast

from flowfabric.model.attempt import Attempt
from flowfabric.model.execution import Body, Execution
from flowfabric.model.record import Record, to_json
from flowfabric.model.route import Catalog, Route
from flowfabric.stores.base import (
    Changes,
    Corrupt,
    Found,
    ListFilter,
    Wanted,
    look_in_order,
    within,
)
from flowfabric.stores.codec import (
    attempt_from_row,
    body_from_row,
    bounds_text,
    candidate_from_row,
    execution_from_row,
    execution_id_of,
    split_updates,
    tags_text,
)
from flowfabric.stores.execution_columns import (
    ALL,
    ATTEMPT,
    FREED,
    HOT,
    NEW_BODY,
    NEW_CORE,
    STEP,
    TAG,
    new_columns,
    rows_alike,
)
from flowfabric.stores.indexes import EVERY_INDEX, PURGE, ExecutionIndex, Search, ready_order
from flowfabric.stores.listing import Bound, counting_sql, listing_sql
from flowfabric.stores.queries import RECORD_COLUMNS, queries_of
from flowfabric.stores.readable import first_readable
from flowfabric.stores.routebook import RouteBook
from flowfabric.stores.rows import (
    counts_by_state,
    members_by_state,
)
from flowfabric.stores.searches import Form, form_of, parts_of
from flowfabric.stores.spoiled import NOT_TEXT, SpoiledRow, intact
from flowfabric.stores.sqlite.bulk import Sheet, insert_columns, insert_many, update_columns
from flowfabric.stores.sqlite.logs import Logs
from flowfabric.stores.sqlite.small import SmallTables, mark, search_values, wanted_sql
from flowfabric.stores.tables import (
    LANES,
    SCOPES,
    SWEPT_TABLES,
    TIMED_TABLES,
    Key,
    names_of,
    next_row_due,
)
from flowfabric.stores.values import odd_values, sheets

R = TypeVar("R", bound=Record)
Candidate = tuple[Execution, Body]


def _order(candidate: Candidate) -> tuple[int, str]:
    return ready_order(candidate[0])


SQL: Final = queries_of("sqlite")
_CORE: Final = Sheet("ff_exec_core", names_of(NEW_CORE))
_BODY: Final = Sheet("ff_exec_body", names_of(NEW_BODY))
_TAG: Final = Sheet("ff_exec_tag", names_of(TAG))
_ATTEMPT: Final = Sheet("ff_attempt", ATTEMPT.names)
_HOT: Final = Sheet("ff_exec_core", HOT.names)
_ALL: Final = Sheet("ff_exec_core", ALL.names)


@cache
def _search_sql(form: Form) -> str:
    """Executions by an index, which is named: statistics must not change the plan."""
    columns = "c.partition_key, c.execution_id" if form.is_keys else RECORD_COLUMNS
    parts = parts_of(form, "c", mark, 1 if form.is_one else 2)
    source = f"ff_exec_core AS c INDEXED BY {form.of.name}"
    if not form.is_one:
        source = wanted_sql(form, source, "c")
    if not form.is_keys:
        source += " CROSS JOIN ff_exec_body AS b ON b.execution_id = c.execution_id"
    page = f"ORDER BY {parts.order} LIMIT {parts.limit}"
    return f"SELECT {columns} FROM {source} {parts.where} {page}"


_NEXT_DUE: Final = ", ".join([SQL["next_due"], *map(next_row_due, TIMED_TABLES)])


class SqliteView(SmallTables, Logs):
    """One transaction, or one read, on a connection."""

    def __init__(self, connection: sqlite3.Connection, now: int, book: RouteBook) -> None:
        self._connection = connection
        self._book = book
        self._is_current = False  # whether the cached routes were compared with the file
        self.now = now

    @property
    def book(self) -> RouteBook:
        """The routes as of this view, for the next one to start from."""
        return self._book

    def _all(self, name: str, *values: Any) -> list[Any]:
        return self._connection.execute(SQL[name], values).fetchall()

    def _many(self, name: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._connection.executemany(SQL[name], rows)

    def _routes(self) -> RouteBook:
        if self._is_current:
            return self._book
        self._is_current = True
        version = self._all("catalog_version")[0][0]
        if version != self._book.catalog.version:
            routes = self._all("routes")
            self._book = RouteBook(version, routes, self.every_row(LANES), self.every_row(SCOPES))
        return self._book

    def records(self, rows: Sequence[Any]) -> list[Execution | Corrupt]:
        routes = self._book.by_id
        if any(row[2] not in routes for row in rows):
            routes = self._routes().by_id
        return [execution_from_row(row, routes) for row in rows]

    def _executions(self, rows: Sequence[Any]) -> list[Execution]:
        """Decodable ones only: a corrupt row must not stop a loop or a claim."""
        return [record for record in self.records(rows) if isinstance(record, Execution)]

    # --- reads ---------------------------------------------------------------------------------

    async def catalog(self) -> Catalog:
        return self._routes().catalog

    async def load(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        wanted = to_json([key[-36:] for key in ids]).decode()
        return {record.execution_id: record for record in self.records(self._all("load", wanted))}

    get = load

    async def load_free(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        return await self.load(ids)  # the file's write lock covers everything

    async def results(self, ids: Sequence[str]) -> dict[str, Attempt]:
        wanted = {key[-36:]: key for key in ids}
        rows = self._all("results", to_json(list(wanted)).decode())
        return {wanted[row[0]]: attempt_from_row(wanted[row[0]], row) for row in rows}

    async def result_sizes(self, ids: Sequence[str]) -> dict[str, int]:
        wanted = {key[-36:]: key for key in ids}
        rows = self._all("result_sizes", to_json(list(wanted)).decode())
        return {wanted[uuid]: size for uuid, size in rows}

    async def count_members(self, flow_id: str) -> list[tuple[str, int]]:
        return members_by_state(self._all("count_members", flow_id))

    async def ready(
        self, routes: Sequence[Route], limit: int, bytes_max: int | None = None
    ) -> list[Candidate]:
        with self._ranked(routes) as found:
            return within(islice(found, limit), bytes_max)

    @contextmanager
    def _ranked(self, routes: Sequence[Route]) -> Iterator[Iterable[Candidate]]:
        """The executions waiting on these routes, best first, each read on demand."""
        ids = self._routes().ids
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

    async def search(self, search: Search[R]) -> list[R]:
        if not search.prefixes:
            return []
        if isinstance(search.index, ExecutionIndex):
            return cast("list[R]", await self._search_executions(search))
        return await self.search_rows(search)

    async def search_keys(self, search: Search[Any]) -> list[Key]:
        if not search.prefixes:
            return []
        if not isinstance(search.index, ExecutionIndex):
            return self.search_row_keys(search)
        rows = self._execution_rows(search, search.limit, is_keys=True)
        return [(execution_id_of(row[0], row[1]),) for row in rows if type(row) is not SpoiledRow]

    async def _search_executions(self, search: Search[Any]) -> list[Execution]:
        async def fetch(asked: int) -> list[Any]:
            return self._execution_rows(search, asked)

        async def decode(rows: Sequence[Any]) -> list[Execution]:
            return self._executions(rows)

        if search.limit is None:
            return self._executions(self._execution_rows(search, None))
        return await first_readable(fetch, decode, search.limit)

    def _execution_rows(
        self, search: Search[Any], limit: int | None, *, is_keys: bool = False
    ) -> list[Any]:
        prefixes: Sequence[Key] = search.prefixes
        if search.size and search.index.order[0] == "route_id":
            ids = self._routes().ids
            prefixes = [(ids[key[0]], *key[1:]) for key in prefixes if key[0] in ids]
            if not prefixes:
                return []
        form = form_of(search, is_keys=is_keys)._replace(is_one=len(prefixes) == 1)
        values = search_values(search, prefixes, limit)
        return self._connection.execute(_search_sql(form), values).fetchall()

    async def bodies(self, ids: Sequence[str]) -> dict[str, Body]:
        rows = self._all("bodies", to_json([key[-36:] for key in ids]).decode())
        found = {}
        for row in rows:
            key = execution_id_of(row[1], row[0])
            found[key] = body_from_row(key, intact(row, key)[2:])
        return found

    async def attempts(self, execution_id: str) -> list[Attempt]:
        rows = self._all("attempts", execution_id[-36:])
        return [attempt_from_row(execution_id, row) for row in rows]

    async def result(self, execution_id: str, attempt_index: int) -> Attempt | None:
        rows = self._all("result", execution_id[-36:], attempt_index)
        return attempt_from_row(execution_id, rows[0]) if rows else None

    async def list_executions(self, wanted: ListFilter, limit: int) -> list[Execution | Corrupt]:
        numbers, values = self._listed(wanted), Bound()
        sql = listing_sql(wanted, numbers, limit, values.numbered("?"))
        return self.records(self._connection.execute(sql, values).fetchall())

    async def count_listed(self, wanted: ListFilter) -> int:
        numbers, values = self._listed(wanted), Bound()
        sql = counting_sql(wanted, numbers, values.numbered("?"))
        return int(self._connection.execute(sql, values).fetchone()[0])

    def _listed(self, wanted: ListFilter) -> list[int] | None:
        """The numbers of a listing's routes."""
        ids = self._routes().ids
        if wanted.routes is None:
            return None
        return [ids[route] for route in wanted.routes if route in ids]

    async def ids_between(self, first: str, last: str, limit: int) -> list[str]:
        rows = self._all("ids_between", first, last, limit)
        return [execution_id_of(row[0], row[1]) for row in rows]

    async def ids_ending(self, ending: str, among: int, limit: int) -> list[str]:
        rows = self._all("ids_ending", ending, among, limit)
        return [execution_id_of(row[0], row[1]) for row in rows]

    async def count(self) -> list[tuple[Route, str, int]]:
        routes = self._routes().by_id
        return counts_by_state(routes, self._all("count"))

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
        async def fetch(sql: str, values: Sequence[Any]) -> list[Any]:
            return self._connection.execute(sql, values).fetchall()

        found = await odd_values(fetch, lambda number: f"?{number}")
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
            self._insert(changes)
        self._update(changes)
        if changes.retagged:
            self._retag(changes)
        for key in changes.rebound:
            text = bounds_text(changes.updated[key].bounds)
            self._connection.execute(SQL["update_bounds"], (key[-36:], text))
        if changes.attempts:
            insert_columns(self._connection, _ATTEMPT, ATTEMPT.to_columns(changes.attempts))
        for log, events in changes.appended():
            self.append(log, events)
        passed = changes.payloads.items()
        self._many("update_payload", ((*body, key[-36:]) for key, body in passed))
        for table, written in changes.rows.items():
            self.write_rows(table, written)
            if table.in_catalog:
                self._connection.execute(SQL["bump_catalog"])
                self._is_current = False

    def _insert(self, changes: Changes) -> None:
        created = changes.created.values()
        core, body = new_columns(created, self._book.ids)
        insert_columns(self._connection, _CORE, core)
        insert_columns(self._connection, _BODY, body)
        tags = [(e.execution_id[-36:], *pair) for e, _ in created for pair in e.tags.items()]
        if tags:
            insert_many(self._connection, _TAG, tags)

    def _update(self, changes: Changes) -> None:
        """Renewals and ends differ in their key only: one statement for all equal ones."""
        steps, hot, freed, everything = split_updates(changes)
        for name, part, written in (("update_step", STEP, steps), ("update_freed", FREED, freed)):
            for row, keys in rows_alike(part, written).items():
                self._connection.execute(SQL[name], (*row, to_json(keys).decode()))
        if hot:
            update_columns(self._connection, _HOT, HOT.to_columns(hot))
        if everything:
            update_columns(self._connection, _ALL, ALL.to_columns(everything))

    def _retag(self, changes: Changes) -> None:
        for key in changes.retagged:
            uuid, tags = key[-36:], changes.updated[key].tags
            self._connection.execute(SQL["update_tags"], (uuid, tags_text(tags)))
            self._connection.execute(SQL["delete_tags"], (uuid,))
            insert_many(self._connection, _TAG, [(uuid, *pair) for pair in tags.items()])

    async def purge(self, until: int, limit: int) -> int:
        keys = await self.search_keys(Search(PURGE, until=until, limit=limit, is_held=True))
        gone = [(key[0].partition("}:")[2],) for key in keys]  # also one that is no UUID
        for name in ("delete_tags", "purge_attempts", "purge_body", "purge_core"):
            self._many(name, gone)
        self.purge_rows([key[0] for key in keys])
        return len(gone)

    async def sweep(self, *, keys_until: int, limit: int) -> int:
        return sum(self.sweep_rows(table, keys_until, limit) for table in SWEPT_TABLES)
