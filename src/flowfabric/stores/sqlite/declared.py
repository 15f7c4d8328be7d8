"""The schema of a SQLite file as parts, and the one the migrations make, from a file in memory."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from functools import cache
from typing import Final

from flowfabric.stores.migrations import migrations_of
from flowfabric.stores.schema import Schema

ANNOTATION_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS ff_migration_annotation (version INTEGER PRIMARY KEY, "
    "name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"
)
_COMMENT: Final = re.compile(r"--[^\n]*")


@cache
def declared_schema() -> Schema:
    """The parts that all migrations make."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(ANNOTATION_TABLE)
        for migration in migrations_of("sqlite"):
            connection.executescript(migration.sql)
        return schema_of(connection)
    finally:
        connection.close()


def schema_of(connection: sqlite3.Connection) -> Schema:
    """The parts of a file that are ours or on a table of ours."""
    parts: dict[str, str] = {}
    rows = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE tbl_name LIKE 'ff!_%' ESCAPE '!'"
    )
    for kind, name, table, sql in rows.fetchall():
        if kind == "table":
            parts[f"table {name}"] = "exists"
            parts.update(_columns(connection, name))
            parts[f"constraint {name}.checks"] = _checks(sql)
        elif kind == "view":
            parts[f"view {name}"] = _plain(sql)
        elif sql is not None:  # an index without SQL belongs to a key, which the columns show
            unique = "unique " if sql.upper().startswith("CREATE UNIQUE") else ""
            parts[f"{unique}{kind} {table}.{name}"] = _plain(sql)
    return parts


def _columns(connection: sqlite3.Connection, table: str) -> Iterable[tuple[str, str]]:
    for _, name, kind, is_needed, default, key in connection.execute(
        f"PRAGMA table_info({table})"
    ).fetchall():
        words = [
            kind,
            *(["NOT NULL"] if is_needed else []),
            *([f"DEFAULT {default}"] if default is not None else []),
            *([f"KEY {key}"] if key else []),
        ]
        yield f"column {table}.{name}", " ".join(words)


def _checks(sql: str) -> str:
    """The constraints of a table and its storage options: everything its columns do not show."""
    text = _plain(sql)
    ending = text[text.rindex(")") + 1 :].strip()
    return " ".join([*_conditions(text), ending])


def _conditions(text: str) -> Iterable[str]:
    """Every CHECK and UNIQUE with its brackets, in order."""
    for match in re.finditer(r"\b(?:CHECK|UNIQUE|REFERENCES)\b[^(]*\(", text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[match.start() : end]


def _plain(sql: str) -> str:
    return " ".join(_COMMENT.sub("", sql).split())
