"""The floor: the row writes of a cycle as bare SQL, and nothing else.

The same tables, columns, indexes and checks (the engine's own migrated schema), the same batch
size, the same three commits per batch with the same durability. Values are worked out before the
clock starts. There is no rule, no read, no lock and no id to find: SQLite gets one `executemany`
per table; Postgres one statement per table, in which a column that is the same in the whole batch
travels once and the others as `unnest` arrays: of the forms tried (an array per column, arrays of
rows, COPY) this one takes the least CPU time. An insert leaves out what the schema fills in by
itself, an update what the step does not change.
What the engine adds on top of this is what the ratio shows. SQLite has a second, stricter floor:
statements of a hundred rows in which shared values travel once, which is how the engine writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain, compress
from typing import Any

from benchmarks.scenarios.raw import PostgresDatabase, Row, SqliteDatabase, connect
from benchmarks.scenarios.specimen import CORE, Image, Specimen
from flowfabric.bench.measurement import check_count
from flowfabric.clock import monotonic
from flowfabric.ids import new_execution_id, new_secret_id
from flowfabric.model.record import Record

_UUID_LENGTH = 36
_WIDE = 100

Batch = list[list[tuple[str, Any]]]  # steps of (statement, rows or arrays)


class Identity:
    """What differs between two executions of the same kind."""

    __slots__ = ("attempt_id", "lease_id", "partition_key", "uuid", "wire_id")

    def __init__(self) -> None:
        self.wire_id = new_execution_id()
        self.uuid = self.wire_id[-_UUID_LENGTH:]
        self.partition_key = int(self.wire_id[4 : self.wire_id.index("}")])
        self.lease_id = new_secret_id()
        self.attempt_id = new_secret_id()

    def value(self, column: str, example: Any) -> Any:
        """This execution's value where the specimen has `example`."""
        if example is None:
            return None
        if column == "execution_id":
            return self.uuid if len(str(example)) == _UUID_LENGTH else self.wire_id
        if column in ("lease_id", "attempt_id", "partition_key"):
            return getattr(self, column)
        return example


async def measure_floor(
    url: str, specimen: Specimen, n: int, batch: int, *, drivers: int = 1, wide: bool = False
) -> float:
    """Cycles per second of bare SQL on an empty, migrated database."""
    connections = [await connect(url) for _ in range(drivers)]
    try:
        before = await _completed(connections[0])
        batches = [
            _batch(connections[0].family, specimen, min(batch, n - start), wide=wide)
            for start in range(0, n, batch)
        ]
        queue = iter(batches)
        started = monotonic()
        await asyncio.gather(*(_drive(connection, queue) for connection in connections))
        seconds = monotonic() - started
        check_count("cycles of the floor", await _completed(connections[0]) - before, n)
    finally:
        for connection in connections:
            await connection.close()
    return n / seconds


async def _drive(connection: SqliteDatabase | PostgresDatabase, queue: Iterator[Batch]) -> None:
    begin = "BEGIN IMMEDIATE" if connection.family == "sqlite" else "BEGIN"
    for steps in queue:
        for writes in steps:
            await connection.execute(begin)
            for sql, rows in writes:
                await connection.write(sql, rows)
            await connection.execute("COMMIT")


async def _completed(connection: SqliteDatabase | PostgresDatabase) -> int:
    return int((await connection.fetch("SELECT count(*) FROM ff_completion_event"))[0][0])


def _batch(family: str, specimen: Specimen, size: int, *, wide: bool) -> Batch:
    """The three transactions of one batch, ready to send."""
    who = [Identity() for _ in range(size)]
    before: dict[str, Image] = {}
    steps: Batch = []
    for images in (specimen.created, specimen.claimed, specimen.completed):
        writes = []
        for image in images:
            former = before.get(image.table) if image.table == CORE else None
            writes += _write(family, image, former, who, wide=wide)
            before[image.table] = image
        steps.append(writes)
    return steps


def _write(
    family: str, image: Image, former: Image | None, who: Sequence[Identity], *, wide: bool
) -> list[tuple[str, Any]]:
    """The statements of one table: inserts, or updates of rows that were written before."""
    cells = list(zip(image.columns, image.values, image.declared, strict=True))
    if former is None:
        kept = [cell for cell in cells if not cell[2].is_filled_with(cell[1])]
    else:
        kept = [cell for at, cell in enumerate(cells) if cell[1] != former.values[at]]
        kept.append(cells[image.columns.index("execution_id")])
    columns = [name for name, _, _ in kept]
    pattern = [(name, example) for name, example, _ in kept]
    rows: list[Row] = [tuple(each.value(*pair) for pair in pattern) for each in who]
    if family == "sqlite" and wide:
        return _wide_statements(image.table, columns, rows, is_update=former is not None)
    if family == "sqlite":
        return [(_sqlite_statement(image.table, columns, is_update=former is not None), rows)]
    shape = _Shape(image.table, columns, [column.type for _, _, column in kept], former is not None)
    return [shape.statement(rows)]


def _wide_statements(
    table: str, columns: list[str], rows: list[Row], *, is_update: bool
) -> list[tuple[str, Any]]:
    """A hundred rows to a statement; a value that all rows share travels once."""
    by_column = list(zip(*rows, strict=True))
    varies = [
        name == "execution_id" or any(value != column[0] for value in column)
        for name, column in zip(columns, by_column, strict=True)
    ]
    shared = [column[0] for column, own in zip(by_column, varies, strict=True) if not own]
    sources, own = [], 0
    for each in varies:
        own += each
        sources.append(f"v.column{own}" if each else "?")
    statements = []
    for start in range(0, len(rows), _WIDE):
        chunk = [list(compress(row, varies)) for row in rows[start : start + _WIDE]]
        marks = ", ".join([f"({', '.join('?' * own)})"] * len(chunk))
        source = f"(VALUES {marks}) AS v"
        if is_update:
            pairs = list(zip(columns, sources, strict=True))[:-1]
            changes = ", ".join(f"{name} = {value}" for name, value in pairs)
            found = f"execution_id = {sources[-1]}"
            sql = f"UPDATE {table} SET {changes} FROM {source} WHERE {found}"
        else:
            names = ", ".join(columns)
            sql = f"INSERT INTO {table} ({names}) SELECT {', '.join(sources)} FROM {source}"
        statements.append((sql, [(*shared, *chain.from_iterable(chunk))]))
    return statements


def _sqlite_statement(table: str, columns: list[str], *, is_update: bool) -> str:
    if is_update:
        changes = ", ".join(f"{name} = ?" for name in columns[:-1])
        return f"UPDATE {table} SET {changes} WHERE execution_id = ?"
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"


class _Shape(Record, frozen=True):
    """One set-based statement of Postgres."""

    table: str
    columns: list[str]
    types: list[str]
    is_update: bool

    def statement(self, rows: Sequence[Row]) -> tuple[str, list[Any]]:
        """What is the same in every row travels once, the rest as one array per column."""
        parameters: list[Any] = []
        values, arrays, varying = [], [], []
        by_column = zip(self.columns, self.types, zip(*rows, strict=True), strict=True)
        for name, kind, column in by_column:
            if name != "execution_id" and all(value == column[0] for value in column):
                parameters.append(column[0])
                values.append(f"${len(parameters)}::{kind}")
            else:
                parameters.append(list(column))
                arrays.append(f"${len(parameters)}::{kind}[]")
                varying.append(name)
                values.append(f"v.{name}")
        source = f"unnest({', '.join(arrays)}) AS v ({', '.join(varying)})"
        return self._sql(values, source), parameters

    def _sql(self, values: list[str], source: str) -> str:
        if self.is_update:
            pairs = list(zip(self.columns, values, strict=True))[:-1]
            changes = ", ".join(f"{name} = {value}" for name, value in pairs)
            found = "c.execution_id = v.execution_id"
            return f"UPDATE {self.table} AS c SET {changes} FROM {source} WHERE {found}"
        names = ", ".join(self.columns)
        return f"INSERT INTO {self.table} ({names}) SELECT {', '.join(values)} FROM {source}"
