"""Columns of the hot row that are empty while they hold their usual value.

Every transition writes the row anew, into the table and into the log. A number takes four or eight
bytes each time, an empty column one bit, and nearly all executions are never tried again, never
signalled and have no delay. Rows from before hold the values themselves; both forms are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flowfabric.stores.queries import RECORD_COLUMNS

TABLE: Final = "ff_exec_core"
# The usual value: a constant, or the value of another column of the row.
USUAL: Final[Mapping[str, str]] = {
    "attempt_spent_ms": "0",
    "retry_count": "0",
    "replay_count": "0",
    "reclaim_count": "0",
    "aging_ms": "0",
    "side_holds": "0",
    "signal_count": "0",
    "signal_bytes": "0",
    "open_group": "0",
    "next_attempt_type": "'initial'",
    "blocking_detail": "''",
    "eligible_at": "created_at",
    "last_mutation_at": "last_transition_at",
}


def _read(column: str) -> str:
    """The value of a column of `c`."""
    usual = USUAL.get(column.removeprefix("c."))
    if usual is None:
        return column
    return f"coalesce({column}, {f'c.{usual}' if usual.endswith('_at') else usual})"


# The columns a record is read from, in the order of RECORD_COLUMNS.
RECORD: Final = ", ".join(map(_read, RECORD_COLUMNS.split(", ")))


def stored(values: Mapping[str, str]) -> list[str]:
    """The columns of a row to be written, given as SQL by name: empty where the value is usual."""
    return [_stored(name, values) for name in values]


def _stored(name: str, values: Mapping[str, str]) -> str:
    usual = USUAL.get(name)
    if usual is not None and usual.endswith("_at"):
        usual = values.get(usual)  # a statement that leaves that column alone cannot compare
    return values[name] if usual is None else f"nullif({values[name]}, {usual})"
