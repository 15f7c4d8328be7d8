"""Many rows by few statements, in which a value that all rows share travels once.

In a batch most columns hold the same value in every row, and binding values one by one is most of
the cost of a narrow row. Few statements also mean few turns of the interpreter lock for the other
threads of this process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, compress
from typing import Any, Final, NamedTuple

Row = tuple[Any, ...]
Varies = tuple[bool, ...]  # for each column whether its values differ

_SIZES: Final = (100, 10)  # rows per statement: as many as fit, then fewer, the rest singly
_SHARED_FROM_ROWS: Final = _SIZES[-1]  # fewer rows share no statement
_STATEMENTS_MAX: Final = 256


class Sheet(NamedTuple):
    """The columns of a table that are written together; the first is the key."""

    table: str
    columns: tuple[str, ...]


def insert_columns(
    connection: sqlite3.Connection, sheet: Sheet, columns: Sequence[Sequence[Any]]
) -> None:
    """Insert rows, given column by column; none if there are no columns."""
    if not columns:
        return
    rest = _write_shared(connection, _insert_shared, sheet, columns)
    connection.executemany(_insert_one(sheet), rest)


def update_columns(
    connection: sqlite3.Connection, sheet: Sheet, columns: Sequence[Sequence[Any]]
) -> None:
    """Update rows, given column by column, by key; keys are unique."""
    if not columns:
        return
    rest = _write_shared(connection, _update_shared, sheet, columns)
    connection.executemany(_update_one(sheet), rest)


def _write_shared(
    connection: sqlite3.Connection,
    statement: Callable[[Sheet, Varies, int], str],
    sheet: Sheet,
    columns: Sequence[Sequence[Any]],
) -> Sequence[Row]:
    """Write rows that fill whole statements; returns the few rows that are left."""
    count = len(columns[0])
    whole = count - count % _SHARED_FROM_ROWS
    rest: list[Row] = []
    if whole < count:
        rest = list(zip(*[column[whole:] for column in columns], strict=True))
        columns = [column[:whole] for column in columns]
    if whole == 0:
        return rest
    varies = (True, *[column.count(column[0]) < whole for column in columns[1:]])
    shared = [column[0] for column, own in zip(columns, varies, strict=True) if not own]
    values = list(chain.from_iterable(zip(*compress(columns, varies), strict=True)))
    width, start = sum(varies), 0
    for size in _SIZES:
        step = size * width
        while len(values) - start >= step:
            chunk = values[start : start + step]
            connection.execute(statement(sheet, varies, size), (*shared, *chunk))
            start += step
    return rest


@lru_cache(_STATEMENTS_MAX)
def _insert_one(sheet: Sheet) -> str:
    marks = ", ".join("?" * len(sheet.columns))
    return f"INSERT INTO {sheet.table} ({', '.join(sheet.columns)}) VALUES ({marks})"


@lru_cache(_STATEMENTS_MAX)
def _insert_shared(sheet: Sheet, varies: Varies, size: int) -> str:
    names, sources = ", ".join(sheet.columns), ", ".join(_sources(varies))
    return f"INSERT INTO {sheet.table} ({names}) SELECT {sources} FROM {_values(varies, size)}"


@lru_cache(_STATEMENTS_MAX)
def _update_one(sheet: Sheet) -> str:
    key, *names = sheet.columns
    changes = ", ".join(f"{name} = ?{at}" for at, name in enumerate(names, 2))
    return f"UPDATE {sheet.table} SET {changes} WHERE {key} = ?1"


@lru_cache(_STATEMENTS_MAX)
def _update_shared(sheet: Sheet, varies: Varies, size: int) -> str:
    key, *names = sheet.columns
    found, *sources = _sources(varies)
    changes = ", ".join(f"{name} = {at}" for name, at in zip(names, sources, strict=True))
    values = _values(varies, size)
    return f"UPDATE {sheet.table} SET {changes} FROM {values} WHERE {key} = {found}"


def _sources(varies: Varies) -> list[str]:
    """The source of each column's value: a parameter, or a column of the values."""
    own = 0
    sources = []
    for each in varies:
        own += each
        sources.append(f"v.column{own}" if each else "?")
    return sources


def _values(varies: Varies, size: int) -> str:
    row = f"({', '.join('?' * sum(varies))})"
    return f"(VALUES {', '.join([row] * size)}) AS v"
