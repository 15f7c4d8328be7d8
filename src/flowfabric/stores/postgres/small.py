"""The small tables over one Postgres connection."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeVar

from flowfabric.model.record import Record
from flowfabric.stores.base import RowChanges
from flowfabric.stores.execution_columns import CORE
from flowfabric.stores.indexes import DUE_OF, ExecutionIndex, Search
from flowfabric.stores.logs import Log
from flowfabric.stores.postgres.arrays import (
    BODY_OF_C,
    SOURCE,
    Write,
    append_to,
    insert_into,
    types_of,
    update_of,
)
from flowfabric.stores.postgres.usual import RECORD_COLUMNS
from flowfabric.stores.searches import Form, parts_of, target_of
from flowfabric.stores.sqlview import SqlView
from flowfabric.stores.tables import TIMED_TABLES, Columns, Key, Layout, Table, next_row_due

R = TypeVar("R", bound=Record)

_EARLIEST: Final = f"SELECT {', '.join(map(next_row_due, TIMED_TABLES))}"


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
    columns = ", ".join(f"t.{name}" for name in table.fields)
    keys = ", ".join(f"t.{name}" for name in table.key_columns)
    lock = "FOR UPDATE" if hold else "OFFSET 0"
    return (
        f"SELECT {columns} FROM unnest({arrays}) AS wanted ({', '.join(names[shared:])}) "
        f"CROSS JOIN LATERAL (SELECT {columns} FROM {table.name} AS t "
        f"WHERE {match} ORDER BY {keys} {lock}) AS t"
    )


@cache
def insert_of(layout: Layout[Any]) -> Write:
    """The insert of new rows."""
    return insert_into(layout.name, layout.columns)


@cache
def append_of(log: Log[Any]) -> Write:
    """The insert of events."""
    return append_to(log.name, log.columns)


def mark(number: int) -> str:
    """The placeholder of the value with this number."""
    return f"${number}"


@cache
def search_sql(form: Form) -> str:
    """One search of the index for each prefix, in its order and only as far as the limit: a page of
    a wide fan-out does not read all of it."""
    table, alias, columns = target_of(form, RECORD_COLUMNS)
    is_executions = isinstance(form.of, ExecutionIndex)
    source = f"{table} AS {alias}"
    then = f" {BODY_OF_C}" if is_executions and not form.is_keys else ""
    lock = f" FOR UPDATE OF {alias} SKIP LOCKED" if form.is_held else ""
    parts = parts_of(form, alias, mark, 1 if form.is_one else form.size + 1)
    page = f"ORDER BY {parts.order} LIMIT {parts.limit}"
    # Rows in the order of their keys alone would lure the planner to the index of the keys.
    inner = "OFFSET 0" if form.size == len(form.of.columns) < len(form.of.order) else page
    if form.is_one and inner is page:
        return f"SELECT {columns} FROM {source}{then} {parts.where} {page}{lock}"
    if form.is_one:
        wanted, where = "", parts.where
    else:
        names = form.of.order[: form.size]
        kinds = types_of(CORE.columns if is_executions else form.of.table.whole.columns, names)
        arrays = ", ".join(f"${at}::{kind}[]" for at, kind in enumerate(kinds, start=1))
        match = " AND ".join(f"{alias}.{name} = wanted.{name}" for name in names)
        wanted = f"unnest({arrays}) AS wanted ({', '.join(names)}) CROSS JOIN LATERAL "
        where = f"WHERE {match} {parts.where.replace('WHERE', 'AND', 1)}"
    found = f"SELECT {alias}.* FROM {source} {where} {inner}{lock}"
    return f"SELECT {columns} FROM {wanted}({found}) AS {alias}{then} {page}"


def many(keys: Sequence[Key]) -> list[Any]:
    """Keys, or prefixes of them, as values of a statement."""
    return [list(column) for column in zip(*keys, strict=True)]


@cache
def _update(table: Table[Any], names: tuple[str, ...]) -> Write:
    """Updates only changed columns; the key comes first."""
    columns = {column.name: column for column in table.columns}
    return update_of(table.name, [columns[name] for name in names], len(table.key_columns))


@cache
def _delete(table: Table[Any]) -> Write:
    names = table.key_columns
    keys, match = ", ".join(names), " AND ".join(f"t.{name} = v.{name}" for name in names)
    sql = f"DELETE FROM {table.name} AS t USING {SOURCE} AS v ({keys}) WHERE {match}"
    return Write(table.name, table.columns[: len(names)], sql)


class SmallTables(SqlView):
    """Searches, and writes to rows of any declared table, which are deferred to the flush."""

    _connection: Any
    _writes: list[tuple[Write, Columns]]
    # The earliest due time of each table, until one of them is written.
    _earliest: dict[Table[Any], int | None] | None = None

    mark, many, search_sql = staticmethod(mark), staticmethod(many), staticmethod(search_sql)

    async def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        rows: list[Any] = await self._connection.fetch(sql, *values)
        return rows

    def listed(self, values: Sequence[Any]) -> Sequence[Any]:
        return values

    def by_key(
        self, table: Table[Any], keys: Sequence[Key], *, alike: bool, hold: bool
    ) -> tuple[str, Sequence[Any]]:
        sql = _load(table, len(keys[0]), alike=alike, hold=hold)
        if alike:
            return sql, [*keys[0][:-1], [key[-1] for key in keys]]
        return sql, many(keys)

    async def may_find(self, search: Search[Any]) -> bool:
        """Whether a table has due rows: a caller that asks for one table goes on to the next, so
        all of them are looked at together."""
        table = search.index.table
        is_due = search.until is not None and search.index is DUE_OF.get(table)
        if not is_due or table not in TIMED_TABLES:
            return True
        if self._earliest is None:
            times = await self._connection.fetchrow(_EARLIEST)
            self._earliest = dict(zip(TIMED_TABLES, times, strict=True))
        earliest = self._earliest[table]
        return earliest is not None and earliest <= (search.until or 0)

    def write_rows(self, table: Table[Any], written: RowChanges) -> None:
        self._earliest = None
        part = table.part_of(frozenset(written.fields))
        for write, columns in (
            (_delete(table), list(zip(*written.deleted, strict=True))),
            (_update(table, part.names), part.to_columns(written.updated)),
            (insert_of(table), table.to_columns(written.inserted)),
        ):
            if columns:
                self._writes.append((write, columns))
        for values, keys in written.alike:
            same = [(value,) * len(keys) for value in table.stored(values)]
            write = _update(table, (*table.key_columns, *values))
            self._writes.append((write, [*zip(*keys, strict=True), *same]))

    def append(self, log: Log[R], events: Sequence[R]) -> None:
        self._writes.append((append_of(log), log.to_columns(events)))
