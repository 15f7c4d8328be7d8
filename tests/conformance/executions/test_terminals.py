"""Ends: the same for every cause, once, and repeatable by their owner."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric.errors import ExecutionNotActive, WaitTimeout
from flowfabric.model.attempt import FailureClass
from flowfabric.model.results import Completed, RetryScheduled
from flowfabric.model.state import PublicState
from tests.support.builders import policy, retries
from tests.support.lab import Lab, scenario


@scenario
async def test_completing_twice_is_one_completion(lab: Lab) -> None:
    """I2, I6: the same answer, one event, the first result."""
    claimed = await lab.started()
    first = await lab.engine.complete(claimed.handle, result=b"one")
    assert first == Completed(claimed.execution_id, PublicState.COMPLETED, lab.now)
    lab.clock.advance(5)
    async with lab.unchanged():
        assert await lab.engine.complete(claimed.handle, result=b"two") == first
        again = await lab.engine.complete_execution(
            execution_id=claimed.execution_id, fence=claimed.handle.fence, source="lease_holder"
        )
        assert again == first
    assert len(await lab.completions(claimed.execution_id)) == 1
    result = await lab.engine.get_execution_result(execution_id=claimed.execution_id)
    assert result == b"one"


@scenario
async def test_failing_twice_is_one_failure(lab: Lab) -> None:
    """I6: the scheduled retry and the end alike."""
    retried = await lab.started(policy=policy(retry_policy=retries(1, 500)))
    first = await lab.engine.fail(retried.handle, reason="x")
    assert isinstance(first, RetryScheduled)
    lab.clock.advance(5)
    async with lab.unchanged():
        assert await lab.engine.fail(retried.handle, reason="x") == first
    ended = await lab.started()
    last = await lab.engine.fail(ended.handle, reason="x")
    async with lab.unchanged():
        assert await lab.engine.fail(ended.handle, reason="x") == last


@scenario
async def test_the_answer_is_the_same_after_the_retry_was_promoted(lab: Lab) -> None:
    """I6: until somebody else owns it."""
    claimed = await lab.started(policy=policy(retry_policy=retries(1, 500)))
    first = await lab.engine.fail(claimed.handle, reason="x")
    await lab.after(500)
    async with lab.unchanged():
        assert await lab.engine.fail(claimed.handle, reason="x") == first


@scenario
async def test_parking_twice_is_parking_once(lab: Lab) -> None:
    """Invariant I6."""
    claimed = await lab.started()
    first = await lab.engine.delay(claimed.handle, delay_until=lab.now + 500)
    async with lab.unchanged():
        assert await lab.engine.delay(claimed.handle, delay_until=lab.now + 900) == first


@scenario
async def test_another_end_than_the_first_is_refused(lab: Lab) -> None:
    """Invariant I2."""
    claimed = await lab.started()
    await lab.engine.complete(claimed.handle)
    async with lab.refuses(ExecutionNotActive):
        await lab.engine.fail(claimed.handle, reason="x")
    async with lab.refuses(ExecutionNotActive):
        await lab.engine.cancel(claimed.handle, reason="x")
    async with lab.refuses(ExecutionNotActive):
        await lab.engine.delay(claimed.handle, delay_until=lab.now)


@pytest.mark.parametrize("how", ["complete", "fail", "cancel", "deadline", "timeout", "cap"])
@scenario
async def test_every_end_is_recorded_alike(lab: Lab, how: str) -> None:
    """Label, vector, fence, attempt, one completion event, and none that it implies."""
    rules = policy(
        attempt_timeout_ms=5000 if how == "timeout" else None,
        max_reclaim_count=0 if how == "cap" else None,
    )
    deadline_at = lab.now + 5000 if how == "deadline" else None
    claimed = await lab.started(
        policy=rules, execution_deadline_at=deadline_at, tags={"team.name": "a"}
    )
    engine, execution_id = lab.engine, claimed.execution_id
    if how == "complete":
        await engine.complete(claimed.handle)
    elif how == "fail":
        await engine.fail(claimed.handle, reason="x", failure_class=FailureClass.PERMANENT)
    elif how == "cancel":
        await lab.cancel(execution_id)
    else:
        await lab.after(claimed.lease_expires_at - lab.now)
    expected = {"complete": "completed", "fail": "failed", "cancel": "cancelled", "cap": "failed"}
    snapshot = await lab.describe(execution_id)
    assert snapshot.public_state == expected.get(how, "expired")
    assert snapshot.completed_at == lab.now
    is_dead = how not in ("complete", "cancel")
    kept_ms = lab.config.failed_retention_ms if is_dead else lab.config.retention_ms
    assert snapshot.purge_at == lab.now + kept_ms
    assert snapshot.current_lease is None
    record = await lab.record(execution_id)
    assert record.lease_epoch > claimed.lease_epoch
    assert record.worker_instance_id is None
    (attempt,) = (await engine.list_attempts(execution_id=execution_id)).items
    assert attempt.ended_at == lab.now
    (completion,) = await lab.completions(execution_id)
    assert completion.outcome == snapshot.state.terminal_outcome
    assert (completion.namespace, completion.tags) == ("default", {"team.name": "a"})
    assert completion.occurred_at == lab.now
    kinds = [event.event_type for event in await lab.lease_events(execution_id)]
    assert kinds == (["acquired", "expired"] if how == "cap" else ["acquired"])
    assert how == "cap" or attempt.lease_epoch == claimed.lease_epoch


@scenario
async def test_waiting_for_a_result_returns_when_it_has_ended(lab: Lab) -> None:
    await lab.configure(poll_interval_ms=600_000)  # without the hint it comes too late
    claimed = await lab.started()
    waiting = asyncio.create_task(
        lab.engine.wait_for_result(execution_id=claimed.execution_id, wait_ms=600_000)
    )
    await asyncio.sleep(0.02)
    await lab.engine.complete(claimed.handle)
    async with asyncio.timeout(60):
        assert (await waiting).public_state is PublicState.COMPLETED


@scenario
async def test_waiting_for_a_result_gives_up_in_time(lab: Lab) -> None:
    execution_id = await lab.create()
    async with lab.refuses(WaitTimeout):
        await lab.engine.wait_for_result(execution_id=execution_id, wait_ms=20)


@scenario
async def test_there_is_no_result_before_the_end_and_none_without_one(lab: Lab) -> None:
    claimed = await lab.started()
    result = lab.engine.get_execution_result
    assert await result(execution_id=claimed.execution_id) is None
    await lab.engine.complete(claimed.handle)
    assert await result(execution_id=claimed.execution_id) is None
    empty = await lab.completed(result=b"")
    assert await result(execution_id=empty) == b""
