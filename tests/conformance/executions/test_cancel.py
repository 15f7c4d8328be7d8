"""Cancel, in every phase, and what it leaves behind: nothing."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric.errors import ExecutionNotActive
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import OperatorEventType
from flowfabric.model.results import Cancelled
from flowfabric.model.state import PublicState, TerminalOutcome
from tests.support.builders import policy, retries
from tests.support.lab import TTL_MS, Lab, scenario

PHASES = (
    "waiting",
    "delayed",
    "held",
    "blocked",
    "granted",
    "running",
    "parked",
    "retrying",
    "lapsed",
    "revoked",
    "requeued",
    "replayed",
)


async def in_phase(lab: Lab, phase: str) -> str:
    """A new execution in one phase of its life."""
    if phase in ("running", "parked", "revoked", "requeued", "retrying", "lapsed", "replayed"):
        return await claimed_once(lab, phase)
    engine = lab.engine
    execution_id = await lab.create(delay_until=lab.now + 5000 if phase == "delayed" else None)
    match phase:
        case "held":
            await engine.hold_execution(execution_id=execution_id)
        case "blocked":
            await engine.block_execution_for_admission(
                execution_id=execution_id, reason="waiting_for_quota"
            )
        case "granted":
            await engine.issue_claim_grant(
                execution_id=execution_id, worker_id="w9", worker_instance_id="w9-1"
            )
        case _:
            pass
    return execution_id


async def claimed_once(lab: Lab, phase: str) -> str:
    """The same for the phases that follow a claim."""
    engine = lab.engine
    claimed = await lab.started(policy=policy(retry_policy=retries(3)))
    execution_id = claimed.execution_id
    match phase:
        case "parked":
            await engine.delay(claimed.handle, delay_until=lab.now + 5000)
        case "retrying":
            await engine.fail(claimed.handle, reason="x")
        case "revoked":
            await engine.revoke_lease(execution_id=execution_id, reason="x")
        case "requeued":
            await lab.after(TTL_MS)
        case "lapsed":
            lab.clock.advance(TTL_MS)
            await engine.mark_lease_expired_if_due(execution_id=execution_id)
        case "replayed":
            await engine.complete(claimed.handle)
            await engine.replay_execution(execution_id=execution_id)
        case _:
            pass
    return execution_id


@pytest.mark.parametrize("phase", PHASES)
@scenario
async def test_a_cancel_leaves_nothing_open(lab: Lab, phase: str) -> None:
    """Attempts, leases, grants, timers, events."""
    execution_id = await in_phase(lab, phase)
    before = await lab.record(execution_id)
    ends = len(await lab.completions(execution_id))
    answer = await lab.cancel(execution_id, "no longer needed")
    assert answer == Cancelled(execution_id, PublicState.CANCELLED)
    snapshot = await lab.describe(execution_id)
    assert snapshot.state.terminal_outcome is TerminalOutcome.CANCELLED
    assert snapshot.cancellation_reason == "no longer needed"
    assert snapshot.cancelled_by == "operator_override"
    assert snapshot.current_lease is None
    record = await lab.record(execution_id)
    assert (record.grant, record.worker_id, record.lease_expires_at) == (None, None, None)
    assert (record.attempt_due_at, record.reclaim_at) == (None, None)
    assert record.lease_epoch > before.lease_epoch
    attempts = (await lab.engine.list_attempts(execution_id=execution_id)).items
    assert all(attempt.ended_at is not None for attempt in attempts)
    assert len(await lab.completions(execution_id)) == ends + 1
    events = await lab.operator_events(execution_id)
    assert events[-1].event_type is OperatorEventType.CANCELLED
    # and nothing happens to it any more
    async with lab.unchanged():
        await lab.after(10 * TTL_MS)
        assert await lab.claims("w9") == []


@pytest.mark.parametrize("phase", PHASES)
@scenario
async def test_cancelling_the_cancelled_is_answered_not_repeated(lab: Lab, phase: str) -> None:
    """Invariant I6."""
    execution_id = await in_phase(lab, phase)
    first = await lab.cancel(execution_id)
    async with lab.unchanged():
        assert await lab.cancel(execution_id, "again") == first


@scenario
async def test_cancelling_what_ended_otherwise_is_refused_with_details(lab: Lab) -> None:
    execution_id = await lab.completed()
    async with lab.unchanged():
        with pytest.raises(ExecutionNotActive) as refusal:
            await lab.cancel(execution_id)
    assert refusal.value.fields["terminal_outcome"] == "success"


@scenario
async def test_completing_after_a_cancel_changes_nothing(lab: Lab) -> None:
    """A worker cannot turn cancelled into success."""
    claimed = await lab.started()
    await lab.cancel(claimed.execution_id)
    async with lab.refuses(ExecutionNotActive):
        await lab.engine.complete(claimed.handle)
    assert await lab.state(claimed.execution_id) is PublicState.CANCELLED


@scenario
async def test_the_owner_may_cancel_its_own_work(lab: Lab) -> None:
    """Fenced, with a completion event, which implies that the lease is over."""
    claimed = await lab.started()
    await lab.engine.cancel(claimed.handle, reason="user left")
    snapshot = await lab.describe(claimed.execution_id)
    assert snapshot.public_state is PublicState.CANCELLED
    assert snapshot.cancelled_by == "lease_holder"
    (attempt,) = (await lab.engine.list_attempts(execution_id=claimed.execution_id)).items
    assert attempt.outcome == AttemptOutcome.ENDED_CANCELLED
    events = [event.event_type for event in await lab.lease_events(claimed.execution_id)]
    assert events == ["acquired"]
    assert len(await lab.completions(claimed.execution_id)) == 1
    assert await lab.operator_events(claimed.execution_id) == []


@scenario
async def test_a_claim_and_a_cancel_cannot_both_win(lab: Lab) -> None:
    """Decided under one lock; the loser sees the outcome."""
    for _ in range(20):
        execution_id = await lab.create()
        claimed, _ = await asyncio.gather(lab.claims(), lab.cancel(execution_id))
        assert await lab.state(execution_id) is PublicState.CANCELLED
        for each in claimed:
            with pytest.raises(ExecutionNotActive):
                await lab.engine.renew(each.handle)
