"""Columns of the hot row that are empty while they hold their usual value.

Every transition writes the row anew, into the table and into the log. A number takes four or eight
bytes each time, an empty column one bit, and nearly all executions are never tried again, never
signalled and have no delay. Rows from before hold the values themselves; both forms are read.

The usual value of a field is its default, unless usual work changes it (`Step`, `Taken`), or the
value of the field that it names (`Usually`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from flowfabric.model.columns import Written
from flowfabric.stores.execution_columns import DEFAULTS, RECORD, STORED, Stored

TABLE: Final = "ff_exec_core"
_CHANGING: Final = (Written.STEP, Written.TAKEN, Written.BODY)


def _constants() -> Iterator[tuple[str, str]]:
    for name, (column, source, written, _) in STORED.items():
        default = DEFAULTS.get(source)
        if default is not None and written not in _CHANGING:
            value = default if column.write is None else column.write(default)
            if value is not None:  # a record's default is empty in every store
                yield name, repr(value)  # our own words hold no quote


# Usual values in SQL, and columns that usually hold the value of another one of the row.
CONSTANT: Final = dict(_constants())
SAME: Final[Mapping[str, str]] = {
    name: usually for name, each in STORED.items() if (usually := each.column.held.usually)
}


def _read(stored: Stored) -> str:
    """The value of a column, as SQL."""
    name = stored.column.name
    if stored.written is Written.BODY:
        return f"b.{name}"
    usual = f"c.{SAME[name]}" if name in SAME else CONSTANT.get(name)
    return f"c.{name}" if usual is None else f"coalesce(c.{name}, {usual})"


RECORD_COLUMNS: Final = ", ".join(map(_read, RECORD))


def stored(values: Mapping[str, str]) -> list[str]:
    """The columns of a row to be written, given as SQL by name: empty where the value is usual. A
    statement that leaves the other column alone cannot compare."""
    usual = CONSTANT | {name: values[other] for name, other in SAME.items() if other in values}
    return [
        f"nullif({value}, {usual[name]})" if name in usual else value
        for name, value in values.items()
    ]
