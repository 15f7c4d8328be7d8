"""Failure and retry: the stored policy decides, on every path."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.model.attempt import AttemptOutcome, AttemptType, FailureClass
from flowfabric.model.policy import ExponentialBackoff
from flowfabric.model.policy import RetryPolicy as Retry
from flowfabric.model.results import RetryScheduled, TerminalFailed
from flowfabric.model.state import BlockingReason, PublicState
from tests.support.builders import policy, retries
from tests.support.lab import Lab, scenario

EXPONENTIAL = Retry(
    max_retries=2,
    backoff=ExponentialBackoff(initial_delay_ms=1000, multiplier=2.0, max_delay_ms=60_000),
)


@scenario
async def test_two_retries_wait_one_and_two_seconds_and_then_it_ends(lab: Lab) -> None:
    execution_id = await lab.create(policy=policy(retry_policy=EXPONENTIAL))
    started_at = lab.now
    for index, pause_ms in enumerate((1000, 2000)):
        claimed = await lab.claim()
        assert claimed.attempt_index == index
        answer = await lab.engine.fail(claimed.handle, reason="no luck")
        assert answer == RetryScheduled(lab.now + pause_ms, index + 1)
        snapshot = await lab.describe(execution_id)
        assert snapshot.public_state is PublicState.DELAYED
        assert snapshot.blocking_reason is BlockingReason.WAITING_FOR_RETRY_BACKOFF
        await lab.after(pause_ms - 1)
        assert await lab.claims() == []
        await lab.after(1)
    last = await lab.claim()
    assert (last.attempt_index, last.attempt_type) == (2, AttemptType.RETRY)
    assert await lab.engine.fail(last.handle, reason="no luck") == TerminalFailed()
    snapshot = await lab.describe(execution_id)
    assert snapshot.public_state is PublicState.FAILED
    assert (snapshot.total_attempt_count, snapshot.retry_count) == (3, 2)
    assert snapshot.started_at == started_at
    assert (snapshot.failure_reason, snapshot.failure_category) == ("no luck", "transient")
    assert len(await lab.completions(execution_id)) == 1


@scenario
async def test_every_attempt_keeps_its_own_history(lab: Lab) -> None:
    """One row per attempt, one vocabulary of outcomes."""
    execution_id = await lab.create(policy=policy(retry_policy=retries(1, 0)))
    first = await lab.claim("w1")
    await lab.engine.fail(first.handle, reason="first", category="network")
    second = await lab.claim("w2")
    await lab.engine.complete(second.handle)
    attempts = (await lab.engine.list_attempts(execution_id=execution_id)).items
    assert [(each.outcome, each.worker_id, each.failure_reason) for each in attempts] == [
        (AttemptOutcome.ENDED_FAILURE, "w1", "first"),
        (AttemptOutcome.ENDED_SUCCESS, "w2", None),
    ]
    assert [each.attempt_type for each in attempts] == [AttemptType.INITIAL, AttemptType.RETRY]
    assert attempts[0].failure_category == "network"
    assert attempts[0].attempt_id != attempts[1].attempt_id


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"failure_class": FailureClass.TRANSIENT}, RetryScheduled),
        ({"failure_class": FailureClass.INFRA_CRASH}, RetryScheduled),
        ({"failure_class": FailureClass.TIMEOUT}, RetryScheduled),
        ({"failure_class": FailureClass.PERMANENT}, TerminalFailed),
        ({"failure_class": FailureClass.CANCELLED}, TerminalFailed),
        ({"failure_class": "permanent"}, TerminalFailed),
    ],
    ids=str,
)
@scenario
async def test_the_class_decides_whether_a_retry_makes_sense(
    lab: Lab, fields: dict[str, Any], expected: type
) -> None:
    """Handle form and typed form decide alike, from the stored policy."""
    by_handle = await lab.started(policy=policy(retry_policy=retries(3)))
    assert isinstance(await lab.engine.fail(by_handle.handle, reason="x", **fields), expected)
    by_fence = await lab.started(policy=policy(retry_policy=retries(3)))
    answer = await lab.engine.fail_execution(
        execution_id=by_fence.execution_id,
        fence=by_fence.handle.fence,
        source="lease_holder",
        failure_reason="x",
        **fields,
    )
    assert isinstance(answer, expected)


@scenario
async def test_only_the_named_categories_are_retried(lab: Lab) -> None:
    rules = policy(retry_policy=retries(5, 0, retryable_categories=("network",)))
    claimed = await lab.started(policy=rules)
    answer = await lab.engine.fail(claimed.handle, reason="x", category="network")
    assert isinstance(answer, RetryScheduled)
    again = await lab.claim()
    assert isinstance(
        await lab.engine.fail(again.handle, reason="x", category="parse"), TerminalFailed
    )


@scenario
async def test_without_a_policy_a_failure_is_the_end(lab: Lab) -> None:
    """Never retried for ever."""
    claimed = await lab.started()
    assert await lab.engine.fail(claimed.handle, reason="x") == TerminalFailed()
    assert await lab.state(claimed.execution_id) is PublicState.FAILED


@scenario
async def test_jitter_stays_within_the_pause(lab: Lab) -> None:
    spread = Retry(max_retries=1, backoff=ExponentialBackoff(initial_delay_ms=1000, jitter=True))
    waits = set()
    for number in range(10):
        claimed = await lab.started(lane_id=f"l{number}", policy=policy(retry_policy=spread))
        answer = await lab.engine.fail(claimed.handle, reason="x")
        assert isinstance(answer, RetryScheduled)
        assert lab.now <= answer.delay_until <= lab.now + 1000
        waits.add(answer.delay_until)
    assert len(waits) > 1


@scenario
async def test_the_handlers_own_pause_is_used(lab: Lab) -> None:
    claimed = await lab.started(policy=policy(retry_policy=retries(1, 60_000)))
    answer = await lab.engine.fail(claimed.handle, reason="later", retry_after_ms=7)
    assert answer == RetryScheduled(lab.now + 7, 1)


@scenario
async def test_a_long_or_strange_reason_is_kept_as_far_as_it_goes(lab: Lab) -> None:
    """A failure report is never lost because of its own text."""
    claimed = await lab.started()
    await lab.direct.fail(claimed.handle, reason="a\x00b\ud800" + "x" * 100_000)
    reason = (await lab.describe(claimed.execution_id)).failure_reason
    assert reason is not None
    assert reason.startswith("a�b")
    assert len(reason.encode()) <= 65_536


@scenario
async def test_parking_keeps_the_attempt_and_the_deadline(lab: Lab) -> None:
    """Delay and deadline are two instants."""
    claimed = await lab.started(execution_deadline_at=lab.now + 50_000)
    await lab.engine.delay(claimed.handle, delay_until=lab.now + 1000)
    snapshot = await lab.describe(claimed.execution_id)
    assert snapshot.public_state is PublicState.DELAYED
    assert snapshot.blocking_reason is BlockingReason.WAITING_FOR_DELAY
    assert snapshot.deadline_at == lab.now + 50_000
    assert snapshot.current_lease is None
    await lab.after(1000)
    again = await lab.claim("w2")
    assert (again.attempt_index, again.attempt_id) == (0, claimed.attempt_id)
    assert again.lease_id != claimed.lease_id
    assert (await lab.describe(claimed.execution_id)).total_attempt_count == 1


@scenario
async def test_progress_changes_only_what_is_given(lab: Lab) -> None:
    """Absent is unchanged; stamped."""
    claimed = await lab.started()
    await lab.engine.progress(claimed.handle, percent=40, message="reading")
    lab.clock.advance(5)
    await lab.engine.progress(claimed.handle, message="writing")
    snapshot = await lab.describe(claimed.execution_id)
    assert (snapshot.progress_pct, snapshot.progress_message) == (40, "writing")
    assert snapshot.last_mutation_at == lab.now
    assert (await lab.record(claimed.execution_id)).progress_updated_at == lab.now
    await lab.engine.progress(claimed.handle, percent=100)
    assert (await lab.describe(claimed.execution_id)).progress_message == "writing"
