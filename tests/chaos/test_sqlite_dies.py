"""kill -9 of processes that write one SQLite file: acknowledged is stored, the file stays sound.

The page cache survives a kill, so this is about atomicity and recovery, not about fsync.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from tests.chaos.processes import crew
from tests.chaos.verdict import Dump, check_acknowledged, check_store
from tests.property.budget import budget

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

CYCLES = budget("FF_CHAOS_SQLITE_KILLS", 8)
WRITERS = 2


def test_writers_killed_while_they_write(tmp_path: Path) -> None:
    """I1, I2, I4, I8: two writers at a time, each killed after a few acknowledged writes."""
    path = tmp_path / "chaos.db"
    with crew(f"sqlite:///{path}") as writers:
        for cycle in range(CYCLES):
            pair = [writers.hire("make") for _ in range(WRITERS)]
            enough = 2 + cycle % 7

            def wrote(pair: list[Any] = pair, enough: int = enough) -> bool:
                return all(each.heard("done") >= enough for each in pair)

            writers.wait_until(wrote, "acknowledged writes")
            for each in pair:
                writers.kill(each)
            check_file(path)
        made = [(line[0], line[1]) for line in writers.lines("made")]
        done = [(line[0], int(line[1])) for line in writers.lines("done")]
    dump = asyncio.run(dump_of(path))
    check_store(dump)
    created, completed = check_acknowledged(dump, made, done)
    assert created >= CYCLES * WRITERS
    assert completed >= CYCLES * WRITERS * 2


def check_file(path: Path) -> None:
    """As whoever comes next finds it."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


async def dump_of(path: Path) -> Dump:
    async with open_engine(f"sqlite:///{path}", config=EngineConfig(loops=False)) as engine:
        report = await engine.doctor()
        assert not [each for each in report.problems if each.code != "overdue"], report.problems
        return await engine.store.dump()
