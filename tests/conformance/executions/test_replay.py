"""Replay: every end, a limit, counters that start anew and a history that stays."""

from __future__ import annotations

import pytest

from flowfabric.errors import (
    ExecutionNotTerminal,
    InvalidInput,
    MaxReplaysExhausted,
    StaleLease,
)
from flowfabric.model.attempt import AttemptOutcome, AttemptType, FailureClass
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.results import Replayed, RetryScheduled
from flowfabric.model.state import PublicState
from tests.support.builders import policy, retries
from tests.support.lab import TTL_MS, Lab, scenario


async def ended(lab: Lab, how: str) -> str:
    claimed = await lab.started(execution_deadline_at=lab.now + TTL_MS - 1)
    if how == "completed":
        await lab.engine.complete(claimed.handle, result=b"old")
    elif how == "failed":
        await lab.engine.fail(claimed.handle, reason="x", failure_class=FailureClass.PERMANENT)
    elif how == "cancelled":
        await lab.cancel(claimed.execution_id)
    else:
        await lab.after(TTL_MS)
    assert await lab.state(claimed.execution_id) == how
    return claimed.execution_id


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "expired"])
@scenario
async def test_every_end_can_be_replayed(lab: Lab, how: str) -> None:
    execution_id = await ended(lab, how)
    before = await lab.record(execution_id)
    answer = await lab.engine.replay_execution(
        execution_id=execution_id, requested_by="ann", reason="bad data"
    )
    assert answer == Replayed(execution_id, PublicState.WAITING, 1)
    snapshot = await lab.describe(execution_id)
    assert (snapshot.retry_count, snapshot.reclaim_count, snapshot.replay_count) == (0, 0, 1)
    assert snapshot.deadline_at is None
    for name in ("completed_at", "purge_at", "failure_reason", "cancellation_reason"):
        assert getattr(snapshot, name) is None
    assert await lab.engine.get_execution_result(execution_id=execution_id) is None
    assert (await lab.record(execution_id)).lease_epoch > before.lease_epoch
    event = (await lab.operator_events(execution_id))[-1]
    assert (event.event_type, event.details["requested_by"]) == ("replayed", "ann")
    again = await lab.claim("w2")
    assert (again.attempt_index, again.attempt_type) == (1, AttemptType.REPLAY)
    await lab.engine.complete(again.handle, result=b"new")
    result = await lab.engine.get_execution_result(execution_id=execution_id)
    assert result == b"new"
    assert len(await lab.completions(execution_id)) == 2


@scenario
async def test_the_old_attempts_stay_on_record(lab: Lab) -> None:
    """A new attempt per replay; history is never overwritten."""
    execution_id = await lab.completed()
    await lab.engine.replay_execution(execution_id=execution_id)
    claimed = await lab.claim("w2")
    await lab.engine.fail(claimed.handle, reason="worse")
    attempts = (await lab.engine.list_attempts(execution_id=execution_id)).items
    assert [each.outcome for each in attempts] == [
        AttemptOutcome.ENDED_SUCCESS,
        AttemptOutcome.ENDED_FAILURE,
    ]


@scenario
async def test_ten_replays_and_no_more(lab: Lab) -> None:
    """I5: the default limit."""
    execution_id = await lab.completed()
    for count in range(1, 11):
        answer = await lab.engine.replay_execution(execution_id=execution_id)
        assert answer.replay_count == count
        await lab.engine.complete((await lab.claim()).handle)
    async with lab.refuses(MaxReplaysExhausted):
        await lab.engine.replay_execution(execution_id=execution_id)


@scenario
async def test_the_policys_own_limit_counts(lab: Lab) -> None:
    execution_id = await lab.completed(policy=ExecutionPolicy(max_replay_count=0))
    async with lab.refuses(MaxReplaysExhausted):
        await lab.engine.replay_execution(execution_id=execution_id)


@scenario
async def test_a_replayed_attempt_may_retry_again(lab: Lab) -> None:
    claimed = await lab.started(policy=policy(retry_policy=retries(1, 0)))
    await lab.engine.fail(claimed.handle, reason="x")
    await lab.engine.fail((await lab.claim()).handle, reason="x")
    assert await lab.state(claimed.execution_id) is PublicState.FAILED
    await lab.engine.replay_execution(execution_id=claimed.execution_id)
    answer = await lab.engine.fail((await lab.claim()).handle, reason="x")
    assert isinstance(answer, RetryScheduled)


@scenario
async def test_only_a_finished_execution_is_replayed(lab: Lab) -> None:
    claimed = await lab.started()
    waiting = await lab.create(delay_until=lab.now + 1)
    for execution_id in (claimed.execution_id, waiting):
        async with lab.refuses(ExecutionNotTerminal):
            await lab.engine.replay_execution(execution_id=execution_id)


@scenario
async def test_a_new_deadline_must_lie_ahead(lab: Lab) -> None:
    execution_id = await lab.completed()
    async with lab.refuses(InvalidInput, field="deadline_at"):
        await lab.engine.replay_execution(execution_id=execution_id, deadline_at=lab.now)
    await lab.engine.replay_execution(execution_id=execution_id, deadline_at=lab.now + 1)
    await lab.after(1)
    assert await lab.state(execution_id) is PublicState.EXPIRED


@scenario
async def test_the_first_lifes_owner_has_no_right_in_the_second(lab: Lab) -> None:
    """I2, I3: neither handle nor grant reaches over."""
    claimed = await lab.started()
    await lab.engine.complete(claimed.handle)
    await lab.engine.replay_execution(execution_id=claimed.execution_id)
    second = await lab.claim("w2")
    for call in (lab.engine.fail(claimed.handle, reason="x"), lab.engine.renew(claimed.handle)):
        async with lab.refuses(StaleLease):
            await call
    async with lab.unchanged():  # what it did is told again, and done no second time
        await lab.engine.complete(claimed.handle)
    await lab.engine.complete(second.handle)
