"""The meaning of SQLite's errors: run it again, wait, or tell the operator."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from flowfabric.errors import StoreCorrupt, StoreError, StoreReplaced, StoreUnavailable
from flowfabric.stores.base import StoreConflict

_CONFLICTS: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_OUTAGES: Final = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}
_DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_TAKEN: Final = re.compile(r"UNIQUE constraint failed: (\w+)")  # the table
_REPAIR: Final = "stop every process that uses it and restore a backup (guides/sqlite.md, Damage)"


def code_of(error: sqlite3.Error) -> int:
    """The primary code, or 0 for an error of Python's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection has a lock."""
    return code_of(error) == sqlite3.SQLITE_BUSY


def translated(error: sqlite3.Error, path: str) -> Exception:
    """A driver's error as one of ours, or as a conflict that is run again."""
    code = code_of(error)
    is_rival = isinstance(error, sqlite3.IntegrityError) and "UNIQUE" in str(error)
    if code in _CONFLICTS or is_rival:
        return StoreConflict(str(error), about=_TAKEN.findall(str(error))[:1])
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED:
        return StoreReplaced(f"{path}: moved while in use; put it back, or start again")
    if code in _DAMAGE:
        return StoreCorrupt(f"{path}: {error}; {_REPAIR}")
    if code in _OUTAGES:
        return StoreUnavailable(f"{path}: {error}")
    return StoreError(f"{type(error).__name__}: {error}")
