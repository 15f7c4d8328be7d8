"""The small tables over one Postgres connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

from flowfabric.model.record import Record
from flowfabric.stores.base import RowChanges
from flowfabric.stores.indexes import DUE_OF, Search
from flowfabric.stores.postgres.arrays import (
    SOURCE,
    Columns,
    Write,
    columns_of,
    insert_into,
    types_of,
)
from flowfabric.stores.readable import readable_rows
from flowfabric.stores.searches import Form, form_of, parts_of, values_of
from flowfabric.stores.tables import (
    TABLES,
    TIMED_TABLES,
    Key,
    Layout,
    Table,
    every_row_sql,
    next_row_due,
)

R = TypeVar("R", bound=Record)

_EARLIEST: Final = f"SELECT {', '.join(map(next_row_due, TIMED_TABLES))}"


@cache
def _columns(table: Table[Any]) -> str:
    return ", ".join(f"t.{name}" for name in table.fields)


@cache
def _key(table: Table[Any]) -> str:
    return ", ".join(f"t.{name}" for name in table.key_columns)


@cache
def _load(table: Table[Any], size: int, *, alike: bool, hold: bool) -> str:
    """One search of the key for each row, in the given order, which is also the order of the locks.

    A plan made while the table was small must not read all of it later, hence no plain join. Keys
    that are `alike` differ in their last part only: the shared parts travel once.
    """
    names = table.key_columns[:size]
    shared = size - 1 if alike else 0
    kinds = types_of(table.columns)
    arrays = ", ".join(f"${at}::{kinds[at - 1]}[]" for at in range(shared + 1, size + 1))
    match = " AND ".join(
        f"t.{name} = ${at}::{kinds[at - 1]}" if at <= shared else f"t.{name} = wanted.{name}"
        for at, name in enumerate(names, start=1)
    )
    lock = "FOR UPDATE" if hold else "OFFSET 0"
    return (
        f"SELECT {_columns(table)} FROM unnest({arrays}) AS wanted ({', '.join(names[shared:])}) "
        f"CROSS JOIN LATERAL (SELECT {_columns(table)} FROM {table.name} AS t "
        f"WHERE {match} ORDER BY {_key(table)} {lock}) AS t"
    )


@cache
def insert_of(layout: Layout[Any]) -> Write:
    """The insert of new rows."""
    return insert_into(layout.name, layout.columns)


def mark(number: int) -> str:
    """The placeholder of the value with this number."""
    return f"${number}"


@cache
def search_sql(form: Form) -> str:
    """One search of the index for each prefix, in its order and only as far as the limit: a page of
    a wide fan-out does not read all of it."""
    table = form.of.table
    whole = table.whole
    kinds = dict(zip(whole.names, types_of(whole.columns), strict=True))
    names = table.key_columns if form.is_keys else table.fields
    columns = ", ".join(f"t.{name}" for name in names)
    return merged_sql(form, columns, f"{table.name} AS t", "t", kinds)


def merged_sql(
    form: Form, columns: str, source: str, alias: str, kinds: Mapping[str, str], then: str = ""
) -> str:
    """The statement of a search. `then`: what is read beside each row."""
    lock = f" FOR UPDATE OF {alias} SKIP LOCKED" if form.is_held else ""
    first = 1 if form.is_one else form.size + 1
    parts = parts_of(form, alias, mark, first)
    page = f"ORDER BY {parts.order} LIMIT {parts.limit}"
    # Rows in the order of their keys alone would lure the planner to the index of the keys.
    inner = "OFFSET 0" if form.size == len(form.of.columns) < len(form.of.order) else page
    if form.is_one and inner is page:
        return f"SELECT {columns} FROM {source}{then} {parts.where} {page}{lock}"
    found = f"SELECT {alias}.* FROM {source} {parts.where} {inner}{lock}"
    if form.is_one:
        return f"SELECT {columns} FROM ({found}) AS {alias}{then} {page}"
    names = form.of.order[: form.size]
    arrays = ", ".join(f"${at}::{kinds[name]}[]" for at, name in enumerate(names, start=1))
    match = " AND ".join(f"{alias}.{name} = wanted.{name}" for name in names)
    where = f"WHERE {match} {parts.where.replace('WHERE', 'AND', 1)}"
    return (
        f"SELECT {columns} FROM unnest({arrays}) AS wanted ({', '.join(names)}) "
        f"CROSS JOIN LATERAL (SELECT {alias}.* FROM {source} {where} {inner}{lock}) "
        f"AS {alias}{then} {page}"
    )


def search_values(search: Search[Any], prefixes: Sequence[Key], limit: int | None) -> list[Any]:
    """The values of a search's statement."""
    first: Sequence[Any]
    if len(prefixes) == 1:
        first = prefixes[0]
    else:
        first = [list(column) for column in zip(*prefixes, strict=True)]
    return [*first, *values_of(search), limit]


@cache
def _update(table: Table[Any], names: tuple[str, ...]) -> Write:
    """Updates only changed columns; the key comes first."""
    size = len(table.key_columns)
    columns = {column.name: column for column in table.columns}
    changes = ", ".join(f"{name} = v.{name}" for name in names[size:])
    sql = (
        f"UPDATE {table.name} AS t SET {changes} "
        f"FROM {SOURCE} AS v ({', '.join(names)}) WHERE {_match(table)}"
    )
    return Write(table.name, [columns[name] for name in names], sql)


@cache
def _delete(table: Table[Any]) -> Write:
    names = table.key_columns
    keys = ", ".join(names)
    sql = f"DELETE FROM {table.name} AS t USING {SOURCE} AS v ({keys}) WHERE {_match(table)}"
    return Write(table.name, table.columns[: len(names)], sql)


@cache
def _match(table: Table[Any]) -> str:
    return " AND ".join(f"t.{name} = v.{name}" for name in table.key_columns)


class SmallTables:
    """Loads and writes rows of any declared table."""

    _connection: Any
    _writes: list[tuple[Write, Columns]]
    # The earliest due time of each table, until one of them is written.
    _earliest: dict[Table[Any], int | None] | None = None

    async def begin(self) -> None:
        """Called before a lock or a write: it belongs to this view's transaction."""

    async def _records(self, table: Table[R], sql: str, *values: Any) -> list[R]:
        return table.from_rows(await self._connection.fetch(sql, *values))

    async def rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        await self.begin()
        return await self._by_key(table, keys, hold=True)

    async def peek_rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        return await self._by_key(table, keys, hold=False)

    async def _by_key(self, table: Table[R], keys: Sequence[Key], *, hold: bool) -> dict[Key, R]:
        if not keys:
            return {}
        size, shared = len(keys[0]), keys[0][:-1]
        alike = all(key[:-1] == shared for key in keys)
        if alike:
            values = [*shared, [key[-1] for key in keys]]
        else:
            values = [list(column) for column in zip(*keys, strict=True)]
        sql = _load(table, size, alike=alike, hold=hold)
        return {table.key_of(each): each for each in await self._records(table, sql, *values)}

    async def search_rows(self, search: Search[R]) -> list[R]:
        """The rows a search finds."""
        sql, table = search_sql(form_of(search)), search.index.table

        async def fetch(asked: int | None) -> Sequence[Any]:
            values = search_values(search, search.prefixes, asked)
            rows: Sequence[Any] = await self._connection.fetch(sql, *values)
            return rows

        if not search.skips_corrupt or search.limit is None:
            return table.from_rows(await fetch(search.limit))
        return await readable_rows(fetch, table.from_row, search.limit)

    async def search_row_keys(self, search: Search[Any]) -> list[Key]:
        """The keys of the rows a search finds."""
        if search.until is not None and not await self._is_due(search):
            return []
        values = search_values(search, search.prefixes, search.limit)
        rows = await self._connection.fetch(search_sql(form_of(search, is_keys=True)), *values)
        return [tuple(row) for row in rows]

    async def _is_due(self, search: Search[Any]) -> bool:
        """Whether a table has due rows: a caller that asks for one table goes on to the next, so
        all of them are looked at together."""
        if search.index is not DUE_OF.get(search.index.table) or (
            search.index.table not in TIMED_TABLES
        ):
            return True
        if self._earliest is None:
            times = await self._connection.fetchrow(_EARLIEST)
            self._earliest = dict(zip(TIMED_TABLES, times, strict=True))
        earliest = self._earliest[search.index.table]
        return earliest is not None and earliest <= (search.until or 0)

    def write_rows(self, table: Table[Any], written: RowChanges) -> None:
        """Defer writes to the flush; an insert of a taken key is an error."""
        self._earliest = None
        part = table.part_of(frozenset(written.fields))
        for write, columns in (
            (_delete(table), columns_of(written.deleted)),
            (_update(table, part.names), part.to_columns(written.updated)),
            (insert_of(table), table.to_columns(written.inserted)),
        ):
            if columns:
                self._writes.append((write, columns))
        for values, keys in written.alike:
            same = [(value,) * len(keys) for value in table.stored(values)]
            write = _update(table, (*table.key_columns, *values))
            self._writes.append((write, [*zip(*keys, strict=True), *same]))

    async def sweep_rows(self, table: Table[Any], until: int, limit: int) -> int:
        """Delete expired rows."""
        key, due = ", ".join(table.key_columns), table.due
        sql = (
            f"WITH gone AS (DELETE FROM {table.name} WHERE ({key}) IN (SELECT {key} "
            f"FROM {table.name} WHERE {due} <= $1 ORDER BY {due} LIMIT $2 "
            f"FOR UPDATE SKIP LOCKED) RETURNING 1) SELECT count(*) FROM gone"
        )
        return int(await self._connection.fetchval(sql, until, limit))

    async def purge_rows(self, execution_ids: Sequence[str]) -> None:
        """Delete rows of purged executions."""
        for table in TABLES:
            if table.of_execution:
                sql = f"DELETE FROM {table.name} WHERE execution_id = ANY($1::text[])"
                await self._connection.execute(sql, list(execution_ids))

    async def every_row(self, table: Table[Any]) -> Sequence[Any]:
        """A whole table by key, as stored."""
        rows: Sequence[Any] = await self._connection.fetch(every_row_sql(table))
        return rows

    async def dump_rows(self) -> dict[str, list[Any]]:
        """Every table by name."""
        return {table.name: table.from_rows(await self.every_row(table)) for table in TABLES}
