"""Statements counted at the drivers, as they are sent."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, Final

BRACKETS: Final = ("BEGIN", "COMMIT", "ROLLBACK")
_METHODS: Final = ("execute", "executemany", "fetch", "fetchrow", "fetchval")


def watching(store: str, statements: Counter[str]) -> AbstractContextManager[None]:
    """Count what every connection sends that is opened meanwhile, by its first words."""
    return _watched_sqlite(statements) if store == "sqlite" else _watched_postgres(statements)


def queries(statements: Counter[str]) -> int:
    """How many, without BEGIN, COMMIT and ROLLBACK."""
    return sum(statements.values()) - sum(statements[word] for word in BRACKETS)


def _short(sql: str) -> str:
    words = sql.split()
    if words and words[0].upper() in BRACKETS:
        return words[0].upper()
    return " ".join(words)[:70]


@contextmanager
def _watched_sqlite(statements: Counter[str]) -> Iterator[None]:
    """Every connection opened meanwhile tells what it runs."""
    connect = sqlite3.connect

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(lambda sql: statements.update([_short(sql)]))
        return connection

    setattr(sqlite3, "connect", watched)  # noqa: B010 - restored below
    try:
        yield
    finally:
        setattr(sqlite3, "connect", connect)  # noqa: B010


@contextmanager
def _watched_postgres(statements: Counter[str]) -> Iterator[None]:
    """Every call of every asyncpg connection, pooled or not, is counted."""
    kind = import_module("asyncpg").Connection
    originals = {name: getattr(kind, name) for name in _METHODS}

    def watch(original: Any) -> Any:
        @wraps(original)
        async def watched(self: Any, query: str, *args: Any, **options: Any) -> Any:
            statements.update([_short(query)])
            return await original(self, query, *args, **options)

        return watched

    for name, original in originals.items():
        setattr(kind, name, watch(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(kind, name, original)
