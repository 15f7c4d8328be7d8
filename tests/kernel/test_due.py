"""What time does by itself, at, before and after the instant."""

from __future__ import annotations

import pytest

from flowfabric.kernel.execution.claim import is_claimable
from flowfabric.kernel.execution.expire import ExpireAttempt, ExpireDeadline, PromoteDelayed
from flowfabric.kernel.execution.wake import Wake
from flowfabric.model.attempt import AttemptOutcome, AttemptType
from flowfabric.model.results import Moved
from flowfabric.model.state import AttemptState, BlockingReason, PublicState
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, TTL_MS, decide, fence_of, image

RUNNING_PHASES = ("waiting", "delayed", "held", "leased", "parked", "lapsed", "revoked", "requeued")


@pytest.mark.parametrize("situation", RUNNING_PHASES)
def test_a_deadline_ends_every_phase_exactly_at_its_instant(situation: str) -> None:
    execution = make.SITUATIONS[situation](policy=make.policy(execution_deadline_ms=4 * TTL_MS))
    deadline_at = execution.deadline_at
    assert deadline_at is not None
    early = decide(execution, ExpireDeadline(execution_id=EXECUTION_ID), deadline_at - 1)
    assert early.reply == Moved(EXECUTION_ID, "unchanged")
    on_time = decide(execution, ExpireDeadline(execution_id=EXECUTION_ID), deadline_at)
    assert on_time.execution is not None
    assert on_time.execution.public_state is PublicState.EXPIRED
    assert on_time.execution.failure_reason == "execution_deadline"


def test_nothing_without_a_deadline_reaches_it() -> None:
    decision = decide(make.leased(), ExpireDeadline(execution_id=EXECUTION_ID), NOW + 10**12)
    assert decision.execution is None


def test_an_execution_past_its_deadline_is_not_claimed() -> None:
    """A lease would end where it begins."""
    execution = make.created(policy=make.policy(execution_deadline_ms=100))
    assert is_claimable(execution, NOW + 99)
    assert not is_claimable(execution, NOW + 100)


def test_the_earlier_of_two_deadlines_counts() -> None:
    rules = make.policy(execution_deadline_ms=100)
    assert make.created(policy=rules, deadline_at=NOW + 50).deadline_at == NOW + 50
    assert make.created(policy=rules, deadline_at=NOW + 500).deadline_at == NOW + 100
    assert make.created(deadline_at=NOW + 500).deadline_at == NOW + 500


def test_delaying_keeps_the_deadline() -> None:
    """Two instants, two fields."""
    parked = make.parked(policy=make.policy(execution_deadline_ms=5000), delay_ms=1000)
    assert (parked.eligible_at, parked.deadline_at) == (NOW + 1000, NOW + 5000)
    promoted = image(parked, PromoteDelayed(execution_id=EXECUTION_ID), NOW + 1000)
    assert promoted.deadline_at == NOW + 5000


def test_an_attempt_runs_out_exactly_at_its_instant() -> None:
    rules = make.policy(attempt_timeout_ms=3000, retry_policy=make.retries(1, 250))
    running = make.leased(policy=rules)
    assert (
        decide(running, ExpireAttempt(execution_id=EXECUTION_ID, jitter=0.5), NOW + 2999).execution
        is None
    )
    decision = decide(running, ExpireAttempt(execution_id=EXECUTION_ID, jitter=0.5), NOW + 3000)
    again, attempt = decision.execution, decision.attempt
    assert again is not None
    assert attempt is not None
    assert again.public_state is PublicState.DELAYED
    assert again.state.blocking_reason is BlockingReason.WAITING_FOR_RETRY_BACKOFF
    assert again.eligible_at == NOW + 3250
    assert again.retry_count == 1
    assert again.reclaim_count == 0
    assert again.next_attempt_type is AttemptType.RETRY
    assert attempt.outcome is AttemptOutcome.ENDED_FAILURE
    assert attempt.failure_category == "timeout"


def test_an_attempt_without_retries_left_expires_the_execution() -> None:
    running = make.leased(policy=make.policy(attempt_timeout_ms=3000))
    ended = image(running, ExpireAttempt(execution_id=EXECUTION_ID, jitter=0.5), NOW + 3000)
    assert ended.public_state is PublicState.EXPIRED
    assert ended.failure_category == "timeout"


def test_a_timeout_is_subject_to_retryable_categories() -> None:
    """One decision for every kind of failure."""
    only_network = make.retries(3, retryable_categories=("network",))
    running = make.leased(policy=make.policy(attempt_timeout_ms=1000, retry_policy=only_network))
    ended = image(running, ExpireAttempt(execution_id=EXECUTION_ID, jitter=0.5), NOW + 1000)
    assert ended.public_state is PublicState.EXPIRED


@pytest.mark.parametrize("situation", ["waiting", "delayed", "parked", "requeued", "completed"])
def test_a_stale_list_never_times_out_what_is_not_running(situation: str) -> None:
    """The due time is checked again under the lock."""
    execution = make.SITUATIONS[situation](policy=make.policy(attempt_timeout_ms=2 * TTL_MS))
    assert (
        decide(
            execution, ExpireAttempt(execution_id=EXECUTION_ID, jitter=0.5), NOW + 10**9
        ).execution
        is None
    )


def test_a_fresh_attempt_is_not_killed_by_the_last_ones_timeout() -> None:
    rules = make.policy(attempt_timeout_ms=3000, retry_policy=make.retries(2, 0))
    running = make.leased(policy=rules)
    failed = image(running, make.fail_with(fence_of(running)), NOW + 2000)
    again = make.claimed(failed, "w2", NOW + 2000)
    assert (
        decide(again, ExpireAttempt(execution_id=EXECUTION_ID, jitter=0.5), NOW + 3000).execution
        is None
    )
    assert (
        decide(again, ExpireAttempt(execution_id=EXECUTION_ID, jitter=0.5), NOW + 5000).execution
        is not None
    )


@pytest.mark.parametrize("situation", ["delayed", "parked", "retrying"])
def test_a_delay_ends_exactly_at_its_instant_and_keeps_the_attempt(situation: str) -> None:
    """The attempt state decides which claim follows."""
    execution = make.SITUATIONS[situation]()
    assert execution.eligible_at == NOW + 1000
    assert decide(execution, PromoteDelayed(execution_id=EXECUTION_ID), NOW + 999).execution is None
    promoted = image(execution, PromoteDelayed(execution_id=EXECUTION_ID), NOW + 1000)
    assert promoted.public_state is PublicState.WAITING
    assert promoted.state.attempt_state is execution.state.attempt_state
    assert promoted.blocking_detail == ""


@pytest.mark.parametrize("situation", ["waiting", "held", "leased", "lapsed", "completed"])
def test_only_a_delay_is_promoted(situation: str) -> None:
    decision = decide(
        make.SITUATIONS[situation](), PromoteDelayed(execution_id=EXECUTION_ID), NOW + 10**9
    )
    assert decision.execution is None


@pytest.mark.parametrize(("delay_ms", "label"), [(-1, "waiting"), (0, "waiting"), (1, "delayed")])
def test_a_delay_that_is_over_is_no_delay(delay_ms: int, label: str) -> None:
    """One clock decides eligibility."""
    assert make.created(delay_until=NOW + delay_ms).public_state == label
    assert make.parked(delay_ms=delay_ms).public_state == label
    assert make.parked(delay_ms=delay_ms).state.attempt_state is AttemptState.ATTEMPT_INTERRUPTED


def test_a_call_goes_before_the_policy() -> None:
    """The policy's delay is honoured when the call names none."""
    rules = make.policy(delay_until=NOW + 500)
    assert make.created(policy=rules).eligible_at == NOW + 500
    assert make.created(policy=rules, delay_until=NOW + 900).eligible_at == NOW + 900


@pytest.mark.parametrize(
    ("timeouts", "label", "what"),
    [
        ({"execution_deadline_ms": 5, "attempt_timeout_ms": 5}, "expired", "execution_deadline"),
        ({"attempt_timeout_ms": 5}, "expired", "attempt_timeout"),
    ],
)
def test_of_several_times_at_one_instant_the_weightier_counts(
    timeouts: dict[str, int], label: str, what: str
) -> None:
    """The lease ends at the same instant and decides nothing."""
    running = make.leased(policy=make.policy(**timeouts))
    assert running.lease_expires_at == NOW + 5
    assert decide(running, Wake(execution_id=EXECUTION_ID, jitter=0.5), NOW + 4).execution is None
    decision = decide(running, Wake(execution_id=EXECUTION_ID, jitter=0.5), NOW + 5)
    assert decision.reply == Moved(EXECUTION_ID, what)
    assert decision.execution is not None
    assert decision.execution.public_state == label


@pytest.mark.parametrize("situation", make.LIVE)
def test_whatever_is_due_is_woken_exactly_then(situation: str) -> None:
    """I8, I9: the one indexed due time is the earliest at which a wake changes something."""
    rules = make.policy(
        attempt_timeout_ms=7 * TTL_MS,
        execution_deadline_ms=9 * TTL_MS,
        retry_policy=make.retries(3),
    )
    execution = make.LIVE[situation](policy=rules)
    when = execution.due_at
    assert when is not None
    if when > NOW:
        assert (
            decide(execution, Wake(execution_id=EXECUTION_ID, jitter=0.5), when - 1).execution
            is None
        )
    assert (
        decide(execution, Wake(execution_id=EXECUTION_ID, jitter=0.5), when).execution is not None
    )


@pytest.mark.parametrize("ended", make.ENDED)
def test_an_ended_execution_has_no_due_time(ended: str) -> None:
    """Invariants I2 and I8."""
    assert make.ENDED[ended](policy=make.policy(execution_deadline_ms=5)).due_at is None
