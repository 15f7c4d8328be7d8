"""The small tables over one Postgres connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

from flowfabric.model.record import Record
from flowfabric.stores.base import RowChanges
from flowfabric.stores.postgres.arrays import SOURCE, Columns, Write, columns_of
from flowfabric.stores.readable import readable_rows
from flowfabric.stores.tables import (
    TABLES,
    TIMED_TABLES,
    Key,
    Layout,
    Table,
    every_row_sql,
    next_row_due,
    page_sql,
)

R = TypeVar("R", bound=Record)

_EARLIEST: Final = f"SELECT {', '.join(map(next_row_due, TIMED_TABLES))}"


@cache
def _columns(table: Table[Any]) -> str:
    return ", ".join(f"t.{name}" for name in table.names)


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
    kinds = _types(table)
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
def _types(layout: Layout[Any]) -> tuple[str, ...]:
    names = {"integer": "bigint", "blob": "bytea", "text": "text"}
    return tuple(names[each.kind] for each in layout.columns)


@cache
def insert_of(layout: Layout[Any]) -> Write:
    """The insert of new rows."""
    names = layout.written_names
    sql = f"INSERT INTO {layout.name} ({', '.join(names)}) SELECT * FROM {SOURCE} AS v"
    return Write(layout.name, names, sql, types=_types(layout))


@cache
def rows_by_sql(table: Table[Any], column: str, only: str | None) -> str:
    """One search of the index for each value, in its order and only as far as the limit: a page of
    a wide fan-out does not read all of it."""
    also = "" if only is None else f" AND t.{only} = $3"
    page = f"ORDER BY t.{table.key_columns[-1]} LIMIT $2"
    return (
        f"SELECT {_columns(table)} FROM unnest($1::text[]) AS wanted (value) "
        f"CROSS JOIN LATERAL (SELECT {_columns(table)} FROM {table.name} AS t "
        f"WHERE t.{column} = wanted.value{also} {page}) AS t {page}"
    )


@cache
def _update(table: Table[Any], names: tuple[str, ...]) -> Write:
    """Updates only changed columns; the key comes first."""
    size = len(table.key_columns)
    kinds = dict(zip(table.written_names, _types(table), strict=True))
    changes = ", ".join(f"{name} = v.{name}" for name in names[size:])
    sql = (
        f"UPDATE {table.name} AS t SET {changes} "
        f"FROM {SOURCE} AS v ({', '.join(names)}) WHERE {_match(table)}"
    )
    return Write(table.name, names, sql, types=[kinds[name] for name in names])


@cache
def _delete(table: Table[Any]) -> Write:
    names = table.key_columns
    keys = ", ".join(names)
    sql = f"DELETE FROM {table.name} AS t USING {SOURCE} AS v ({keys}) WHERE {_match(table)}"
    return Write(table.name, names, sql, types=_types(table)[: len(names)])


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

    async def rows_of(
        self, table: Table[R], execution_ids: Sequence[str], *, is_open: bool = False
    ) -> list[R]:
        only = "AND t.closed_at IS NULL " if is_open else ""
        sql = (
            f"SELECT {_columns(table)} FROM {table.name} AS t "
            f"WHERE t.execution_id = ANY($1::text[]) {only}ORDER BY {_key(table)}"
        )
        return await self._records(table, sql, list(execution_ids))

    async def rows_by(
        self,
        table: Table[R],
        column: str,
        values: Sequence[str],
        *,
        only: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> list[R]:
        sql = rows_by_sql(table, column, None if only is None else only[0])
        last = () if only is None else (only[1],)
        return await self._records(table, sql, list(values), limit, *last)

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
        sql = page_sql(table, equal, after, newest_first, lambda: f"${next(marks)}")

        async def fetch(asked: int) -> Sequence[Any]:
            rows: Sequence[Any] = await self._connection.fetch(
                sql, *equal.values(), *(after or ()), asked
            )
            return rows

        return await readable_rows(fetch, table.from_row, limit)

    async def oldest_rows(self, table: Table[R], owner: Key, limit: int) -> list[R]:
        names = table.key_columns[: len(owner)]
        match = " AND ".join(f"t.{name} = ${at}" for at, name in enumerate(names, start=1))
        sql = (
            f"SELECT {_columns(table)} FROM {table.name} AS t "
            f"WHERE {match} AND t.{table.ordered} IS NOT NULL "
            f"ORDER BY t.{table.ordered}, {_key(table)} LIMIT ${len(owner) + 1}"
        )
        return await self._records(table, sql, *owner, limit)

    async def due_keys(self, table: Table[R], until: int, limit: int) -> list[Key]:
        if table in TIMED_TABLES:
            if self._earliest is None:  # a caller that asks for one of them goes on to the next
                times = await self._connection.fetchrow(_EARLIEST)
                self._earliest = dict(zip(TIMED_TABLES, times, strict=True))
            earliest = self._earliest[table]
            if earliest is None or earliest > until:
                return []
        sql = (
            f"SELECT {_key(table)} FROM {table.name} AS t WHERE t.{table.due} <= $1 "
            f"ORDER BY t.{table.due}, {_key(table)} LIMIT $2"
        )
        return [tuple(row) for row in await self._connection.fetch(sql, until, limit)]

    async def list_rows(self, table: Table[R], after: Key | None, limit: int) -> list[R]:
        start = after or ()
        marks = ", ".join(f"${at}" for at in range(1, len(start) + 1))
        where = f"WHERE ({_key(table)}) > ({marks})" if start else ""
        sql = (
            f"SELECT {_columns(table)} FROM {table.name} AS t {where} "
            f"ORDER BY {_key(table)} LIMIT ${len(start) + 1}"
        )
        return await self._records(table, sql, *start, limit)

    def write_rows(self, table: Table[Any], written: RowChanges) -> None:
        """Defer writes to the flush; an insert of a taken key is an error."""
        self._earliest = None
        names, part = table.part_of(frozenset(written.fields))
        for write, rows in (
            (_delete(table), written.deleted),
            (_update(table, names), list(map(part, written.updated))),
        ):
            if rows:
                self._writes.append((write, columns_of(rows)))
        if written.inserted:
            self._writes.append((insert_of(table), table.to_columns(written.inserted)))
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
