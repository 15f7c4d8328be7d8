"""Receipts: rows in a caller's own database that say that a step was done, with what it returned.

A receipt is written in the transaction of the step, so it is there if and only if the rows of the
step are. Two rivals collide on its key: the second one takes the result of the first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from flowfabric.errors import InvalidInput

TABLE: Final = "ff_receipt"

_POSTGRES: Final = f"""\
CREATE TABLE {TABLE} (
    receipt_key  text PRIMARY KEY,   -- the idempotency key of the step
    execution_id text NOT NULL,
    step         text NOT NULL,
    arguments    text,               -- a digest of them
    result       text NOT NULL,      -- JSON
    recorded_at  timestamptz NOT NULL DEFAULT now()
);
"""
_SQLITE: Final = f"""\
CREATE TABLE {TABLE} (
    receipt_key  TEXT PRIMARY KEY,   -- the idempotency key of the step
    execution_id TEXT NOT NULL,
    step         TEXT NOT NULL,
    arguments    TEXT,               -- a digest of them
    result       TEXT NOT NULL,      -- JSON
    recorded_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) WITHOUT ROWID;
"""
DIALECTS: Final = {"postgres": _POSTGRES, "sqlite": _SQLITE}

# `{}` stands for a parameter, which each driver marks in its own way.
READ: Final = f"SELECT result, arguments FROM {TABLE} WHERE receipt_key = {{}}"
WRITE: Final = (
    f"INSERT INTO {TABLE} (receipt_key, execution_id, step, arguments, result) "
    "VALUES ({}, {}, {}, {}, {}) ON CONFLICT (receipt_key) DO NOTHING RETURNING receipt_key"
)


class Receipt(NamedTuple):
    """What is known of a step that was done."""

    key: str
    execution_id: str
    step: str
    arguments: str | None
    result: str


def receipts_sql(dialect: str) -> str:
    """The statement that makes the table, for a database of the caller's."""
    if dialect not in DIALECTS:
        known = ", ".join(DIALECTS)
        raise InvalidInput(f"dialect: {dialect!r:.80} is not one of {known}", field="dialect")
    return DIALECTS[dialect]


def no_table() -> InvalidInput:
    """The error of a database without the table, or with another one of its name."""
    return InvalidInput(
        f"transaction: this database is not the store's, so it needs the table {TABLE}; make it "
        "with what `ff db sql --receipts` prints",
        field="transaction",
    )
