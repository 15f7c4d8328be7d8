"""The health of a SQLite file: its size, the free space in it, its log."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final

FREE_SHARE: Final = 0.25  # of the file: this much free space is worth a VACUUM
FREE_BYTES: Final = 64 * 1024 * 1024
LOG_BYTES: Final = 256 * 1024 * 1024  # the log is cut to a quarter of this whenever possible


def file_facts(connection: sqlite3.Connection, path: str) -> dict[str, Any]:
    """Sizes in bytes: the file, the free pages in it, the write-ahead log beside it."""
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    log = Path(f"{path}-wal")
    return {
        "bytes": size * connection.execute("PRAGMA page_count").fetchone()[0],
        "free_bytes": size * connection.execute("PRAGMA freelist_count").fetchone()[0],
        "wal_bytes": log.stat().st_size if log.exists() else 0,
    }


def file_upkeep(connection: sqlite3.Connection, path: str) -> list[tuple[str, str, str]]:
    """Warnings for an operator."""
    facts = file_facts(connection, path)
    found = []
    free = facts["free_bytes"]
    if free >= FREE_BYTES and free >= FREE_SHARE * facts["bytes"]:
        found.append(("free_pages", path, f"{free} of {facts['bytes']} bytes are free"))
    if facts["wal_bytes"] >= LOG_BYTES:
        found.append(("long_log", f"{path}-wal", f"{facts['wal_bytes']} bytes"))
    return found
