"""Whole batches as a few parameters: one array per column, or a COPY.

Arrays travel as text literals because building one is a join in C, while the driver's own array
encoder asks of every element whether it is a nested array. COPY is the fastest way to append, but
needs more round trips, so a few rows go as arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from flowfabric.model.record import Record
from flowfabric.stores.codec import (
    ATTEMPT_COLUMNS,
    BODY_COLUMNS,
    FIRST_COLUMNS,
    HOT_COLUMNS,
    STATE_COLUMNS,
)
from flowfabric.stores.rows import (
    COMPLETION_EVENT_COLUMNS,
    KEY_RECORD_COLUMNS,
    LEASE_EVENT_COLUMNS,
    OPERATOR_EVENT_COLUMNS,
    TAG_COLUMNS,
)

COPY_FROM_ROWS: Final = 20

_PARAMETER: Final = re.compile(r"\$(\d+)")
_INTEGERS: Final = frozenset(
    {
        "attempt_index",
        "total_attempt_count",
        "retry_count",
        "replay_count",
        "reclaim_count",
        "priority",
        "progress_pct",
        "route_id",
        "partition_key",
        "state_id",
    }
)


def _type(column: str) -> str:
    if column == "execution_id":
        return "uuid"
    if column in ("payload", "result", "fingerprint"):
        return "bytea"
    if column in _INTEGERS:
        return "int"
    if column.endswith(("_at", "_ms", "_epoch")):
        return "bigint"
    return "text"


class Batch(Record, frozen=True):
    """The columns of a set-based statement and their types."""

    table: str
    columns: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def parameters(self) -> str:
        """$1::text::type[], $2::text::type[], …"""
        return ", ".join(
            f"${n}::{kind}[]" if kind == "bytea" else f"${n}::text::{kind}[]"
            for n, kind in enumerate(self.types, start=1)
        )

    @property
    def insert_sql(self) -> str:
        """Insert, never upsert: an absent row cannot be locked, so rivals must collide here."""
        names = ", ".join(self.columns)
        return f"INSERT INTO {self.table} ({names}) SELECT * FROM unnest({self.parameters})"

    def arrays(self, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        """The rows as one parameter per column."""
        return [
            list(column) if kind == "bytea" else _literal(column, kind)
            for kind, column in zip(self.types, zip(*rows, strict=True), strict=True)
        ]


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


@cache
def _renumbered(sql: str, by: int) -> str:
    return _PARAMETER.sub(lambda match: f"${int(match[1]) + by}", sql)


def one_statement(writes: Sequence[tuple[str, list[Any]]]) -> tuple[str, list[Any]]:
    """Several writes to different rows as one statement, their parameters numbered through."""
    values: list[Any] = []
    parts = []
    for sql, parameters in writes:
        parts.append(_renumbered(sql, len(values)))
        values += parameters
    *before, last = parts
    if not before:
        return last, values
    named = ", ".join(f"w{number} AS ({part})" for number, part in enumerate(before))
    return f"WITH {named} {last}", values


def _batch(table: str, columns: Sequence[str], *, wire_ids: bool = False) -> Batch:
    types = tuple(
        "text" if wire_ids and name == "execution_id" else _type(name) for name in columns
    )
    return Batch(table, tuple(columns), types)


INSERTS: Final = {
    "core": _batch("ff_exec_core", FIRST_COLUMNS),
    "body": _batch("ff_exec_body", BODY_COLUMNS),
    "tag": _batch("ff_exec_tag", TAG_COLUMNS),
    "attempt": _batch("ff_attempt", ATTEMPT_COLUMNS),
    "key": _batch("ff_idempotency", KEY_RECORD_COLUMNS, wire_ids=True),
    "lease_event": _batch("ff_lease_event", LEASE_EVENT_COLUMNS, wire_ids=True),
    "completion_event": _batch("ff_completion_event", COMPLETION_EVENT_COLUMNS, wire_ids=True),
    "operator_event": _batch("ff_operator_event", OPERATOR_EVENT_COLUMNS),
}
UPDATES: Final = {
    "update_hot": _batch("ff_exec_core", (*HOT_COLUMNS, "execution_id")),
    "update_all": _batch("ff_exec_core", (*STATE_COLUMNS, "execution_id")),
    "replace_key": INSERTS["key"],
}
PARAMETERS: Final = (
    (
        "body_of_c",
        "CROSS JOIN LATERAL (SELECT * FROM ff_exec_body AS one"
        " WHERE one.execution_id = c.execution_id OFFSET 0) AS b",
    ),
    ("hot_arrays", UPDATES["update_hot"].parameters),
    ("state_arrays", UPDATES["update_all"].parameters),
    ("key_arrays", INSERTS["key"].parameters),
)
