"""`ff.statistics` and `ff.spending` read all pages as one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from flowfabric import Fabric, InvalidInput
from flowfabric.engine.engine import Engine
from flowfabric.sdk import statistics


async def _rolled_up(ff: Fabric) -> None:
    engine = cast("Engine", await ff.start())
    while await engine.roll_up():
        continue


def test_all_pages_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "PAGE_MAX", 1)

    async def story() -> None:
        async with Fabric(f"sqlite:///{tmp_path}/a.db") as ff:
            for kind in ("a", "b", "a"):
                await ff.submit(kind)
            await ff.create_budget("gpt", hard={"tokens": 100, "calls": 9})
            await ff.report_usage("gpt", tokens=5, calls=1)
            await _rolled_up(ff)
            found = await ff.statistics(since="1h")
            lines = [(each.execution_kind, each.created) for each in found.items]
            assert lines == [("a", 2), ("b", 1)]
            assert found.next_cursor is None
            assert found.complete_until > 0
            assert [each.created for each in (await ff.statistics(kind="b")).items] == [1]
            assert (await ff.statistics(lane="mail")).items == ()
            spent = (await ff.spending(budget="gpt")).items
            assert [(each.dimension, each.spent) for each in spent] == [("calls", 1), ("tokens", 5)]
            now, day = datetime.now(UTC), timedelta(days=1)
            assert len((await ff.statistics(since=now - day, until=now + day)).items) == 2
            assert (await ff.statistics(since=now - 2 * day, until=now - day)).items == ()

    asyncio.run(story())


def test_a_wrong_time_is_named() -> None:
    async def story() -> None:
        async with Fabric("memory://") as ff:
            with pytest.raises(InvalidInput, match="since"):
                await ff.statistics(since="soon")
            with pytest.raises(InvalidInput, match="until"):
                await ff.statistics(until=datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake
            with pytest.raises(InvalidInput, match="by"):
                await ff.spending(by="day")

    asyncio.run(story())


def test_a_program_without_a_loop_reads_them_too(tmp_path: Path) -> None:
    ff = Fabric(f"sqlite:///{tmp_path}/a.db")
    with ff.sync as sync:
        sync.submit("a")
        sync.wait(_rolled_up(sync._fabric))
        assert [each.created for each in sync.statistics(since="1h").items] == [1]
        assert sync.spending().items == ()
