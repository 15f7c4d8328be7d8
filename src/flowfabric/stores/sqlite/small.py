"""The small tables over one SQLite connection."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from flowfabric.model.record import Record, to_json
from flowfabric.stores.base import RowChanges
from flowfabric.stores.indexes import Search
from flowfabric.stores.readable import readable_rows
from flowfabric.stores.searches import Form, form_of, parts_of, values_of
from flowfabric.stores.spoiled import SpoiledRow
from flowfabric.stores.sqlite.bulk import SHARED_FROM_ROWS, Sheet, insert_columns, insert_one
from flowfabric.stores.tables import TABLES, Key, Layout, Table, every_row_sql

R = TypeVar("R", bound=Record)

ALIKE_FROM_ROWS = 10  # from this many rows per statement, grouping them pays


@cache
def _columns(table: Table[Any]) -> str:
    return ", ".join(f"t.{name}" for name in table.fields)


@cache
def _load(table: Table[Any], size: int) -> str:
    match = " AND ".join(
        f"t.{name} = wanted.value ->> {at}" for at, name in enumerate(table.key_columns[:size])
    )
    return (
        f"SELECT {_columns(table)} FROM json_each(?) AS wanted "
        f"CROSS JOIN {table.name} AS t ON {match}"
    )


@cache
def _load_alike(table: Table[Any], size: int) -> str:
    """For keys that differ in their last part only, which is much less to read."""
    *alike, last = table.key_columns[:size]
    match = " AND ".join([*(f"t.{name} = ?" for name in alike), f"t.{last} = wanted.value"])
    return (
        f"SELECT {_columns(table)} FROM json_each(?) AS wanted "
        f"CROSS JOIN {table.name} AS t ON {match}"
    )


def mark(number: int) -> str:
    """The placeholder of the value with this number."""
    return f"?{number}"


@cache
def search_sql(form: Form) -> str:
    """One prefix is read in the order of the index, so that a page of many needs no sorting."""
    table = form.of.table
    names = table.key_columns if form.is_keys else table.fields
    parts = parts_of(form, "t", mark, 1 if form.is_one else 2)
    source = f"{table.name} AS t" if form.is_one else wanted_sql(form, f"{table.name} AS t", "t")
    columns = ", ".join(f"t.{name}" for name in names)
    page = f"ORDER BY {parts.order} LIMIT {parts.limit}"
    return f"SELECT {columns} FROM {source} {parts.where} {page}"


def wanted_sql(form: Form, source: str, alias: str) -> str:
    """The rows of many prefixes, which are the first value."""
    names = form.of.order[: form.size]
    parts = [""] if len(names) == 1 else [f" ->> {at}" for at in range(len(names))]
    match = " AND ".join(
        f"{alias}.{name} = wanted.value{part}" for name, part in zip(names, parts, strict=True)
    )
    return f"json_each(?1) AS wanted CROSS JOIN {source} ON {match}"


def search_values(search: Search[Any], prefixes: Sequence[Key], limit: int | None) -> list[Any]:
    """The values of a search's statement."""
    first: Sequence[Any]
    if len(prefixes) == 1:
        first = prefixes[0]
    else:
        is_narrow = search.size == 1
        first = [to_json([key[0] for key in prefixes] if is_narrow else prefixes).decode()]
    return [*first, *values_of(search), -1 if limit is None else limit]


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
def sheet_of(layout: Layout[Any]) -> Sheet:
    """All columns."""
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


class SmallTables:
    """Loads and writes rows of any declared table."""

    _connection: sqlite3.Connection

    def _records(self, table: Table[R], sql: str, *values: Any) -> list[R]:
        # Fetch all first: a row that cannot be decoded would leave the statement open, and with it
        # the snapshot, for as long as the error is referenced. No write could begin then.
        rows = self._connection.execute(sql, values).fetchall()
        return table.from_rows(rows)

    async def peek_rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        if not keys:
            return {}
        size, alike = len(keys[0]), keys[0][:-1]
        if len(keys) == 1 or all(key[:-1] == alike for key in keys):
            lasts = to_json([key[-1] for key in keys]).decode()
            found = self._records(table, _load_alike(table, size), lasts, *alike)
        else:
            found = self._records(table, _load(table, size), to_json(keys).decode())
        return {table.key_of(record): record for record in found}

    rows = peek_rows

    async def search_rows(self, search: Search[R]) -> list[R]:
        """The rows a search finds."""
        sql, table = search_sql(form_of(search)), search.index.table

        def read(limit: int | None) -> list[Any]:
            values = search_values(search, search.prefixes, limit)
            return self._connection.execute(sql, values).fetchall()

        if not search.skips_corrupt or search.limit is None:
            return table.from_rows(read(search.limit))

        async def fetch(asked: int) -> list[Any]:
            return read(asked)

        return await readable_rows(fetch, table.from_row, search.limit)

    def search_row_keys(self, search: Search[Any]) -> list[Key]:
        """The keys of the rows a search finds; keys that are not text cannot be named."""
        values = search_values(search, search.prefixes, search.limit)
        rows = self._connection.execute(search_sql(form_of(search, is_keys=True)), values)
        return [row for row in rows.fetchall() if type(row) is not SpoiledRow]

    def write_rows(self, table: Table[Any], written: RowChanges) -> None:
        """Insert, update and delete; an insert of a taken key is an error."""
        if written.deleted:
            sql = f"DELETE FROM {table.name} WHERE {_match(table)}"
            self._connection.executemany(sql, written.deleted)
        if written.updated:
            self._update_rows(table, written)
        for values, keys in written.alike:
            self._set_alike(table, tuple(values), table.stored(values), keys)
        if len(written.inserted) >= SHARED_FROM_ROWS:
            insert_columns(self._connection, sheet_of(table), table.to_columns(written.inserted))
        elif written.inserted:
            rows = map(table.to_row, written.inserted)
            self._connection.executemany(insert_one(sheet_of(table)), rows)

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

    def sweep_rows(self, table: Table[Any], until: int, limit: int) -> int:
        """Delete expired rows."""
        key, due = ", ".join(table.key_columns), table.due
        sql = (
            f"DELETE FROM {table.name} WHERE ({key}) IN "
            f"(SELECT {key} FROM {table.name} WHERE {due} <= ? ORDER BY {due} LIMIT ?)"
        )
        return self._connection.execute(sql, (until, limit)).rowcount

    def purge_rows(self, execution_ids: Sequence[str]) -> None:
        """Delete rows of purged executions."""
        for table in TABLES:
            if table.of_execution:
                sql = f"DELETE FROM {table.name} WHERE execution_id = ?"
                self._connection.executemany(sql, ((each,) for each in execution_ids))

    def every_row(self, table: Table[Any]) -> list[Any]:
        """A whole table by key, as stored."""
        return self._connection.execute(every_row_sql(table)).fetchall()

    def dump_rows(self) -> dict[str, list[Any]]:
        """Every table by name."""
        return {table.name: table.from_rows(self.every_row(table)) for table in TABLES}
