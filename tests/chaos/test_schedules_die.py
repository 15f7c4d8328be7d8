"""kill -9 of the processes that fire schedules, and of those that fill in what they missed: each
tick has one row and one run, none is missing.

Ticks are those that the clock of the store has passed, however long that takes: the schedules go on
until every keeper that has to die is dead and each schedule has had its ticks.
FF_SCHEDULES=100 FF_SCHEDULE_SECONDS=60 FF_SCHEDULE_KEEPERS=8 at night (`bin/soak`).
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.schedules import ScheduledStart
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.model.schedule import CatchUp, Overlap, SchedulePolicy, ScheduleRow, Timing
from tests.chaos.processes import Crew, crew
from tests.chaos.verdict import check_store
from tests.property.budget import budget

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

KEEPER = "tests.chaos.keeper_process"
FILLER = "tests.chaos.filler_process"
FILLED = 2_000  # ticks of a backfill: four transactions
SCHEDULES = budget("FF_SCHEDULES", 10)
SECONDS = budget("FF_SCHEDULE_SECONDS", 3)  # ticks of each schedule, at least
KEEPERS = budget("FF_SCHEDULE_KEEPERS", 3)
KILLS = budget("FF_SCHEDULE_KILLS", 2)


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        path = tmp_path / "chaos.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        return f"sqlite:///{path}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as each:
        yield each


class Seconds:
    """Schedules that tick each second."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(self) -> None:
        """However late a busy machine is, a tick is caught up: none may be left out."""
        policy = SchedulePolicy(
            overlap=Overlap.ALLOW, catch_up=CatchUp.ALL, catch_up_max=max(100, SECONDS)
        )
        for n in range(SCHEDULES):
            await self._engine.create_schedule(
                schedule_id=f"s{n}",
                timing=Timing(every_ms=1_000),
                start=ScheduledStart(execution=NewExecution(execution_kind="work")),
                policy=policy,
            )

    async def fewest(self) -> int:
        """How many runs each of them has started, at least."""
        page = await self._engine.list_schedules(limit=SCHEDULES)
        return min(each.runs for each in page.items)

    async def end(self) -> None:
        """Paused after all that is due has its fate."""
        for n in range(SCHEDULES):
            await self._engine.pause_schedule(schedule_id=f"s{n}")


def test_each_tick_runs_once_whatever_dies(url: str, runner: asyncio.Runner) -> None:
    engine = open_engine(url, config=EngineConfig(loops=False, pool_size=2))
    runner.run(engine.start())
    seconds = Seconds(engine)
    with crew(url) as keepers:
        hired = [keepers.hire("keep", KEEPER) for _ in range(KEEPERS)]
        runner.run(seconds.create())
        keepers.wait_until(lambda: all(e.heard("working") for e in hired), "the keepers")
        news = 0
        for kill in range(KILLS):
            news = ticked(keepers, seconds, runner, max(news, SECONDS * (kill + 1) // (KILLS + 1)))
            keepers.kill(hired.pop(0))
        ticked(keepers, seconds, runner, max(news, SECONDS))
    runner.run(seconds.end())
    found: dict[str, list[Any]] = runner.run(engine.store.dump())
    problems = runner.run(engine.doctor()).problems
    runner.run(engine.close())

    made: list[ScheduleRow] = found["ff_schedule"]
    wanted = {
        (row.schedule_id, tick)
        for row in made
        for tick in range((row.created_at // 1_000 + 1) * 1_000, row.done_until + 1, 1_000)
    }
    assert len(wanted) >= SCHEDULES * SECONDS
    rows = Counter((row.schedule_id, row.tick) for row in found["ff_schedule_tick"])
    assert rows == Counter(wanted)
    assert {row.fate.value for row in found["ff_schedule_tick"]} <= {"ran", "caught_up"}
    runs = Counter(
        (each.tags["schedule.id"], each.tags["schedule.tick"]) for each in found["executions"]
    )
    assert (len(runs), set(runs.values())) == (len(wanted), {1})
    assert {row.run_id for row in found["ff_schedule_tick"]} == {
        each.execution_id for each in found["executions"]
    }
    check_store(found)
    assert problems == ()


def ticked(keepers: Crew, seconds: Seconds, runner: asyncio.Runner, least: int) -> int:
    """Wait until each schedule has started so many runs; how many are more than it has then."""
    fewest = 0

    def is_enough() -> bool:
        nonlocal fewest
        fewest = runner.run(seconds.fewest())
        return fewest >= least

    keepers.wait_until(is_enough, f"{least} runs of each schedule")
    return fewest + 1


def test_a_backfill_that_is_killed_half_way_is_repeated_and_each_tick_runs_once(
    url: str, runner: asyncio.Runner
) -> None:
    """Two processes fill the same range; one is killed, one after it has filled something. Another
    one does all of it again."""
    engine = open_engine(url, config=EngineConfig(loops=False, pool_size=2))
    runner.run(engine.start())
    made = runner.run(
        engine.create_schedule(
            schedule_id="s",
            timing=Timing(every_ms=1_000),
            start=ScheduledStart(execution=NewExecution(execution_kind="work")),
            policy=SchedulePolicy(overlap=Overlap.ALLOW),
        )
    )
    end = made.schedule.created_at // 1_000 * 1_000
    words = ("s", str(end - (FILLED - 1) * 1_000), str(end))
    with crew(url) as fillers:
        first, second = (fillers.hire("fill", FILLER, *words) for _ in range(2))
        fillers.wait_until(lambda: first.heard("filled") > 0, "the first part")
        fillers.kill(first)
        fillers.kill(second)
        before = runner.run(engine.store.dump())["ff_schedule_tick"]
        last = fillers.hire("fill", FILLER, *words)
        fillers.wait_until(lambda: last.heard("done") > 0, "the whole range")
        parts = [line[1:] for line in last.said if line[0] == "filled"]
    found: dict[str, list[Any]] = runner.run(engine.store.dump())
    problems = runner.run(engine.doctor()).problems
    runner.run(engine.close())
    assert 0 < len(before) <= FILLED
    assert sum(int(started) for started, _ in parts) == FILLED - len(before)
    assert sum(int(have_run) for _, have_run in parts) >= len(before)
    ticks = sorted(row.tick for row in found["ff_schedule_tick"])
    assert ticks == list(range(end - (FILLED - 1) * 1_000, end + 1, 1_000))
    runs = Counter(each.tags["schedule.tick"] for each in found["executions"])
    assert (len(runs), set(runs.values())) == (FILLED, {1})
    assert {row.run_id for row in found["ff_schedule_tick"]} == {
        each.execution_id for each in found["executions"]
    }
    check_store(found)
    assert problems == ()
