"""Whole batches as a few parameters: one per column.

Values that all rows share travel once, the rest as arrays, and all tables of a save in one
statement: that takes less CPU time on both sides than a COPY per table. Arrays travel as text
literals because building one is a join in C, while the driver's own array encoder asks of every
element whether it is a nested array. A parameter must fit into a message, so heavy rows are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from flowfabric.stores.execution_columns import (
    ALL,
    ATTEMPT,
    FREED,
    HOT,
    NEW_BODY,
    NEW_CORE,
    TAG,
)
from flowfabric.stores.postgres.usual import RECORD_COLUMNS, TABLE, stored
from flowfabric.stores.tables import Column, Columns, names_of

COPY_FROM_BYTES: Final = 16 << 20
SHAPED_FROM_ROWS: Final = 20
SHAPES_MAX: Final = 40  # statements built for values that many rows share
SOURCE: Final = "[[source]]"  # the place of the rows in a statement
SMALL_RESULT_BYTES: Final = 8192  # up to this size a result is read along with its execution

_TYPES: Final = {
    "small": "int",
    "integer": "bigint",
    "text": "text",
    "blob": "bytea",
    "uuid": "uuid",
}


def types_of(columns: Sequence[Column], names: Sequence[str] = ()) -> tuple[str, ...]:
    """The types of columns, or of those with these names, in a statement."""
    kinds = {each.name: _TYPES[each.kind] for each in columns}
    return tuple(kinds[name] for name in names or kinds)


Shape = tuple[bool, ...]  # for each column, whether it travels as one plain value


class Write:
    """A set-based statement: one parameter per column of its rows."""

    def __init__(
        self, table: str, columns: Sequence[Column], sql: str, *, is_gated: bool = False
    ) -> None:
        self.table = table
        self.is_gated = is_gated  # it draws numbers of events
        self.columns = names_of(columns)
        self._sql = sql
        self._types = types_of(columns)
        self._bytes_at = tuple(at for at, kind in enumerate(self._types) if kind == "bytea")
        self.plain: Shape = (False,) * len(columns)

    def shape(self, columns: Columns) -> Shape:
        """The best form for the rows. A look at each column pays only for many rows."""
        count = len(columns[0])
        if count == 1:
            return (True,) * len(self.columns)
        if count < SHAPED_FROM_ROWS:
            return self.plain
        same = tuple(map(_is_uniform, columns))
        # At least one array gives the number of rows.
        return self.plain if all(same) else same

    def parameters(self, columns: Columns, shape: Shape) -> list[Any]:
        """The columns, as their statement expects them."""
        return list(map(_parameter, columns, self._types, shape))

    def sql(self, shape: Shape, first: int) -> str:
        """The statement, its parameters numbered from `first`."""
        return self._sql.replace(SOURCE, self._source(shape, first))

    def _source(self, shape: Shape, first: int) -> str:
        """(SELECT $1::int, u2 FROM unnest($2::text::uuid[]) AS u (u2))"""
        values: dict[str, str] = {}
        arrays, names = [], []
        for n, (column, kind, is_same) in enumerate(
            zip(self.columns, self._types, shape, strict=True), start=first
        ):
            values[column] = f"${n}::{kind}" if is_same else f"u{n}"
            if not is_same:
                names.append(f"u{n}")
                arrays.append(f"${n}::{kind}[]" if kind == "bytea" else f"${n}::text::{kind}[]")
        listed = ", ".join(stored(values) if self.table == TABLE else values.values())
        if not arrays:
            return f"(VALUES ({listed}))"
        rows = f"unnest({', '.join(arrays)}) AS u ({', '.join(names)})"
        return f"(SELECT {listed} FROM {rows})"

    def is_heavy(self, columns: Columns) -> bool:
        """Whether payloads or results are too large for one message."""
        return any(
            sum(map(len, filter(None, columns[at]))) >= COPY_FROM_BYTES for at in self._bytes_at
        )


def _is_uniform(column: Sequence[Any]) -> bool:
    first = column[0]
    return bool(first == column[-1]) and column.count(first) == len(column)


def _parameter(column: Sequence[Any], kind: str, is_same: bool) -> Any:
    if is_same:
        return column[0]
    return list(column) if kind == "bytea" else _literal(column, kind)


def _literal(values: Sequence[Any], kind: str) -> str:
    """An array as Postgres reads it: {1,NULL,"text"}."""
    if kind == "text":
        parts = ["NULL" if value is None else _quoted(value) for value in values]
    else:
        parts = ["NULL" if value is None else str(value) for value in values]
    return "{" + ",".join(parts) + "}"


def _quoted(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


Parts = tuple[tuple[Write, Shape], ...]
_shaped: set[Parts] = set()


def one_statement(writes: Sequence[tuple[Write, Columns]]) -> tuple[str, list[Any]]:
    """Several writes to different rows as one statement."""
    parts = _parts(writes)
    return _joined(parts), _values(writes, parts)


def guarded_statement(
    writes: Sequence[tuple[Write, Columns]], version: str
) -> tuple[str, list[Any]]:
    """The update of one row, if it still has this version, and only then the writes beside it.

    It returns the number of updated rows.
    """
    parts = _parts(writes)
    return _guarded(parts), [*_values(writes, parts), version]


CLOCK: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
CLOCK_MS: Final = 1_000  # how far the server's clock may be from what we believe


def held_statement(
    writes: Sequence[tuple[Write, Columns]], uuid: str, version: str, now: int | None = None
) -> tuple[str, list[Any]]:
    """New rows beside one execution, if it still has this version: it is locked and not written.

    `now`: believed to be the server's time. The rows are then written only if that is nearly so,
    and the lease still lives. It returns the number of locked rows.
    """
    parts = _parts(writes)
    values = [*_values(writes, parts), uuid, version]
    return _held(parts, now is not None), values if now is None else [*values, str(now)]


def _parts(writes: Sequence[tuple[Write, Columns]]) -> Parts:
    """The statements to send and their forms. Each new text must be prepared, so their number is
    kept small."""
    parts = tuple((write, write.shape(columns)) for write, columns in writes)
    many = any(len(columns[0]) >= SHAPED_FROM_ROWS for _, columns in writes)
    if many and parts not in _shaped:
        if len(_shaped) >= SHAPES_MAX:
            return tuple((write, write.plain) for write, _ in writes)
        _shaped.add(parts)
    return parts


def _values(writes: Sequence[tuple[Write, Columns]], parts: Parts) -> list[Any]:
    values: list[Any] = []
    for (write, columns), (_, shape) in zip(writes, parts, strict=True):
        values += write.parameters(columns, shape)
    return values


# A transaction says which number of an event was the last before it draws its own, in a lock that
# ends with it: readers do not pass that number while it may still commit (see `log_ends`). The name
# of a lock is the sequence and the number.
GATE_NAME: Final = "('ff_event_id'::regclass::oid::bigint & 32767)"
NUMBERS: Final = (1 << 48) - 1
GATE: Final = (
    f"gate AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared({GATE_NAME} << 48 | last_value)"
    " FROM ff_event_id)"
)


@cache
def _joined(parts: Parts) -> str:
    *before, last = _numbered_through(parts)
    named = [f"w{number} AS ({part})" for number, part in enumerate(before)]
    return f"WITH {', '.join([*_gate(parts), *named])} {last}" if before or _gate(parts) else last


def _gate(parts: Parts) -> list[str]:
    return [GATE] if any(write.is_gated for write, _ in parts) else []


@cache
def _guarded(parts: Parts) -> str:
    update, *others = _numbered_through(parts)
    version = f"${1 + sum(len(shape) for _, shape in parts)}::text::xid"
    named = [*_gate(parts), f"held AS ({update} AND t.xmin = {version} RETURNING 1)"]
    for number, sql in enumerate(others):
        word = "AND" if sql.startswith("UPDATE") else "WHERE"
        named.append(f"w{number} AS ({sql} {word} EXISTS (SELECT FROM held))")
    return f"WITH {', '.join(named)} SELECT count(*) FROM held"


@cache
def _held(parts: Parts, believes: bool) -> str:
    count = sum(len(shape) for _, shape in parts)
    is_so = ""
    if believes:
        is_so = f" AND abs({CLOCK} - ${count + 3}::text::bigint) < {CLOCK_MS}"
        is_so += f" AND lease_expires_at > {CLOCK}"
    lock = (
        f"SELECT FROM {TABLE} WHERE execution_id = ${count + 1}::text::uuid"
        f" AND xmin = ${count + 2}::text::xid{is_so} FOR UPDATE"
    )
    named = [*_gate(parts), f"held AS ({lock})"]
    for number, sql in enumerate(_numbered_through(parts)):
        named.append(f"w{number} AS ({sql} WHERE EXISTS (SELECT FROM held))")
    return f"WITH {', '.join(named)} SELECT count(*) FROM held"


def _numbered_through(parts: Parts) -> list[str]:
    numbered, first = [], 1
    for write, shape in parts:
        numbered.append(write.sql(shape, first))
        first += len(shape)
    return numbered


def insert_into(table: str, columns: Sequence[Column]) -> Write:
    """Insert, never upsert: an absent row cannot be locked, so rivals must collide here."""
    names = ", ".join(names_of(columns))
    return Write(table, columns, f"INSERT INTO {table} ({names}) SELECT * FROM {SOURCE} AS v")


def append_to(table: str, columns: Sequence[Column]) -> Write:
    """Insert events: their numbers are drawn behind the gate."""
    names = ", ".join(names_of(columns))
    sql = f"INSERT INTO {table} ({names}) SELECT v.* FROM gate, {SOURCE} AS v"
    return Write(table, columns, sql, is_gated=True)


def update_of(table: str, columns: Sequence[Column], key: int = 1) -> Write:
    """Update rows by their keys, which are the first columns."""
    names = names_of(columns)
    changes = ", ".join(f"{name} = v.{name}" for name in names[key:])
    match = " AND ".join(f"t.{name} = v.{name}" for name in names[:key])
    rows = f"{SOURCE} AS v ({', '.join(names)})"
    return Write(table, columns, f"UPDATE {table} AS t SET {changes} FROM {rows} WHERE {match}")


_OF_BODY: Final = {column.name: column for column in NEW_BODY}
_PAYLOAD: Final = [_OF_BODY[name] for name in ("execution_id", "payload", "payload_encoding")]
UPDATES: Final = {
    "update_hot": update_of("ff_exec_core", HOT.columns),
    "update_freed": update_of("ff_exec_core", FREED.columns),
    "update_all": update_of("ff_exec_core", ALL.columns),
    "update_payload": update_of("ff_exec_body", _PAYLOAD),
}
INSERTS: Final = {
    "core": insert_into("ff_exec_core", NEW_CORE),
    "body": insert_into("ff_exec_body", NEW_BODY),
    "tag": insert_into("ff_exec_tag", TAG),
    "attempt": insert_into("ff_attempt", ATTEMPT.columns),
}
BODY_OF_C: Final = (
    "CROSS JOIN LATERAL (SELECT * FROM ff_exec_body AS one"
    " WHERE one.execution_id = c.execution_id OFFSET 0) AS b"
)
PARAMETERS: Final = (
    ("among_ids", "= ANY($1::uuid[])"),
    ("body_of_c", BODY_OF_C),
    ("named", f"ff_exec_core AS c {BODY_OF_C} WHERE c.execution_id = ANY(?1::uuid[])"),
    ("ending", "right(n.execution_id::text, length(?1))"),
    ("small", str(SMALL_RESULT_BYTES)),
    ("version", "(SELECT catalog_version FROM ff_partition_config)"),
    ("record", RECORD_COLUMNS),
)
