"""What statistics have counted, and where they go on."""

from __future__ import annotations

from tests.support.lab import Lab
from tests.support.living.kind import Living, Notes
from tests.support.statistics import read, roll_up


class Tallied(Living):
    """A minute with an end and spending in it, and an entry behind it that is not counted yet."""

    async def begin(self, lab: Lab) -> Notes:
        engine = lab.engine
        claimed = await self.start(lab)
        await engine.complete(claimed.handle)
        await engine.create_budget(
            budget_id=self.lane, dimensions=("tokens",), hard_limits=(9,), soft_limits=(0,)
        )
        await engine.report_usage_admin(
            budget_id=self.lane, dimensions=("tokens",), deltas=(4,), dedup_key=None
        )
        await roll_up(lab)
        await engine.reset_budget(budget_id=self.lane)
        return {"spent": 4}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine = lab.engine
        await engine.report_usage_admin(
            budget_id=self.lane, dimensions=("tokens",), deltas=(3,), dedup_key=None
        )
        await roll_up(lab)
        (line,) = await read(lab, lane_id=self.lane)
        assert (line.created, line.started, line.succeeded, line.pickup.count) == (1, 1, 1, 1)
        (spent,) = (await engine.read_spending(since=0, by="total", budget_id=self.lane)).items
        assert spent.spent == notes["spent"] + 3
