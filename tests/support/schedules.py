"""Schedules in the words of tests."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.api.executions import NewExecution
from flowfabric.api.schedules import DeclaredSchedule, ScheduledStart
from flowfabric.model.schedule import SchedulePolicy, ScheduleSnapshot, Timing
from tests.support.lab import Lab

SCHEDULE: Final = "report"
SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
HOURLY: Final = Timing(every_ms=HOUR_MS)


def start(kind: str = "report", **fields: Any) -> ScheduledStart:
    """What a tick starts."""
    return ScheduledStart(execution=NewExecution(execution_kind=kind, **fields))


async def schedule(
    lab: Lab,
    timing: Timing = HOURLY,
    *,
    name: str = SCHEDULE,
    starts: ScheduledStart | None = None,
    **policy: Any,
) -> ScheduleSnapshot:
    """A new schedule."""
    made = await lab.engine.create_schedule(
        schedule_id=name,
        timing=timing,
        start=starts or start(),
        policy=SchedulePolicy(**policy),
    )
    assert made.is_new
    return made.schedule


def declared(name: str = SCHEDULE, timing: Timing = HOURLY, **fields: Any) -> DeclaredSchedule:
    """A schedule as a program declares it."""
    return DeclaredSchedule(
        schedule_id=name, timing=timing, start=start(), **{"origin": "shop", **fields}
    )


async def declare(lab: Lab, *schedules: DeclaredSchedule, **fields: Any) -> Any:
    """All that the program declares."""
    return await lab.engine.declare_schedules(
        schedules=schedules, **{"origins": ("shop",), **fields}
    )


async def told(lab: Lab, name: str = SCHEDULE) -> ScheduleSnapshot:
    """A schedule that must be there."""
    found = await lab.engine.describe_schedule(schedule_id=name)
    assert found is not None
    return found


async def fates(lab: Lab, name: str = SCHEDULE) -> list[str]:
    """The fates of all ticks, oldest first."""
    ticks = await lab.engine.read_ticks(schedule_id=name, after=0, limit=1000)
    return [each.fate.value for each in ticks]


async def settled(lab: Lab) -> None:
    """All that is due is done."""
    while await lab.engine.tick():
        continue
