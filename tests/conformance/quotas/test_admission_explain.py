"""Explain names the budget or quota that keeps work back, how full it is and when it may clear."""

from __future__ import annotations

from flowfabric.model.results import Explanation, LimitInfo
from flowfabric.model.state import PublicState
from tests.support.gates import BUDGET, QUOTA, budget, counted, many, quota, spend
from tests.support.lab import Lab


async def explain(lab: Lab, execution_id: str) -> Explanation:
    async with lab.unchanged():
        return await lab.engine.explain(execution_id=execution_id)


@counted
async def test_a_full_quota_is_named_with_its_usage(lab: Lab) -> None:
    await quota(lab, cap=2)
    denied = (await many(lab, 3))[2]
    await lab.claims(limit=3)
    answer = await explain(lab, denied)
    assert (answer.public_state, answer.waiting_for) == (
        PublicState.RATE_LIMITED,
        "waiting_for_quota",
    )
    assert answer.summary == "quota q: 2/2 running"
    assert answer.limits == (LimitInfo("quota", QUOTA, True, "2/2 running", None),)
    assert any(QUOTA in hint for hint in answer.hints)


@counted
async def test_a_full_window_is_named_with_the_time_it_clears(lab: Lab) -> None:
    await quota(lab, rate=1)
    denied = (await many(lab, 2, concurrency_key="customer-7"))[1]
    await lab.claims(limit=2)
    answer = await explain(lab, denied)
    assert answer.summary == "quota q for customer-7: 1/1 starts in 10 s"
    assert answer.due_at == lab.now + 10_000
    (limit,) = answer.limits
    assert (limit.keeps_back, limit.clears_at) == (True, lab.now + 10_000)


@counted
async def test_a_full_budget_is_named_with_its_next_reset(lab: Lab) -> None:
    await budget(lab, hard=10, reset_interval_ms=60_000)
    await spend(lab, 10)
    denied = await lab.create(budget_ids=(BUDGET,))
    assert await lab.claims() == []
    answer = await explain(lab, denied)
    assert (answer.waiting_for, answer.summary) == ("waiting_for_budget", "budget b: tokens 10/10")
    (limit,) = answer.limits
    assert (limit.kind, limit.limit_id, limit.keeps_back) == ("budget", BUDGET, True)
    assert limit.usage == "tokens 10/10"
    assert answer.due_at == limit.clears_at == lab.now + 60_000
    assert any("ff budget" in hint for hint in answer.hints)


@counted
async def test_what_runs_or_waits_shows_its_limits_too(lab: Lab) -> None:
    await budget(lab, hard=10)
    await spend(lab, 4)
    await quota(lab, cap=3, rate=9)
    running, waiting = await many(lab, 2, budget_ids=(BUDGET,))
    await lab.claim()
    for execution_id in (running, waiting):
        answer = await explain(lab, execution_id)
        assert [(each.limit_id, each.keeps_back, each.usage) for each in answer.limits] == [
            (BUDGET, False, "tokens 4/10"),
            (QUOTA, False, "1/3 running, 1/9 starts in 10 s"),
        ]


@counted
async def test_a_window_that_has_passed_is_shown_as_free(lab: Lab) -> None:
    """Reading needs no loop: what is older than the window no longer counts."""
    await quota(lab, rate=2)
    first, second = await many(lab, 2)
    await lab.claims(limit=1)
    lab.clock.advance(10_000)
    (limit,) = (await explain(lab, second)).limits
    assert limit.usage == "0/2 starts in 10 s"
    status = await lab.engine.get_quota_status(quota_policy_id=QUOTA)
    assert [each.in_window for each in status.gates] == [0]
    assert await lab.state(first) is PublicState.ACTIVE


@counted
async def test_an_execution_without_limits_names_none(lab: Lab) -> None:
    execution_id = await lab.create()
    assert (await explain(lab, execution_id)).limits == ()
