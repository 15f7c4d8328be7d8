"""Bytes in the file that are not valid text: their rows are marked, all others are read as usual.

SQLite keeps any bytes as text, and the driver fails the whole statement at the first that are not
UTF-8. So a job that meets some is run again with a tolerant decoder. The decoder is too slow to be
used for every row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from flowfabric.stores.spoiled import SpoiledRow

T = TypeVar("T")

_REFUSAL = "Could not decode to UTF-8"


class _Marked(str):
    """The readable rest of bytes that are not valid text."""

    __slots__ = ()


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _Marked(data.decode(errors="replace"))


def _row(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> tuple[Any, ...]:
    is_spoiled = any(type(value) is _Marked for value in values)
    return SpoiledRow(map(_plain, values)) if is_spoiled else values


def _plain(value: Any) -> Any:
    return str(value) if type(value) is _Marked else value


def standing_any_text(work: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T:
    """The work; run again, with marked rows, if it meets bytes that are not valid text."""
    try:
        return work(connection)
    except sqlite3.OperationalError as error:
        if not str(error).startswith(_REFUSAL):
            raise
    connection.text_factory, connection.row_factory = _text, _row
    try:
        return work(connection)
    finally:
        connection.text_factory, connection.row_factory = str, None
