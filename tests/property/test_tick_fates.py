"""The fate of each tick equals that of an oracle that goes through every second.

Time jumps, processes are down, runs end late, people pause. FF_FATE_HISTORIES=1000 in `bin/soak`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from flowfabric.assemble import open_engine
from flowfabric.clock import ManualClock
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.model.schedule import CatchUp, Overlap, SchedulePolicy, Timing
from tests.property.budget import budget
from tests.support.schedules import HOUR_MS, MINUTE_MS, SCHEDULE, SECOND_MS, start

HISTORIES = budget("FF_FATE_HISTORIES", 8)  # of each mix of policies
STEPS = 8
BEGIN = 1_700_000_000_000 // HOUR_MS * HOUR_MS
JUMPS = (SECOND_MS, 30 * SECOND_MS, MINUTE_MS, 50 * SECOND_MS, 7 * MINUTE_MS, HOUR_MS, 5 * HOUR_MS)
LATE_MS = 60_000

Calendar = tuple[Timing, Callable[[int], bool]]  # the second of the day says whether it ticks
CALENDARS: tuple[Calendar, ...] = (
    (Timing(every_ms=MINUTE_MS), lambda second: second % 60 == 0),
    (Timing(cron=("*/7 * * * *",)), lambda second: second % 60 == 0 and second // 60 % 60 % 7 == 0),
    (
        Timing(cron=("30 0,20 9-23 * * *", "0 5 * * * *")),
        lambda second: (
            second % 3600 == 300
            or (second % 60 == 30 and second // 60 % 60 in (0, 20) and second // 3600 >= 9)
        ),
    ),
)


@dataclass
class Oracle:
    """What the guide says, second by second."""

    policy: SchedulePolicy
    ticks_at: Callable[[int], bool]
    done: int
    fates: dict[int, str] = field(default_factory=dict)
    open_run: int | None = None  # the tick whose run was started last, while it has not ended
    queued: int | None = None
    is_paused: bool = False

    def _due(self, now: int) -> Iterator[int]:
        for second in range(self.done // 1000 + 1, now // 1000 + 1):
            if self.ticks_at(second % 86_400):
                yield second * 1000

    def happen(self, now: int) -> None:
        """Every tick up to now gets its fate."""
        due = list(self._due(now))
        self.done = now
        policy = self.policy
        missed = [tick for tick in due if now - tick > LATE_MS]
        recent = [tick for tick in missed if now - tick <= policy.catch_up_window_ms]
        kept: list[int] = []
        if policy.catch_up is CatchUp.ONE:
            kept = recent[-1:]
        elif policy.catch_up is CatchUp.ALL:
            kept = recent[-policy.catch_up_max :]
        for tick in due:
            if self.is_paused:
                self.fates[tick] = "missed_paused"
            elif tick not in missed:
                self._run(tick, "ran")
            elif tick in kept:
                self._run(tick, "caught_up")
            elif tick in recent and policy.catch_up is CatchUp.ONE:
                self.fates[tick] = "merged"
            else:
                self.fates[tick] = "missed_window"

    def _run(self, tick: int, word: str) -> None:
        if self.open_run is not None and self.policy.overlap is Overlap.SKIP:
            self.fates[tick] = "skipped_overlap"
        elif self.open_run is not None and self.policy.overlap is Overlap.QUEUE_ONE:
            if self.queued is not None:
                self.fates[self.queued] = "merged"
            self.fates[tick], self.queued = "queued", tick
        else:
            self.fates[tick], self.open_run = word, tick

    def end(self) -> None:
        """The last run is done; what waited for that begins."""
        self.open_run = None
        if self.queued is not None:
            self.fates[self.queued] = "ran"
            self.open_run, self.queued = self.queued, None


async def settle(engine: Engine) -> None:
    while await engine.tick():
        continue


async def told(engine: Engine) -> dict[int, str]:
    """The fates as they are stored."""
    found: dict[int, str] = {}
    after = 0
    while page := await engine.read_ticks(schedule_id=SCHEDULE, after=after, limit=1_000):
        found |= {each.tick: each.fate.value for each in page}
        after = page[-1].tick
    return found


async def end_last(engine: Engine) -> None:
    """Every run that has not ended does, the last one too."""
    while claimed := await engine.claim(
        lanes=("default",), worker_id="w", worker_instance_id="w-1", limit=500
    ):
        # the last one first: a run that is older matters to no tick
        for each in sorted(claimed, key=lambda one: -int(one.tags["schedule.number"])):
            await engine.complete(each.handle)
        if len(claimed) < 500:
            return


async def history(seed: int, catch_up: CatchUp, overlap: Overlap) -> None:
    dice = random.Random(f"{seed} {catch_up} {overlap}")
    timing, ticks_at = dice.choice(CALENDARS)
    policy = SchedulePolicy(
        catch_up=catch_up,
        catch_up_window_ms=dice.choice((5 * MINUTE_MS, 2 * HOUR_MS)),
        catch_up_max=dice.choice((3, 100)),
        overlap=overlap,
    )
    clock = ManualClock(BEGIN + dice.randrange(24) * HOUR_MS + dice.choice((0, 10 * SECOND_MS)))
    oracle = Oracle(policy, ticks_at, clock.now_ms())
    story: list[Any] = [seed, timing, policy, clock.now_ms()]
    async with open_engine("memory://", config=EngineConfig(loops=False), clock=clock) as engine:
        await engine.create_schedule(
            schedule_id=SCHEDULE, timing=timing, start=start(), policy=policy
        )
        for _ in range(STEPS):
            match dice.randrange(8):
                case 0 | 1:
                    story.append("end")
                    await end_last(engine)
                    await settle(engine)
                    oracle.end()
                case 2 if oracle.is_paused or oracle.queued is None:
                    oracle.is_paused = not oracle.is_paused
                    story.append("pause" if oracle.is_paused else "resume")
                    change = engine.pause_schedule if oracle.is_paused else engine.resume_schedule
                    await change(schedule_id=SCHEDULE)
                case _:
                    jump = dice.choice(JUMPS)
                    if dice.random() < 0.6:  # to where a tick is exactly as late as it may be
                        jump += -(clock.now_ms() + jump) % MINUTE_MS
                    story.append(jump)
                    clock.advance(jump)
                    await settle(engine)
                    oracle.happen(clock.now_ms())
            assert await told(engine) == oracle.fates, story


@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize("catch_up", CatchUp)
def test_fates_equal_the_oracle(catch_up: CatchUp, overlap: Overlap) -> None:
    async def all_of_them() -> None:
        for seed in range(HISTORIES):
            await history(seed, catch_up, overlap)

    asyncio.run(all_of_them())
