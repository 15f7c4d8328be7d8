"""Replay: a new life with its history kept."""

from __future__ import annotations

import pytest

from flowfabric.errors import ExecutionNotTerminal, InvalidInput, MaxReplaysExhausted, NotFound
from flowfabric.kernel.execution.replay import Replay
from flowfabric.model.attempt import AttemptType
from flowfabric.model.event import OperatorEvent
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.results import Replayed, RetryScheduled
from flowfabric.model.state import AttemptState, PublicState
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, decide, fence_of, image, refusal

AGAIN = Replay(execution_id=EXECUTION_ID, requested_by="ann", reason="bad data")


@pytest.mark.parametrize("ended", make.ENDED)
def test_every_end_can_be_replayed(ended: str) -> None:
    done = make.ENDED[ended]()
    decision = decide(done, AGAIN, NOW + 5)
    again = decision.execution
    assert again is not None
    assert decision.reply == Replayed(EXECUTION_ID, PublicState.WAITING, 1)
    assert again.state.attempt_state is AttemptState.PENDING_REPLAY_ATTEMPT
    assert again.lease_epoch > done.lease_epoch
    assert again.completed_at is None
    assert again.purge_at is None
    assert again.total_attempt_count == done.total_attempt_count
    for name in ("failure_reason", "failure_category", "cancellation_reason", "cancelled_by"):
        assert getattr(again, name) is None
    (event,) = decision.events
    assert isinstance(event, OperatorEvent)
    assert event.details["requested_by"] == "ann"
    assert event.details["reason"] == "bad data"


@pytest.mark.parametrize("situation", make.LIVE)
def test_an_open_execution_is_not_replayed(situation: str) -> None:
    assert refusal(decide(make.LIVE[situation](), AGAIN)) is ExecutionNotTerminal


def test_a_missing_execution_is_not_replayed() -> None:
    assert refusal(decide(None, AGAIN)) is NotFound


@pytest.mark.parametrize("most", [0, 1, 10])
def test_exactly_so_many_replays_are_given(most: int) -> None:
    """Invariant I5."""
    execution = make.completed(policy=ExecutionPolicy(max_replay_count=most))
    for count in range(1, most + 1):
        again = image(execution, AGAIN)
        assert again.replay_count == count
        running = make.claimed(again)
        assert running.attempt_type is AttemptType.REPLAY
        assert running.attempt_index == count
        execution = image(running, make.complete_with(fence_of(running)))
    assert refusal(decide(execution, AGAIN)) is MaxReplaysExhausted


def test_a_replayed_execution_may_retry_again() -> None:
    """The counters start anew."""
    exhausted = make.failed(policy=make.policy(retry_policy=make.retries(1)))
    running = make.claimed(image(exhausted, AGAIN))
    decision = decide(running, make.fail_with(fence_of(running)))
    assert isinstance(decision.reply, RetryScheduled)


def test_a_past_deadline_does_not_kill_the_new_life() -> None:
    """Given anew, computed anew from the policy, or cleared."""
    absolute = make.cancelled(deadline_at=NOW + 10)
    assert image(absolute, AGAIN, NOW + 50).deadline_at is None
    supplied = Replay(execution_id=EXECUTION_ID, deadline_at=NOW + 99)
    assert image(absolute, supplied, NOW + 50).deadline_at == NOW + 99
    relative = make.cancelled(policy=make.policy(execution_deadline_ms=10))
    assert image(relative, AGAIN, NOW + 50).deadline_at == NOW + 60


@pytest.mark.parametrize(("deadline_at", "good"), [(NOW - 1, False), (NOW, False), (NOW + 1, True)])
def test_a_new_deadline_lies_in_the_future(deadline_at: int, good: bool) -> None:
    decision = decide(make.cancelled(), Replay(execution_id=EXECUTION_ID, deadline_at=deadline_at))
    assert (decision.execution is not None) == good
    if not good:
        assert refusal(decision) is InvalidInput
