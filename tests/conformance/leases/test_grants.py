"""Grants: an external scheduler's short promise."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import (
    CapabilityMismatch,
    ClaimGrantExpired,
    ExecutionNotEligible,
    ExecutionNotLeaseable,
    GrantAlreadyExists,
    InvalidClaimGrant,
    InvalidInput,
    LeaseConflict,
    NotAResumedExecution,
    UseClaimResumedExecution,
)
from flowfabric.model.handle import HandleKind
from flowfabric.model.policy import ExecutionPolicy, RoutingRequirements
from flowfabric.model.results import GrantIssued, NoWork
from flowfabric.model.state import PublicState
from tests.support.lab import LANE, TTL_MS, Lab, scenario

GPU = ExecutionPolicy(routing_requirements=RoutingRequirements(required_capabilities=("gpu",)))


def worker(name: str = "w1", instance: str | None = None) -> dict[str, Any]:
    return {"worker_id": name, "worker_instance_id": instance or f"{name}-1"}


@scenario
async def test_a_grant_is_redeemed_by_its_worker(lab: Lab) -> None:
    """Granting changes no eligibility; redeeming returns a real handle."""
    execution_id = await lab.create(input_payload=b"in")
    grant = await lab.engine.issue_claim_grant(
        execution_id=execution_id, grant_ttl_ms=1000, **worker()
    )
    assert (grant.execution_id, grant.lane_id) == (execution_id, LANE)
    assert grant.expires_at_ms == lab.now + 1000
    assert await lab.state(execution_id) is PublicState.WAITING
    claimed = await lab.engine.claim_execution(
        execution_id=execution_id, lease_ttl_ms=TTL_MS, **worker()
    )
    assert (claimed.payload, claimed.handle.kind) == (b"in", HandleKind.FRESH)
    assert (await lab.record(execution_id)).grant is None
    await lab.engine.complete(claimed.handle)


@scenario
async def test_a_grant_lives_to_its_last_millisecond(lab: Lab) -> None:
    """Expired means ClaimGrantExpired, and the work can be granted again."""
    execution_id = await lab.create()
    engine = lab.engine
    await engine.issue_claim_grant(execution_id=execution_id, grant_ttl_ms=1000, **worker())
    lab.clock.advance(1000)
    async with lab.refuses(GrantAlreadyExists):
        await engine.issue_claim_grant(execution_id=execution_id, **worker("w2"))
    lab.clock.advance(1)
    async with lab.refuses(ClaimGrantExpired):
        await engine.claim_execution(execution_id=execution_id, **worker())
    await engine.issue_claim_grant(execution_id=execution_id, **worker("w2"))
    await engine.claim_execution(execution_id=execution_id, **worker("w2"))


@scenario
async def test_a_grant_is_the_pools_and_not_the_processs(lab: Lab) -> None:
    execution_id = await lab.create()
    await lab.engine.issue_claim_grant(execution_id=execution_id, **worker("w1", "w1-1"))
    async with lab.refuses(InvalidClaimGrant):
        await lab.engine.claim_execution(execution_id=execution_id, **worker("w2"))
    claimed = await lab.engine.claim_execution(execution_id=execution_id, **worker("w1", "w1-7"))
    assert claimed.handle.worker_instance_id == "w1-7"


@scenario
async def test_without_a_grant_nothing_is_redeemed(lab: Lab) -> None:
    """No path revives or seizes without a right."""
    waiting = await lab.create()
    finished = await lab.completed(lane_id="b")
    running = (await lab.started(lane_id="c")).execution_id
    delayed = await lab.create(delay_until=lab.now + 9)
    expected = [
        (waiting, InvalidClaimGrant),
        (finished, ExecutionNotLeaseable),
        (running, LeaseConflict),
        (delayed, ExecutionNotLeaseable),
    ]
    for execution_id, error in expected:
        async with lab.refuses(error):
            await lab.engine.claim_execution(execution_id=execution_id, **worker())


@scenario
async def test_a_resumed_attempt_needs_the_claim_that_resumes(lab: Lab) -> None:
    """The scheduler's grants serve interrupted attempts as well."""
    first = await lab.started()
    await lab.engine.delay(first.handle, delay_until=lab.now)
    engine, execution_id = lab.engine, first.execution_id
    grant = await engine.claim_for_worker(lane_id=LANE, **worker("w2"))
    assert isinstance(grant, GrantIssued)
    async with lab.refuses(UseClaimResumedExecution):
        await engine.claim_execution(execution_id=execution_id, **worker("w2"))
    resumed = await engine.claim_from_resume_grant(grant=grant, **worker("w2"))
    assert (resumed.attempt_id, resumed.attempt_index) == (first.attempt_id, 0)
    assert resumed.handle.kind is HandleKind.RESUMED
    fresh = await lab.create()
    await engine.issue_claim_grant(execution_id=fresh, **worker())
    async with lab.refuses(NotAResumedExecution):
        await engine.claim_resumed_execution(execution_id=fresh, **worker())


@scenario
async def test_only_waiting_work_is_promised(lab: Lab) -> None:
    held = await lab.create()
    await lab.engine.hold_execution(execution_id=held)
    delayed = await lab.create(delay_until=lab.now + 9)
    finished = await lab.completed(lane_id="b")
    for execution_id in (held, delayed, finished):
        async with lab.refuses(ExecutionNotEligible):
            await lab.engine.issue_claim_grant(execution_id=execution_id, **worker())


@scenario
async def test_a_promise_needs_the_capabilities_and_names_the_missing(lab: Lab) -> None:
    execution_id = await lab.create(policy=GPU)
    async with lab.refuses(CapabilityMismatch, field="gpu"):
        await lab.engine.issue_claim_grant(
            execution_id=execution_id, worker_capabilities=("cpu",), **worker()
        )


@pytest.mark.parametrize("grant_ttl_ms", [0, -1, 60_001])
@scenario
async def test_a_promise_is_short(lab: Lab, grant_ttl_ms: int) -> None:
    """1 to 60,000 ms."""
    execution_id = await lab.create()
    async with lab.refuses(InvalidInput, field="grant_ttl_ms"):
        await lab.engine.issue_claim_grant(
            execution_id=execution_id, grant_ttl_ms=grant_ttl_ms, **worker()
        )


@scenario
async def test_no_grant_outlives_the_life_it_was_given_in(lab: Lab) -> None:
    """Cancel, hold, expiry and replay drop it."""
    engine = lab.engine
    held = await lab.create()
    await engine.issue_claim_grant(execution_id=held, **worker())
    await engine.hold_execution(execution_id=held)
    await engine.release_execution(execution_id=held)
    cancelled = await lab.create()
    await engine.issue_claim_grant(execution_id=cancelled, **worker())
    await lab.cancel(cancelled)
    await engine.replay_execution(execution_id=cancelled)
    for execution_id in (held, cancelled):
        async with lab.refuses(InvalidClaimGrant):
            await engine.claim_execution(execution_id=execution_id, **worker())


@scenario
async def test_the_scheduler_chooses_the_best_and_passes_over_the_promised(lab: Lab) -> None:
    low = await lab.create(priority=1)
    high = await lab.create(priority=9)
    await lab.create(priority=99, policy=GPU)
    chosen = []
    for name in ("w1", "w2"):
        grant = await lab.engine.claim_for_worker(lane_id=LANE, **worker(name))
        assert isinstance(grant, GrantIssued)
        chosen.append(grant.execution_id)
    assert chosen == [high, low]
    async with lab.unchanged():
        assert await lab.engine.claim_for_worker(lane_id=LANE, **worker("w3")) == NoWork()
        assert await lab.claims() == []


@scenario
async def test_a_worker_is_promised_only_kinds_it_has_handlers_for(lab: Lab) -> None:
    """Issue 10 A10: the better execution of another kind is left to others."""
    best, other = await lab.create("render", priority=9), await lab.create("mail")
    promise = lab.engine.claim_for_worker
    async with lab.unchanged():
        for kinds in ((), ("brief",)):
            assert await promise(lane_id=LANE, kinds=kinds, **worker()) == NoWork()
    granted = await promise(lane_id=LANE, kinds=("mail", "brief"), **worker())
    assert isinstance(granted, GrantIssued)
    assert granted.execution_id == other
    every = await promise(lane_id=LANE, **worker("w2"))
    assert isinstance(every, GrantIssued)
    assert every.execution_id == best


@scenario
async def test_eligible_work_can_be_scanned_without_touching_it(lab: Lab) -> None:
    first = await lab.create(priority=9)
    second = await lab.create()
    await lab.create(delay_until=lab.now + 5)
    await lab.create(lane_id="other")
    async with lab.unchanged():
        scan = lab.engine.scan_eligible_executions
        assert await scan(lane_id=LANE) == [first, second]
        assert await scan(lane_id=LANE, limit=1) == [first]
        assert await scan(lane_id=LANE, limit=0) == []


@scenario
async def test_an_operator_takes_one_named_execution(lab: Lab) -> None:
    """Capabilities are skipped, states are not."""
    named = await lab.create(policy=GPU, input_payload=b"in")
    claimed = await lab.engine.issue_grant_and_claim(
        execution_id=named, lane_id=LANE, lease_duration_ms=TTL_MS
    )
    assert (claimed.execution_id, claimed.payload) == (named, b"in")
    assert (await lab.operator_events(named))[-1].event_type == "claimed"
    delayed = await lab.create(delay_until=lab.now + 9)
    async with lab.refuses(ExecutionNotLeaseable):
        await lab.engine.issue_grant_and_claim(
            execution_id=delayed, lane_id=LANE, lease_duration_ms=TTL_MS
        )
    async with lab.refuses(InvalidInput, field="lane_id"):
        await lab.engine.issue_grant_and_claim(
            execution_id=delayed, lane_id="other", lease_duration_ms=TTL_MS
        )
