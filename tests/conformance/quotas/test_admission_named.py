"""Grants and named starts obey the same admission as the common claim."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.errors import (
    CapabilityMismatch,
    ClaimGrantExpired,
    ExecutionNotEligible,
    ExecutionNotLeaseable,
    GrantAlreadyExists,
)
from flowfabric.model.policy import ExecutionPolicy, RoutingRequirements
from flowfabric.model.quota import AdmissionState
from flowfabric.model.results import GrantIssued, NoWork
from flowfabric.model.state import PublicState
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
from tests.support.lab import LANE, TTL_MS, Lab

GPU = ExecutionPolicy(routing_requirements=RoutingRequirements(required_capabilities=("gpu",)))


def worker(name: str = "w1") -> dict[str, Any]:
    return {"worker_id": name, "worker_instance_id": f"{name}-1"}


async def promised(lab: Lab, name: str = "w1", ttl_ms: int = 5_000) -> str | None:
    answer = await lab.engine.claim_for_worker(lane_id=LANE, grant_ttl_ms=ttl_ms, **worker(name))
    return answer.execution_id if isinstance(answer, GrantIssued) else None


# --- what a denied start is told ---------------------------------------------------------------


async def grant(lab: Lab, execution_id: str) -> None:
    await lab.engine.issue_claim_grant(execution_id=execution_id, **worker())


async def take(lab: Lab, execution_id: str) -> None:
    await lab.engine.issue_grant_and_claim(
        execution_id=execution_id, lane_id=LANE, lease_duration_ms=TTL_MS
    )


@pytest.mark.parametrize("start", [grant, take], ids=lambda each: each.__name__)
@pytest.mark.parametrize("limit", ["budget", "quota"])
@counted
async def test_a_denied_named_start_says_why_and_parks_it(
    lab: Lab, start: Callable[[Lab, str], Awaitable[None]], limit: str
) -> None:
    """No path passes admission by."""
    await budget(lab, hard=1)
    await quota(lab, cap=1)
    if limit == "budget":
        await spend(lab, 1)
    else:
        await lab.started(quota_policy_id=QUOTA)
    (denied,) = await many(lab, 1, budget_ids=(BUDGET,))
    with pytest.raises(ExecutionNotEligible) as refusal:
        await start(lab, denied)
    assert refusal.value.fields["blocking_reason"] == f"waiting_for_{limit}"
    assert limit in str(refusal.value)
    assert await lab.state(denied) is PublicState.RATE_LIMITED
    assert denied not in await admissions(lab)
    with pytest.raises((ExecutionNotEligible, ExecutionNotLeaseable)):
        await start(lab, denied)


@counted
async def test_a_grant_is_not_redeemed_into_a_budget_that_filled_up_meanwhile(lab: Lab) -> None:
    await budget(lab, hard=1)
    await quota(lab, cap=1)
    (execution_id,) = await many(lab, 1, budget_ids=(BUDGET,))
    await grant(lab, execution_id)
    await spend(lab, 1)
    with pytest.raises(ExecutionNotEligible) as refusal:
        await lab.engine.claim_execution(execution_id=execution_id, **worker())
    assert refusal.value.fields["blocking_reason"] == "waiting_for_budget"
    assert await lab.state(execution_id) is PublicState.RATE_LIMITED
    assert await places(lab) == set()  # with the grant the place is gone


@counted
async def test_a_grant_is_not_redeemed_into_a_place_given_away(lab: Lab) -> None:
    await quota(lab, cap=1)
    promised_id, other = await many(lab, 2)
    await grant(lab, promised_id)
    await lab.engine.release_admission(quota_policy_id=QUOTA, execution_id=promised_id)
    assert (await lab.claim("w2")).execution_id == other
    with pytest.raises(ExecutionNotEligible) as refusal:
        await lab.engine.claim_execution(execution_id=promised_id, **worker())
    assert refusal.value.fields["blocking_reason"] == "waiting_for_quota"
    assert await places(lab) == {other}


@counted
async def test_a_lost_execution_is_reclaimed_only_into_a_free_place(lab: Lab) -> None:
    await quota(lab, cap=1)
    lost = await lab.lapsed(quota_policy_id=QUOTA)
    other = (await many(lab, 1))[0]
    assert (await lab.claim("w2")).execution_id == other
    engine, execution_id = lab.engine, lost.execution_id
    await engine.issue_reclaim_grant(execution_id=execution_id, **worker("w3"))
    with pytest.raises(ExecutionNotEligible) as refusal:
        await engine.reclaim_execution(execution_id=execution_id, **worker("w3"))
    assert refusal.value.fields["blocking_reason"] == "waiting_for_quota"
    assert await places(lab) == {other}
    await lab.cancel(other)
    await engine.reclaim_execution(execution_id=execution_id, **worker("w3"))
    assert await places(lab) == {execution_id}


@counted
async def test_a_named_start_takes_a_place(lab: Lab) -> None:
    await quota(lab, cap=1)
    (execution_id,) = await many(lab, 1)
    await take(lab, execution_id)
    assert (await admissions(lab))[execution_id].state is AdmissionState.RUNNING


# --- grants ------------------------------------------------------------------------------------


@counted
async def test_a_grant_reserves_a_place_and_the_claim_uses_it(lab: Lab) -> None:
    """Reserved with the grant, promoted by the claim, counted once."""
    await quota(lab, cap=1, rate=5)
    first, second = await many(lab, 2)
    assert await promised(lab) == first
    row = (await admissions(lab))[first]
    assert row.state is AdmissionState.RESERVED
    assert await lab.claims("w2", limit=5) == []
    assert await lab.state(second) is PublicState.RATE_LIMITED
    claimed = await lab.engine.claim_execution(execution_id=first, **worker())
    row = (await admissions(lab))[first]
    assert (row.state, row.due_at) == (AdmissionState.RUNNING, None)
    counters = await gate(lab)
    assert (counters.active, counters.in_window) == (1, 1)
    await lab.engine.complete(claimed.handle)
    assert (await lab.claim("w2")).execution_id == second


@counted
async def test_a_grant_that_lapses_returns_its_place(lab: Lab) -> None:
    """Nothing is stranded by a scheduler that crashed after its grant."""
    await quota(lab, cap=1)
    first, second = await many(lab, 2)
    assert await promised(lab, ttl_ms=2_000) == first
    assert await promised(lab, "w2") is None
    await lab.after(2_000)
    assert await places(lab) == {first}  # its last millisecond is its own
    await lab.after(1)
    assert await places(lab) == set()
    assert await lab.state(second) is PublicState.WAITING
    async with lab.refuses(ClaimGrantExpired):
        await lab.engine.claim_execution(execution_id=first, **worker())
    claimed = await lab.claims("w2", limit=5)
    assert [each.execution_id for each in claimed] == [first]


@counted
async def test_a_grant_is_redeemed_in_its_last_millisecond(lab: Lab) -> None:
    await quota(lab, cap=1)
    first, second = await many(lab, 2)
    assert await promised(lab, ttl_ms=1_000) == first
    assert await lab.claims("w2") == []
    await lab.after(1_000)
    claimed = await lab.engine.claim_execution(execution_id=first, **worker())
    assert await places(lab) == {claimed.execution_id}
    assert await lab.state(second) is PublicState.RATE_LIMITED


@counted
async def test_a_lapsed_grant_given_again_keeps_the_one_place(lab: Lab) -> None:
    await quota(lab, cap=2, rate=9)
    (execution_id,) = await many(lab, 1)
    assert await promised(lab, ttl_ms=1_000) == execution_id
    lab.clock.advance(1_001)  # lapsed, and no loop has looked yet
    assert await promised(lab, "w2", ttl_ms=1_000) == execution_id
    counters = await gate(lab)
    assert (counters.active, counters.in_window) == (1, 1)
    await lab.after(500)
    assert await places(lab) == {execution_id}
    await lab.after(501)
    assert await places(lab) == set()


@counted
async def test_the_common_claim_takes_over_from_a_lapsed_grant(lab: Lab) -> None:
    await quota(lab, cap=1)
    (execution_id,) = await many(lab, 1)
    await promised(lab, ttl_ms=1_000)
    assert await lab.claims("w2") == []
    lab.clock.advance(1_001)
    assert (await lab.claim("w2")).execution_id == execution_id
    await lab.engine.move_due()  # the old reservation's time must not free the running place
    assert await places(lab) == {execution_id}


@pytest.mark.parametrize("how", ["cancel", "hold"])
@counted
async def test_a_grant_withdrawn_returns_its_place_at_once(lab: Lab, how: str) -> None:
    await quota(lab, cap=1)
    (execution_id,) = await many(lab, 1)
    await promised(lab)
    if how == "cancel":
        await lab.cancel(execution_id)
    else:
        await lab.engine.hold_execution(execution_id=execution_id)
    assert await places(lab) == set()


@counted
async def test_the_scheduler_passes_over_the_denied(lab: Lab) -> None:
    """No denial hides what stands behind, however much there is."""
    await budget(lab, hard=1)
    await spend(lab, 1)
    await quota(lab, cap=1)
    await many(lab, 60, priority=9, quota_policy_id=None, budget_ids=(BUDGET,))
    high, low = [(await many(lab, 1, priority=rank))[0] for rank in (5, 4)]
    plain = await lab.create()
    chosen = [await promised(lab, f"w{n}") for n in range(3)]
    assert chosen == [high, plain, None]
    assert await lab.state(low) is PublicState.RATE_LIMITED


@counted
async def test_a_scheduler_for_a_worker_that_cannot_run_it_admits_nobody(lab: Lab) -> None:
    await quota(lab, cap=1)
    (execution_id,) = await many(lab, 1, policy=GPU)
    async with lab.unchanged():
        assert await lab.engine.claim_for_worker(lane_id=LANE, **worker()) == NoWork()
    async with lab.refuses(CapabilityMismatch):
        await grant(lab, execution_id)


@counted
async def test_a_refused_grant_releases_nobody_elses_place(lab: Lab) -> None:
    """AlreadyAdmitted and a grant that fails leave the place with its owner."""
    await quota(lab, cap=1)
    (execution_id,) = await many(lab, 1)
    await promised(lab)
    async with lab.refuses(GrantAlreadyExists):
        await lab.engine.issue_claim_grant(execution_id=execution_id, **worker("w2"))
    assert await places(lab) == {execution_id}
    await lab.engine.claim_execution(execution_id=execution_id, **worker())
