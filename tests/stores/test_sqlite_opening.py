"""Many processes may open one file at one moment."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from flowfabric.errors import StoreUnavailable
from flowfabric.stores.sqlite import connection as module
from flowfabric.stores.sqlite.connection import connect
from flowfabric.stores.sqlite.place import Place


class Crowded(sqlite3.Connection):
    """Others are switching the journal's mode for a while."""

    times = 3

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if "journal_mode" in sql and Crowded.times > 0:
            Crowded.times -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return super().execute(sql, *values)


def crowded(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    Crowded.times = times
    original = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: original(*a, **k, factory=Crowded))


def test_opening_waits_for_other_openings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowded(monkeypatch, 3)
    opened = connect(Place(str(tmp_path / "a.db")), synchronous="full")
    assert opened.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    opened.close()


def test_opening_gives_up_at_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowded(monkeypatch, 1_000_000)
    monkeypatch.setattr(module, "BUSY_TIMEOUT_MS", 30)
    with pytest.raises(StoreUnavailable, match="locked"):
        connect(Place(str(tmp_path / "a.db")), synchronous="full")
