"""The tick that has started a run, as its handler sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from flowfabric.model.schedule import run_of


@dataclass(frozen=True, slots=True)
class ScheduledTick:
    """The tick that has started a run: `ctx.schedule`.

    `tick` is the time the calendar says, and not the present: a run that was late, caught up or
    backfilled works on the day it is for.
    """

    id: str
    tick: datetime
    number: int  # the how-many-th run of the schedule this is
    caught_up: bool


def tick_of(tags: Mapping[str, str]) -> ScheduledTick | None:
    """The tick that has started a run, by its tags; none if no schedule did."""
    found = run_of(tags)
    if found is None:
        return None
    tick = datetime.fromtimestamp(found.tick / 1000, UTC)
    return ScheduledTick(found.schedule_id, tick, found.number, found.is_caught_up)
