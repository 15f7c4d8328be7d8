"""Schedules: one that is paused, one with a run that has not ended and a tick that waits for it."""

from __future__ import annotations

from flowfabric.model.schedule import Fate, Overlap, Timing
from tests.support.lab import Lab
from tests.support.living.kind import HOUR_MS, Living, Notes
from tests.support.schedules import declare, declared, fates, schedule, settled, start, told


class Scheduled(Living):
    """An hourly schedule that watches its runs; one that a program declares, and is paused."""

    async def begin(self, lab: Lab) -> Notes:
        starts = start("work", lane_id=self.lane, tags={"team.name": "red"})
        await schedule(
            lab,
            Timing(every_ms=HOUR_MS),
            name="hourly",
            starts=starts,
            overlap=Overlap.QUEUE_ONE,
            pause_on_failure=1,
        )
        manual = await lab.engine.trigger_schedule(schedule_id="hourly")
        await declare(lab, declared("mine"))
        await lab.engine.pause_schedule(schedule_id="mine", reason="holiday", actor="olga")
        return {"run": manual.run_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        await self.finish(lab, notes["run"])
        mine = await told(lab, "mine")
        assert (mine.pause_reason, mine.paused_by, mine.origin) == ("holiday", "olga", "shop")
        next_tick = (await told(lab, "hourly")).next_tick
        assert next_tick is not None
        lab.clock.set(max(lab.now, next_tick))
        await settled(lab)
        first = await self.claim(lab)
        assert (await lab.describe(first.execution_id)).tags["team.name"] == "red"
        lab.clock.advance(HOUR_MS - 1)
        await lab.engine.renew(first.handle)
        await lab.after(1)
        assert (await fates(lab, "hourly"))[-1] == Fate.QUEUED
        await lab.engine.complete(first.handle)
        await settled(lab)
        second = await self.claim(lab)
        await lab.engine.fail(second.handle, reason="no", failure_class="permanent")
        await settled(lab)
        assert (await told(lab, "hourly")).paused_by == "pause_on_failure"
