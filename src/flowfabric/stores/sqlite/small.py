"""The small tables over one SQLite connection."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from flowfabric.model.record import Record, to_json
from flowfabric.stores.base import RowChanges
from flowfabric.stores.indexes import ExecutionIndex
from flowfabric.stores.logs import Log
from flowfabric.stores.queries import RECORD_COLUMNS
from flowfabric.stores.searches import Form, parts_of, target_of
from flowfabric.stores.sqlite.bulk import Sheet, insert_columns
from flowfabric.stores.sqlview import SqlView
from flowfabric.stores.tables import Key, Layout, Table

R = TypeVar("R", bound=Record)

ALIKE_FROM_ROWS = 10  # from this many rows per statement, grouping them pays


@cache
def _load(table: Table[Any], size: int, *, alike: bool) -> str:
    """Keys that are `alike` differ in their last part only, which is much less to read."""
    *names, last = table.key_columns[:size]
    if alike:
        match = [*(f"t.{name} = ?" for name in names), f"t.{last} = wanted.value"]
    else:
        match = [f"t.{name} = wanted.value ->> {at}" for at, name in enumerate((*names, last))]
    columns = ", ".join(f"t.{name}" for name in table.fields)
    return (
        f"SELECT {columns} FROM json_each(?) AS wanted "
        f"CROSS JOIN {table.name} AS t ON {' AND '.join(match)}"
    )


def mark(number: int) -> str:
    """The placeholder of the value with this number."""
    return f"?{number}"


@cache
def search_sql(form: Form) -> str:
    """One prefix is read in the order of the index, so that a page of many needs no sorting. The
    index of executions is named: statistics must not change the plan."""
    table, alias, columns = target_of(form, RECORD_COLUMNS)
    is_executions = isinstance(form.of, ExecutionIndex)
    source = f"{table} AS {alias}" + (f" INDEXED BY {form.of.name}" if is_executions else "")
    if not form.is_one:  # the prefixes are the first value
        names = form.of.order[: form.size]
        parts = [""] if len(names) == 1 else [f" ->> {at}" for at in range(len(names))]
        match = " AND ".join(
            f"{alias}.{name} = wanted.value{part}" for name, part in zip(names, parts, strict=True)
        )
        source = f"json_each(?1) AS wanted CROSS JOIN {source} ON {match}"
    if is_executions and not form.is_keys:
        source += " CROSS JOIN ff_exec_body AS b ON b.execution_id = c.execution_id"
    where, order, limit = parts_of(form, alias, mark, 1 if form.is_one else 2)
    return f"SELECT {columns} FROM {source} {where} ORDER BY {order} LIMIT {limit}"


def many(keys: Sequence[Key]) -> list[str]:
    """Keys, or prefixes of them, as values of a statement."""
    return [to_json([key[0] for key in keys] if len(keys[0]) == 1 else keys).decode()]


@cache
def _update(table: Table[Any], names: tuple[str, ...]) -> str:
    """Updates only changed columns: an index without any of them is left alone."""
    size = len(table.key_columns)
    changes = ", ".join(f"{name} = ?{n}" for n, name in enumerate(names[size:], start=size + 1))
    return f"UPDATE {table.name} SET {changes} WHERE {_match(table)}"


@cache
def _update_alike(table: Table[Any], names: tuple[str, ...]) -> str:
    """Rows with keys that differ in their last part only and that get the same values."""
    *shared, last = table.key_columns
    size = len(table.key_columns)
    changes = ", ".join(f"{name} = ?{n}" for n, name in enumerate(names, start=size))
    match = "".join(f"{name} = ?{at} AND " for at, name in enumerate(shared, start=1))
    wanted = f"(SELECT value FROM json_each(?{size + len(names)}))"
    return f"UPDATE {table.name} SET {changes} WHERE {match}{last} IN {wanted}"


@cache
def _match(table: Table[Any]) -> str:
    return " AND ".join(f"{name} = ?{at}" for at, name in enumerate(table.key_columns, start=1))


@cache
def _sheet(layout: Layout[Any]) -> Sheet:
    return Sheet(layout.name, layout.names)


def _by_shared(keys: Sequence[Key]) -> dict[Key, Sequence[Any]]:
    """The last parts of keys, grouped by the rest, which is mostly one group."""
    *columns, last = zip(*keys, strict=True)
    if all(column.count(column[0]) == len(keys) for column in columns):
        return {keys[0][:-1]: last}
    lasts: defaultdict[Key, list[Any]] = defaultdict(list)
    for key in keys:
        lasts[key[:-1]].append(key[-1])
    return dict(lasts)


class SmallTables(SqlView):
    """Searches, and writes to rows of any declared table."""

    _connection: sqlite3.Connection

    mark, many, search_sql = staticmethod(mark), staticmethod(many), staticmethod(search_sql)

    async def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        # Fetch all at once: a row that cannot be decoded would leave the statement open, and with
        # it the snapshot, for as long as the error is referenced. No write could begin then.
        return self._connection.execute(sql, values).fetchall()

    def listed(self, values: Sequence[Any]) -> str:
        return to_json(values).decode()

    def by_key(
        self, table: Table[Any], keys: Sequence[Key], *, alike: bool, hold: bool
    ) -> tuple[str, Sequence[Any]]:
        sql = _load(table, len(keys[0]), alike=alike)  # the file's write lock holds everything
        if alike:
            return sql, (*many([key[-1:] for key in keys]), *keys[0][:-1])
        return sql, many(keys)

    def write_rows(self, table: Table[Any], written: RowChanges) -> None:
        if written.deleted:
            sql = f"DELETE FROM {table.name} WHERE {_match(table)}"
            self._connection.executemany(sql, written.deleted)
        if written.updated:
            self._update_rows(table, written)
        for values, keys in written.alike:
            self._set_alike(table, tuple(values), table.stored(values), keys)
        insert_columns(self._connection, _sheet(table), table.to_columns(written.inserted))

    def append(self, log: Log[R], events: Sequence[R]) -> None:
        insert_columns(self._connection, _sheet(log), log.to_columns(events))

    def _update_rows(self, table: Table[Any], written: RowChanges) -> None:
        """Rows that get the same values share a statement: a wide cascade changes thousands so."""
        part = table.part_of(frozenset(written.fields))
        rows, names = list(zip(*part.to_columns(written.updated), strict=True)), part.names
        size = len(table.key_columns)
        if len(rows) >= ALIKE_FROM_ROWS:
            alike: dict[tuple[Any, ...], list[Key]] = {}
            for row in rows:
                alike.setdefault(row[size:], []).append(row[:size])
            if len(alike) * ALIKE_FROM_ROWS <= len(rows):
                for values, keys in alike.items():
                    self._set_alike(table, names[size:], values, keys)
                return
        self._connection.executemany(_update(table, names), rows)

    def _set_alike(
        self, table: Table[Any], names: tuple[str, ...], values: Sequence[Any], keys: Sequence[Key]
    ) -> None:
        sql = _update_alike(table, names)
        for shared, last in _by_shared(keys).items():
            self._connection.execute(sql, (*shared, *values, to_json(last).decode()))
