"""The tick that has started a run, as its handler sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from flowfabric.model.schedule import CAUGHT_UP_TAG, ID_TAG, NUMBER_TAG, TICK_TAG


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
    name, tick = tags.get(ID_TAG), tags.get(TICK_TAG)
    if name is None or tick is None:
        return None
    try:
        when, number = datetime.fromisoformat(tick), int(tags.get(NUMBER_TAG, "0"))
    except ValueError:  # tags of a caller's own
        return None
    return ScheduledTick(name, when, number, CAUGHT_UP_TAG in tags)
