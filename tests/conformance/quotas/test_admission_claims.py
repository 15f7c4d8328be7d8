"""Admission inside the one claim path: capability, then budget, then quota, then the lease."""

from __future__ import annotations

import pytest

from flowfabric.model.policy import ExecutionPolicy, RoutingRequirements
from flowfabric.model.state import BlockingReason, PublicState
from tests.support.builders import policy
from tests.support.gates import (
    BUDGET,
    QUOTA,
    admissions,
    budget,
    counted,
    gate,
    many,
    places,
    quota,
    spend,
)
from tests.support.lab import Lab, scenario

GPU = ExecutionPolicy(routing_requirements=RoutingRequirements(required_capabilities=("gpu",)))


async def blocked_for(lab: Lab, execution_id: str) -> BlockingReason:
    return (await lab.record(execution_id)).state.blocking_reason


@counted
async def test_a_worker_that_cannot_run_it_leaves_no_admission_behind(lab: Lab) -> None:
    """Capability comes first, and a misfit blocks no other."""
    await budget(lab)
    await quota(lab, cap=1, rate=1)
    (execution_id,) = await many(lab, 1, policy=GPU, budget_ids=(BUDGET,))
    async with lab.unchanged():
        assert await lab.claims() == []
    assert await lab.state(execution_id) is PublicState.WAITING
    assert (await lab.claim(capabilities=("gpu",))).execution_id == execution_id


@counted
async def test_a_full_budget_leaves_no_admission_behind(lab: Lab) -> None:
    """The budget is asked before the quota."""
    await budget(lab, hard=10)
    await spend(lab, 10)
    await quota(lab, cap=1, rate=1)
    (poor,) = await many(lab, 1, budget_ids=(BUDGET,))
    assert await lab.claims() == []
    assert await blocked_for(lab, poor) is BlockingReason.WAITING_FOR_BUDGET
    assert await admissions(lab) == {}
    (rich,) = await many(lab, 1)
    assert (await lab.claim()).execution_id == rich


@counted
async def test_a_full_quota_leaves_no_admission_behind(lab: Lab) -> None:
    await quota(lab, cap=1)
    running, denied = await many(lab, 2)
    await lab.claims(limit=2)
    assert set(await admissions(lab)) == {running}
    assert await blocked_for(lab, denied) is BlockingReason.WAITING_FOR_QUOTA


@counted
async def test_blocked_by_budget_then_by_quota_then_run(lab: Lab) -> None:
    await budget(lab, hard=10)
    await spend(lab, 10)
    await quota(lab, cap=1)
    running = await lab.started(quota_policy_id=QUOTA)
    (execution_id,) = await many(lab, 1, budget_ids=(BUDGET,))
    assert await lab.claims() == []
    assert await blocked_for(lab, execution_id) is BlockingReason.WAITING_FOR_BUDGET
    await lab.engine.reset_budget(budget_id=BUDGET)
    assert await lab.claims() == []
    assert await blocked_for(lab, execution_id) is BlockingReason.WAITING_FOR_QUOTA
    await lab.engine.complete(running.handle)
    assert (await lab.claim()).execution_id == execution_id


@pytest.mark.parametrize("limit", [1, 7, 1000])
@counted
async def test_six_hundred_denied_hide_nothing_behind_them(lab: Lab, limit: int) -> None:
    """A denial blocks the execution, never the lane, and one claim gets past them all."""
    await budget(lab, hard=1)
    await spend(lab, 1)
    await quota(lab, cap=1)
    await lab.started("w9", quota_policy_id=QUOTA)
    await many(lab, 300, priority=9)
    await many(lab, 300, priority=8, quota_policy_id=None, budget_ids=(BUDGET,))
    low = await lab.create(priority=0)
    claimed = await lab.claims(limit=limit)
    assert [each.execution_id for each in claimed] == [low]
    assert await lab.claims(limit=limit) == []


@counted
async def test_looking_further_takes_no_more_than_was_asked_for(lab: Lab) -> None:
    await quota(lab, cap=1)
    await many(lab, 5, concurrency_key="busy", priority=9)
    free = [(await many(lab, 1, concurrency_key=f"free-{n}"))[0] for n in range(6)]
    assert len(await lab.claims(limit=1)) == 1
    for wanted in free[:3]:
        assert (await lab.claim(limit=1)).execution_id == wanted
    assert (await gate(lab, "free-3")).active == 0
    assert [each.execution_id for each in await lab.claims(limit=2)] == free[3:5]
    assert await lab.state(free[5]) is PublicState.WAITING


@counted
async def test_a_claim_over_several_lanes_passes_the_denied_of_one(lab: Lab) -> None:
    await quota(lab, cap=1)
    await many(lab, 30, lane_id="full")
    open_ = [await lab.create(lane_id="open") for _ in range(4)]
    claimed = await lab.claims(lanes=("full", "open"), limit=5)
    assert len(claimed) == 5
    assert {each.execution_id for each in claimed} >= set(open_)


@counted
async def test_a_denied_execution_is_not_looked_at_again_by_claims(lab: Lab) -> None:
    await quota(lab, cap=1)
    await many(lab, 3)
    await lab.claims(limit=3)
    async with lab.unchanged():
        assert await lab.claims(limit=3) == []


@counted
async def test_a_deadline_reaches_an_execution_that_waits_for_a_quota(lab: Lab) -> None:
    await quota(lab, cap=1)
    await lab.started(quota_policy_id=QUOTA)
    (denied,) = await many(lab, 1, policy=policy(execution_deadline_ms=5_000))
    assert await lab.claims() == []
    await lab.after(5_000)
    assert await lab.state(denied) is PublicState.EXPIRED


@counted
async def test_a_blocked_execution_can_be_cancelled_and_reprioritised(lab: Lab) -> None:
    await quota(lab, cap=1)
    running = await lab.started(quota_policy_id=QUOTA)
    first, second, third = await many(lab, 3)
    assert await lab.claims(limit=5) == []
    await lab.cancel(first)
    await lab.engine.change_priority(execution_id=third, new_priority=9)
    await lab.engine.complete(running.handle)
    assert (await lab.claim()).execution_id == third
    assert await lab.state(second) is PublicState.RATE_LIMITED


@counted
async def test_several_budgets_must_all_be_open(lab: Lab) -> None:
    for name in ("b1", "b2"):
        await budget(lab, name, hard=5)
    execution_id = await lab.create(budget_ids=("b1", "b2"))
    await spend(lab, 5, "b2")
    assert await lab.claims() == []
    assert "b2" in (await lab.record(execution_id)).blocking_detail
    await spend(lab, 5, "b1")
    await lab.engine.reset_budget(budget_id="b2")
    assert await lab.claims() == []
    assert "b1" in (await lab.record(execution_id)).blocking_detail
    await lab.engine.update_budget(budget_id="b1", hard_limits={"tokens": 6})
    assert (await lab.claim()).execution_id == execution_id


@pytest.mark.parametrize(
    ("bounds", "text", "reason"),
    [
        ('{"budget_ids":["ghost"]}', "budget ghost: does not exist", "waiting_for_budget"),
        ('{"quota_policy_id":"ghost"}', "quota ghost does not exist", "waiting_for_quota"),
    ],
)
def test_what_a_spoiled_row_names_and_nobody_knows_is_denied(
    durable_lab: Lab, bounds: str, text: str, reason: str
) -> None:
    """An unknown id denies with its own reason, never lets pass, and hides no other."""
    lab = durable_lab

    async def story() -> None:
        bad = await lab.create(priority=9)
        good = await lab.create()
        await lab.sql(
            f"UPDATE ff_exec_body SET bounds = '{bounds}' WHERE execution_id = '{bad[-36:]}'"
        )
        assert (await lab.claim()).execution_id == good
        record = await lab.record(bad)
        assert record.public_state is PublicState.RATE_LIMITED
        assert record.state.blocking_reason.value == reason
        assert record.blocking_detail.startswith(text)
        answer = await lab.engine.explain(execution_id=bad)
        assert (answer.waiting_for, answer.summary) == (reason, record.blocking_detail)

    lab.run(story())


@scenario
async def test_plain_work_pays_nothing_for_the_limits_of_others(lab: Lab) -> None:
    await quota(lab, cap=1)
    await many(lab, 2)
    plain = await lab.create(priority=9)
    assert (await lab.claim()).execution_id == plain
    assert await places(lab) == set()
