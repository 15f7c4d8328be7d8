"""Doctor compares the counters of limits with the rows they count."""

from __future__ import annotations

import pytest

from flowfabric.errors import Corruption
from flowfabric.model.budget import Reserved
from tests.support.lab import Lab, scenario

SPOIL = {
    "active": "UPDATE ff_quota_gate SET active = 7",
    "in_window": "UPDATE ff_quota_gate SET in_window = 7",
    "held": "UPDATE ff_budget_usage SET held = 7",
}


async def busy(lab: Lab) -> None:
    engine = lab.engine
    await engine.create_budget(
        budget_id="b", dimensions=["tokens"], hard_limits=[100], soft_limits=[0]
    )
    await engine.create_quota_policy(
        quota_policy_id="q", max_requests_per_window=5, max_concurrent=2
    )
    claimed = await lab.started(budget_ids=("b",), quota_policy_id="q")
    held = await engine.reserve_budget(claimed.handle, budget_id="b", amounts={"tokens": 5})
    assert isinstance(held, Reserved)


@scenario
async def test_a_busy_store_is_healthy(lab: Lab) -> None:
    await busy(lab)
    assert (await lab.engine.doctor()).problems == ()


@pytest.mark.parametrize("what", SPOIL)
def test_a_wrong_counter_is_found(durable_lab: Lab, what: str) -> None:
    async def story() -> None:
        await busy(durable_lab)
        await durable_lab.sql(SPOIL[what])
        (problem,) = (await durable_lab.engine.doctor()).problems
        assert problem.code == "limits"
        assert "7" in problem.detail

    durable_lab.run(story())


def test_a_spoiled_budget_harms_only_its_own(durable_lab: Lab) -> None:
    """Bad input: a row nobody can read is named, and neither claims nor other budgets stop."""

    async def story(lab: Lab) -> None:
        engine = lab.engine
        for name in ("bad", "good"):
            await engine.create_budget(
                budget_id=name, dimensions=["tokens"], hard_limits=[100], soft_limits=[0]
            )
        stuck = await lab.create(budget_ids=("bad",), priority=9)
        runs = await lab.create(budget_ids=("good",))
        await lab.sql("UPDATE ff_budget_policy SET policy = '[1]' WHERE budget_id = 'bad'")
        with pytest.raises(Corruption, match="bad"):
            await engine.report_usage_admin(budget_id="bad", dimensions=["tokens"], deltas=[1])
        assert [each.execution_id for each in await lab.claims(limit=5)] == [runs]
        assert "bad" in (await lab.describe(stuck)).blocking_detail
        await engine.report_usage_admin(budget_id="good", dimensions=["tokens"], deltas=[1])
        (problem,) = (await engine.doctor()).problems
        assert (problem.code, problem.subject) == ("corrupt", "ff_budget_policy bad")

    durable_lab.run(story(durable_lab))


def test_a_spoiled_budget_does_not_keep_the_loop_busy(durable_lab: Lab) -> None:
    async def story(lab: Lab) -> None:
        await lab.engine.create_budget(
            budget_id="bad",
            dimensions=["tokens"],
            hard_limits=[100],
            soft_limits=[0],
            reset_interval_ms=1_000,
        )
        await lab.sql("UPDATE ff_budget_policy SET policy = '[1]'")
        lab.clock.advance(5_000)
        assert await lab.engine.move_due() == 0

    durable_lab.run(story(durable_lab))
