"""Holds and blocks: kept from workers for a named reason, and let go as they were."""

from __future__ import annotations

import pytest

from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotEligible,
    InvalidBlockingReason,
)
from flowfabric.model.results import Blocked, Rejected, Unblocked
from flowfabric.model.state import BlockingReason, PublicState
from tests.support.builders import policy, retries
from tests.support.lab import Lab, scenario


@scenario
async def test_held_work_is_not_claimed_until_released(lab: Lab) -> None:
    """Audited both times."""
    execution_id = await lab.create()
    answer = await lab.engine.hold_execution(execution_id=execution_id, reason="audit")
    assert answer == Blocked(execution_id, BlockingReason.PAUSED_BY_OPERATOR)
    snapshot = await lab.describe(execution_id)
    assert (snapshot.public_state, snapshot.blocking_detail) == (PublicState.WAITING, "audit")
    assert await lab.claims() == []
    async with lab.unchanged():
        assert await lab.engine.hold_execution(execution_id=execution_id) == answer
    released = await lab.engine.release_execution(execution_id=execution_id)
    assert released == Unblocked(execution_id, PublicState.WAITING)
    kinds = [event.event_type for event in await lab.operator_events(execution_id)]
    assert kinds == ["held", "released"]
    assert (await lab.claim()).execution_id == execution_id


@scenario
async def test_a_delay_goes_on_under_a_hold(lab: Lab) -> None:
    """Release restores what was before, not more."""
    execution_id = await lab.create(delay_until=lab.now + 1000)
    await lab.engine.hold_execution(execution_id=execution_id)
    await lab.after(500)
    released = await lab.engine.release_execution(execution_id=execution_id)
    assert released.public_state is PublicState.DELAYED
    await lab.engine.hold_execution(execution_id=execution_id)
    await lab.after(500)
    assert await lab.claims() == []
    released = await lab.engine.release_execution(execution_id=execution_id)
    assert released.public_state is PublicState.WAITING


@scenario
async def test_a_backoff_goes_on_under_a_hold(lab: Lab) -> None:
    claimed = await lab.started(policy=policy(retry_policy=retries(1, 1000)))
    await lab.engine.fail(claimed.handle, reason="x")
    await lab.engine.hold_execution(execution_id=claimed.execution_id)
    await lab.engine.release_execution(execution_id=claimed.execution_id)
    snapshot = await lab.describe(claimed.execution_id)
    assert snapshot.blocking_reason is BlockingReason.WAITING_FOR_RETRY_BACKOFF
    await lab.after(1000)
    assert (await lab.claim()).attempt_index == 1


@scenario
async def test_running_and_ended_executions_cannot_be_held(lab: Lab) -> None:
    running = (await lab.started()).execution_id
    finished = await lab.completed(lane_id="b")
    for execution_id in (running, finished):
        async with lab.refuses(ExecutionNotEligible):
            await lab.engine.hold_execution(execution_id=execution_id)
        async with lab.refuses(ExecutionNotEligible):
            await lab.engine.release_execution(execution_id=execution_id)


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("waiting_for_budget", "rate_limited"),
        ("waiting_for_quota", "rate_limited"),
        ("waiting_for_capable_worker", "waiting"),
        ("paused_by_operator", "waiting"),
        ("paused_by_policy", "waiting"),
    ],
)
@scenario
async def test_every_block_is_labelled_by_its_reason_and_can_be_lifted(
    lab: Lab, reason: str, label: str
) -> None:
    execution_id = await lab.create()
    answer = await lab.engine.block_execution_for_admission(
        execution_id=execution_id, reason=reason, reason_detail="too much"
    )
    assert answer == Blocked(execution_id, BlockingReason(reason))
    snapshot = await lab.describe(execution_id)
    assert (snapshot.public_state, snapshot.blocking_reason) == (label, reason)
    assert snapshot.blocking_detail == "too much"
    assert await lab.claims() == []
    lifted = await lab.engine.unblock_execution(execution_id=execution_id, expected_reason=reason)
    assert lifted == Unblocked(execution_id, PublicState.WAITING)
    assert (await lab.claim()).execution_id == execution_id


@scenario
async def test_a_block_takes_only_waiting_work_without_a_promise(lab: Lab) -> None:
    """A delay, another block or a grantee is never run over."""
    delayed = await lab.create(delay_until=lab.now + 5)
    promised = await lab.create()
    await lab.engine.issue_claim_grant(
        execution_id=promised, worker_id="w1", worker_instance_id="w1-1"
    )
    running = (await lab.started(lane_id="b")).execution_id
    block = lab.engine.block_execution_for_admission
    async with lab.unchanged():
        for execution_id in (delayed, promised, running):
            answer = await block(execution_id=execution_id, reason="waiting_for_budget")
            assert isinstance(answer, Rejected)
    finished = await lab.completed(lane_id="c")
    async with lab.refuses(ExecutionNotActive):
        await block(execution_id=finished, reason="waiting_for_budget")


@pytest.mark.parametrize("reason", ["", "lunch", "waiting_for_worker", "waiting_for_children"])
@scenario
async def test_an_unknown_reason_blocks_nothing(lab: Lab, reason: str) -> None:
    execution_id = await lab.create()
    async with lab.refuses(InvalidBlockingReason):
        await lab.engine.block_execution_for_admission(execution_id=execution_id, reason=reason)


@scenario
async def test_only_the_expected_block_is_lifted(lab: Lab) -> None:
    execution_id = await lab.create()
    await lab.engine.block_execution_for_admission(
        execution_id=execution_id, reason="waiting_for_budget"
    )
    async with lab.refuses(ExecutionNotEligible):
        await lab.engine.unblock_execution(
            execution_id=execution_id, expected_reason="waiting_for_quota"
        )
    async with lab.refuses(ExecutionNotEligible):
        await lab.engine.release_execution(execution_id=execution_id)
    await lab.engine.unblock_execution(execution_id=execution_id)


@scenario
async def test_releasing_a_hold_leaves_the_block_beneath_it(lab: Lab) -> None:
    """Remembered and restored, or refused at the hold."""
    execution_id = await lab.create()
    await lab.engine.block_execution_for_admission(
        execution_id=execution_id, reason="waiting_for_budget"
    )
    try:
        await lab.engine.hold_execution(execution_id=execution_id)
        await lab.engine.release_execution(execution_id=execution_id)
    except ExecutionNotEligible:
        pass
    assert await lab.claims() == []
