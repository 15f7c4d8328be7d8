"""The small tables over one SQLite connection."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

from flowfabric.model.record import Record, to_json
from flowfabric.stores.base import RowChanges
from flowfabric.stores.readable import readable_rows
from flowfabric.stores.spoiled import SpoiledRow
from flowfabric.stores.sqlite.bulk import SHARED_FROM_ROWS, Sheet, insert_columns, insert_one
from flowfabric.stores.tables import TABLES, Key, Layout, Table, every_row_sql, page_sql

R = TypeVar("R", bound=Record)

ALIKE_FROM_ROWS = 10  # from this many rows per statement, grouping them pays
_EVERYTHING: Final = frozenset[str]()  # no field is left out


@cache
def _columns(table: Table[Any]) -> str:
    return ", ".join(f"t.{name}" for name in table.names)


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


@cache
def rows_by_sql(table: Table[Any], column: str, only: str | None, *, is_one: bool) -> str:
    """Rows by an indexed column. One value is read in the order of the index, so that a page of
    many needs no sorting."""
    also = "" if only is None else f" AND t.{only} = ?"
    order = f"ORDER BY t.{table.key_columns[-1]} LIMIT ?"
    read = f"SELECT {_columns(table)} FROM"
    if is_one:
        return f"{read} {table.name} AS t WHERE t.{column} = ?{also} {order}"
    return (
        f"{read} json_each(?) AS wanted "
        f"CROSS JOIN {table.name} AS t ON t.{column} = wanted.value{also} {order}"
    )


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
    return Sheet(layout.name, layout.written_names)


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

    async def rows_of(
        self, table: Table[R], execution_ids: Sequence[str], *, is_open: bool = False
    ) -> list[R]:
        only = " AND t.closed_at IS NULL" if is_open else ""
        sql = (
            f"SELECT {_columns(table)} FROM json_each(?) AS wanted "
            f"CROSS JOIN {table.name} AS t ON t.execution_id = wanted.value{only}"
        )
        found = self._records(table, sql, to_json(execution_ids).decode())
        return sorted(found, key=table.key_of)

    async def rows_by(
        self,
        table: Table[R],
        column: str,
        values: Sequence[str],
        *,
        only: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> list[R]:
        is_one = len(values) == 1
        sql = rows_by_sql(table, column, None if only is None else only[0], is_one=is_one)
        wanted = values[0] if is_one else to_json(values).decode()
        last = () if only is None else (only[1],)
        return self._records(table, sql, wanted, *last, -1 if limit is None else limit)

    async def page_rows(
        self,
        table: Table[R],
        equal: Mapping[str, str],
        after: Key | None,
        limit: int,
        *,
        newest_first: bool,
    ) -> list[R]:
        marks = iter(range(1, 1000))
        sql = page_sql(table, equal, after, newest_first, lambda: f"?{next(marks)}")

        async def fetch(asked: int) -> list[Any]:
            values = (*equal.values(), *(after or ()), asked)
            return self._connection.execute(sql, values).fetchall()

        return await readable_rows(fetch, table.from_row, limit)

    async def oldest_rows(self, table: Table[R], owner: Key, limit: int) -> list[R]:
        match = " AND ".join(f"t.{name} = ?" for name in table.key_columns[: len(owner)])
        sql = (
            f"SELECT {_columns(table)} FROM {table.name} AS t "
            f"WHERE {match} AND t.{table.ordered} IS NOT NULL "
            f"ORDER BY t.{table.ordered}, {', '.join(table.key_columns)} LIMIT ?"
        )
        return self._records(table, sql, *owner, limit)

    async def due_keys(self, table: Table[R], until: int, limit: int) -> list[Key]:
        key, due = ", ".join(table.key_columns), table.due
        sql = f"SELECT {key} FROM {table.name} WHERE {due} <= ? ORDER BY {due}, {key} LIMIT ?"
        rows = self._connection.execute(sql, (until, limit)).fetchall()
        return [row for row in rows if type(row) is not SpoiledRow]

    async def list_rows(self, table: Table[R], after: Key | None, limit: int) -> list[R]:
        key = ", ".join(table.key_columns)
        where = "" if after is None else f"WHERE ({key}) > ({', '.join('?' * len(after))})"
        sql = f"SELECT {_columns(table)} FROM {table.name} AS t {where} ORDER BY {key} LIMIT ?"
        return self._records(table, sql, *(after or ()), limit)

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
            _, part = table.part_of(_EVERYTHING)
            self._connection.executemany(insert_one(sheet_of(table)), map(part, written.inserted))

    def _update_rows(self, table: Table[Any], written: RowChanges) -> None:
        """Rows that get the same values share a statement: a wide cascade changes thousands so."""
        names, part = table.part_of(frozenset(written.fields))
        rows = list(map(part, written.updated))
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
