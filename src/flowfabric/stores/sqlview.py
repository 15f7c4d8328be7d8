"""Everything that SQL stores do alike with a connection. A store gives the statements, runs them,
and adds what depends on its locks and plans. Its methods need not really wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

from flowfabric.model.attempt import Attempt
from flowfabric.model.execution import Body, Execution
from flowfabric.model.flow_graph import EdgeFold, Folding, MemberFilter, MemberFold
from flowfabric.model.record import Record
from flowfabric.model.route import Catalog, Route
from flowfabric.model.state import IDS_OF_PUBLIC_STATE, PUBLIC_STATE_OF_ID, VECTOR_OF_ID
from flowfabric.stores.base import Changes, Corrupt, ListFilter, RowChanges, Standing
from flowfabric.stores.codec import (
    attempt_from_row,
    body_from_row,
    bounds_text,
    execution_from_row,
    execution_id_of,
    tags_text,
)
from flowfabric.stores.execution_columns import ATTEMPT, new_columns
from flowfabric.stores.indexes import PURGE, ExecutionIndex, Search, uuid_of
from flowfabric.stores.listing import Bound, counting_sql, listing_sql
from flowfabric.stores.logs import (
    LOGS,
    Log,
    LogCount,
    LogQuery,
    LogTally,
    Position,
    columns_of,
    counted,
    query_values,
)
from flowfabric.stores.readable import first_readable, readable_rows
from flowfabric.stores.routebook import RouteBook
from flowfabric.stores.searches import Form, bound_values, form_of
from flowfabric.stores.spoiled import SpoiledRow, intact
from flowfabric.stores.tables import (
    LANES,
    SCOPES,
    SWEPT_TABLES,
    TABLES,
    Columns,
    Key,
    Table,
    every_row_sql,
)
from flowfabric.stores.values import odd_values

R = TypeVar("R", bound=Record)
Rows = Sequence[Any]


class SqlView(ABC):
    """One transaction, or one read, on a connection."""

    SQL: ClassVar[Mapping[str, str]]  # named statements
    RECORD_COLUMNS: ClassVar[str]
    AMONG: ClassVar[str]  # behind a text column: its value is one of the first parameter's
    SKIPPING: ClassVar[str] = ""  # behind a search: rows locked elsewhere are left out
    NO_LIMIT: ClassVar[int | None] = None

    _book: RouteBook

    # --- what a store gives ----------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def mark(number: int) -> str:
        """The placeholder of the value with this number."""

    @abstractmethod
    async def query(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """The rows of a statement."""

    async def fetch(self, name: str, *values: Any) -> Rows:
        """The rows of a named statement."""
        return await self.query(self.SQL[name], values)

    async def run(self, name: str, *values: Any) -> Rows:
        """A named statement with locks or writes, or one that must see them."""
        return await self.fetch(name, *values)

    async def begin(self) -> None:  # noqa: B027 - where every view is one, there is nothing to do
        """Called before a lock or a write: it belongs to this view's transaction."""

    @abstractmethod
    def listed(self, values: Sequence[Any]) -> Any:
        """Many values as one parameter."""

    @staticmethod
    @abstractmethod
    def search_sql(form: Form) -> str:
        """The statement of a search."""

    @staticmethod
    @abstractmethod
    def many(keys: Sequence[Key]) -> list[Any]:
        """Keys, or prefixes of them, as values of a statement."""

    async def may_find(self, search: Search[Any]) -> bool:
        """Whether a search of rows is worth making."""
        return True

    @abstractmethod
    async def routes_now(self) -> RouteBook:
        """The current routes."""

    @abstractmethod
    def by_key(
        self, table: Table[Any], keys: Sequence[Key], *, alike: bool, hold: bool
    ) -> tuple[str, Sequence[Any]]:
        """The statement that reads rows by their keys, or by prefixes of them, and its values.
        Keys that are `alike` differ in their last part only."""

    @abstractmethod
    async def insert(self, name: str, columns: Columns) -> None:
        """New rows, by the name of their insert; none if there are no columns."""

    @abstractmethod
    def update(self, name: str, columns: Columns) -> None:
        """New values, by the name of their update; none if there are no columns."""

    @abstractmethod
    def update_executions(self, changes: Changes) -> None:
        """The next images of executions."""

    @abstractmethod
    def append(self, log: Log[R], events: Sequence[R]) -> None:
        """Write events in their order."""

    @abstractmethod
    def write_rows(self, table: Table[Any], written: RowChanges) -> None:
        """Insert, update and delete; an insert of a taken key is an error."""

    # --- executions ------------------------------------------------------------------------------

    @property
    def book(self) -> RouteBook:
        """The routes as of this view, for the next one to start from."""
        return self._book

    async def catalog(self) -> Catalog:
        return (await self.routes_now()).catalog

    async def _read_book(self, version: int) -> None:
        routes = await self.fetch("routes")
        lanes, scopes = await self.every_row(LANES), await self.every_row(SCOPES)
        self._book = RouteBook(version, routes, lanes, scopes)

    async def records(self, rows: Rows) -> list[Execution | Corrupt]:
        """Executions from rows that begin with their columns."""
        routes = self._book.by_id
        if any(row[2] not in routes for row in rows):
            routes = (await self.routes_now()).by_id
        return [execution_from_row(row, routes) for row in rows]

    async def records_by_id(self, rows: Rows) -> dict[str, Execution | Corrupt]:
        """The same by their ids."""
        return {record.execution_id: record for record in await self.records(rows)}

    async def _executions(self, rows: Rows) -> list[Execution]:
        """Decodable ones only: a corrupt row must not stop a loop or a claim."""
        return [each for each in await self.records(rows) if isinstance(each, Execution)]

    async def results(self, ids: Sequence[str]) -> dict[str, Attempt]:
        wanted = {key[-36:]: key for key in ids}
        rows = await self.fetch("results", self.listed(list(wanted)))
        found = ((wanted[str(row[0])], row) for row in rows)
        return {key: attempt_from_row(key, row) for key, row in found}

    async def result_sizes(self, ids: Sequence[str]) -> dict[str, int]:
        wanted = {key[-36:]: key for key in ids}
        rows = await self.fetch("result_sizes", self.listed(list(wanted)))
        return {wanted[str(uuid)]: size for uuid, size in rows}

    async def bodies(self, ids: Sequence[str]) -> dict[str, Body]:
        rows = await self.run("bodies", self.listed([key[-36:] for key in ids]))
        found = ((execution_id_of(row[1], str(row[0])), row) for row in rows)
        return {key: body_from_row(key, intact(row, key)[2:]) for key, row in found}

    async def attempts(self, execution_id: str) -> list[Attempt]:
        rows = await self.run("attempts", execution_id[-36:])
        return [attempt_from_row(execution_id, row) for row in rows]

    async def result(self, execution_id: str, attempt_index: int) -> Attempt | None:
        rows = await self.run("result", execution_id[-36:], attempt_index)
        return attempt_from_row(execution_id, rows[0]) if rows else None

    async def list_executions(self, wanted: ListFilter, limit: int) -> list[Execution | Corrupt]:
        numbers, values = await self._listed_routes(wanted), Bound(self.mark)
        sql = listing_sql(wanted, numbers, limit, values.bind, self.RECORD_COLUMNS)
        return await self.records(await self.query(sql, values))

    async def count_listed(self, wanted: ListFilter) -> int:
        numbers, values = await self._listed_routes(wanted), Bound(self.mark)
        return int((await self.query(counting_sql(wanted, numbers, values.bind), values))[0][0])

    async def _listed_routes(self, wanted: ListFilter) -> list[int] | None:
        """The numbers of a listing's routes."""
        ids = (await self.routes_now()).ids
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
        routes = (await self.routes_now()).by_id
        counted: Counter[tuple[Route, str]] = Counter()
        for route_id, state_id, number in await self.run("count"):
            if route_id in routes and state_id in PUBLIC_STATE_OF_ID:
                counted[routes[route_id], PUBLIC_STATE_OF_ID[state_id]] += number
        return [(route, state, number) for (route, state), number in counted.items()]

    async def standing(self, most: int) -> list[Standing]:
        routes = (await self.routes_now()).by_id
        return [
            Standing(routes[route_id], VECTOR_OF_ID[state_id], count, since)
            for route_id, state_id, count, since in await self.run("standing", most)
            if route_id in routes and state_id in VECTOR_OF_ID
        ]

    async def count_members(self, flow_id: str) -> list[tuple[str, int]]:
        counted: Counter[str] = Counter()
        for state_id, number in await self.fetch("count_members", flow_id):
            counted[PUBLIC_STATE_OF_ID[state_id]] += number
        return sorted(counted.items())

    async def fold_members(self, folding: Folding) -> list[MemberFold]:
        routes = (await self.routes_now()).by_id
        rows = await self.fetch("fold_members", *folded(folding))
        return [
            MemberFold(level, bool(child), routes.get(route), VECTOR_OF_ID[state], *rest)
            for level, child, route, state, *rest in rows
            if state in VECTOR_OF_ID
        ]

    async def fold_edges(self, folding: Folding) -> list[EdgeFold]:
        routes = (await self.routes_now()).by_id
        return [
            EdgeFold(
                (row[0], bool(row[1]), routes.get(row[2])),
                (row[3], bool(row[4]), routes.get(row[5])),
                row[6],
            )
            for row in await self.fetch("fold_edges", *folded(folding))
        ]

    async def find_members(self, wanted: MemberFilter, limit: int) -> list[str]:
        ids = (await self.routes_now()).ids
        numbers = [number for word in wanted.states for number in IDS_OF_PUBLIC_STATE[word]]
        routes = wanted.routes
        rows = await self.fetch(
            "find_members",
            wanted.flow_id,
            wanted.after,
            wanted.first_rank,
            wanted.last_rank,
            None if routes is None else self.listed([ids[each] for each in routes if each in ids]),
            self.listed(numbers),
            0 if wanted.is_free else 1,
            limit,
        )
        return [row[0] for row in rows if type(row) is not SpoiledRow]

    # --- searches and rows -----------------------------------------------------------------------

    async def search(self, search: Search[R]) -> list[R]:
        if search.is_held:
            await self.begin()

        async def fetch(asked: int | None) -> Rows:
            return await self._found(search, asked)

        if isinstance(search.index, ExecutionIndex):
            if search.limit is None:
                return cast("list[R]", await self._executions(await fetch(None)))
            found = await first_readable(fetch, self._executions, search.limit)
            return cast("list[R]", found)
        table = search.index.table
        if not search.skips_corrupt or search.limit is None:
            return table.from_rows(await fetch(search.limit))
        return await readable_rows(fetch, table.from_row, search.limit)

    async def search_keys(self, search: Search[Any]) -> list[Key]:
        if search.is_held:
            await self.begin()
        is_rows = not isinstance(search.index, ExecutionIndex)
        if is_rows and not await self.may_find(search):
            return []
        rows = await self._found(search, search.limit, is_keys=True)
        named = [tuple(row) for row in rows if type(row) is not SpoiledRow]
        return named if is_rows else [(execution_id_of(row[0], str(row[1])),) for row in named]

    async def _found(
        self, search: Search[Any], limit: int | None, *, is_keys: bool = False
    ) -> Rows:
        """The rows of a search; a route stands for its number."""
        prefixes: Sequence[Key] = search.prefixes
        if prefixes and search.size and search.index.order[0] == "route_id":
            ids = (await self.routes_now()).ids
            prefixes = [(ids[key[0]], *key[1:]) for key in prefixes if key[0] in ids]
        if not prefixes:
            return []
        form = form_of(search, is_keys=is_keys)._replace(is_one=len(prefixes) == 1)
        asked = self.NO_LIMIT if limit is None else limit
        values = bound_values(search, prefixes, asked, self.many)
        return await self.query(self.search_sql(form), values)

    async def rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        await self.begin()
        return await self._by_key(table, keys, hold=True)

    async def peek_rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        return await self._by_key(table, keys, hold=False)

    async def _by_key(self, table: Table[R], keys: Sequence[Key], *, hold: bool) -> dict[Key, R]:
        if not keys:
            return {}
        shared = keys[0][:-1]
        alike = len(keys) == 1 or all(key[:-1] == shared for key in keys)
        rows = await self.query(*self.by_key(table, keys, alike=alike, hold=hold))
        return {table.key_of(each): each for each in table.from_rows(rows)}

    async def every_row(self, table: Table[Any]) -> Rows:
        """A whole table by key, as stored."""
        return await self.query(every_row_sql(table))

    # --- logs ------------------------------------------------------------------------------------

    async def read_log(self, log: Log[R], query: LogQuery) -> list[tuple[Position, R]]:
        async def fetch(asked: int | None) -> Rows:
            sql = log.page_sql(columns_of(query), self.mark)
            return await self.query(sql, query_values(query, asked))

        if query.limit is None:
            return list(map(log.entry, await fetch(self.NO_LIMIT)))
        return await readable_rows(fetch, log.entry, query.limit)

    async def read_about(self, log: Log[R], subject: str, limit: int) -> list[tuple[Position, R]]:
        sql = log.about_sql(self.mark)
        return list(map(log.entry, await self.query(sql, (subject, limit))))

    async def log_place(
        self, log: Log[Any], after: Position, until: Position, count: int
    ) -> Position:
        rows = await self.query(log.nth_sql(self.mark), (after, until, count - 1))
        return rows[0][0] if rows else until

    async def count_log(self, log: Log[Any], tally: LogTally) -> list[LogCount]:
        rows = await self.query(log.count_sql(tally, self.mark), (tally.after, tally.until))
        return [counted(tuple(row)) for row in rows if type(row) is not SpoiledRow]

    async def trim(self, log: Log[Any], until: int, limit: int) -> list[Position]:
        sql = log.trim_sql(self.mark)
        return [row[0] for row in await self.query(sql, (until, limit))]

    # --- writes ----------------------------------------------------------------------------------

    async def create(self, changes: Changes) -> None:
        """Insert, never upsert: an absent row cannot be locked, so rivals must collide here."""
        created = changes.created.values()
        core, body = new_columns(created, self._book.ids)
        await self.insert("core", core)
        await self.insert("body", body)
        tags = [(e.execution_id[-36:], *pair) for e, _ in created for pair in e.tags.items()]
        await self.insert("tag", list(zip(*tags, strict=True)))

    async def gather(self, changes: Changes) -> None:
        """Write everything but new executions."""
        self.update_executions(changes)
        for key in sorted(changes.retagged, key=uuid_of):
            uuid, tags = key[-36:], changes.updated[key].tags
            await self.run("update_tags", uuid, tags_text(tags))
            await self.run("delete_tags", uuid)
            pairs = [(uuid, *pair) for pair in tags.items()]
            await self.insert("tag", list(zip(*pairs, strict=True)))
        for key in sorted(changes.rebound):
            await self.run("update_bounds", key[-36:], bounds_text(changes.updated[key].bounds))
        for key in sorted(changes.rerouted, key=uuid_of):
            route_id = self._book.ids[changes.updated[key].route]
            await self.run("update_core_route", key[-36:], route_id)
            await self.run("update_body_route", key[-36:], route_id)
        await self.insert("attempt", ATTEMPT.to_columns(changes.attempts))
        for log, events in changes.appended():
            self.append(log, events)
        passed = [(key[-36:], *body) for key, body in changes.payloads.items()]
        self.update("update_payload", list(zip(*passed, strict=True)))
        for table, written in changes.rows.items():
            self.write_rows(table, written)
            if table.in_catalog:
                await self.run("bump_catalog")

    async def purge(self, until: int, limit: int) -> int:
        keys = await self.search_keys(Search(PURGE, until=until, limit=limit, is_held=True))
        if keys:
            ids = [key[0] for key in keys]
            for table in TABLES:
                if table.of_execution:
                    sql = f"DELETE FROM {table.name} WHERE execution_id {self.AMONG}"
                    await self.query(sql, [self.listed(ids)])
            gone = self.listed(
                [each.partition("}:")[2] for each in ids]
            )  # also one that is no UUID
            for name in ("purge_tags", "purge_attempts", "purge_body", "purge_core"):
                await self.run(name, gone)
        return len(keys)

    async def sweep(self, *, keys_until: int, limit: int) -> int:
        return sum([await self._sweep(table, keys_until, limit) for table in SWEPT_TABLES])

    async def _sweep(self, table: Table[Any], until: int, limit: int) -> int:
        key, due = ", ".join(table.key_columns), table.due
        sql = (
            f"DELETE FROM {table.name} WHERE ({key}) IN (SELECT {key} FROM {table.name} "
            f"WHERE {due} <= {self.mark(1)} ORDER BY {due} LIMIT {self.mark(2)}{self.SKIPPING}) "
            "RETURNING 1"
        )
        return len(await self.query(sql, (until, limit)))

    # --- audits ----------------------------------------------------------------------------------

    async def odd_values(self) -> list[tuple[str, str]]:
        return await odd_values(self.query, self.mark)

    async def dump(self) -> dict[str, list[Any]]:
        """Everything stored, in a comparable order."""
        bodies = [
            body_from_row(execution_id_of(row[1], str(row[0])), row[2:])
            for row in await self.fetch("all_bodies")
        ]
        attempts = [
            attempt_from_row(execution_id_of(row[-1], str(row[0])), row)
            for row in await self.fetch("all_attempts")
        ]
        records = await self.records(await self.fetch("all_records"))
        return {
            "executions": sorted(records, key=lambda record: record.execution_id),
            "bodies": sorted(bodies, key=lambda body: body.execution_id),
            "attempts": sorted(attempts, key=lambda each: (each.execution_id, each.attempt_index)),
            **{each.name: each.from_rows(await self.every_row(each)) for each in TABLES},
            **{
                log.dumped_as: [event for _, event in await self.read_log(log, LogQuery())]
                for log in LOGS
            },
        }


def folded(folding: Folding) -> tuple[Any, ...]:
    """The values of a statement that folds."""
    return folding.flow_id, folding.levels_max, folding.by_task, folding.limit
