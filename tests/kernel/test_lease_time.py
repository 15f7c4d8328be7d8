"""Leases in time: how long they last, when they lapse, what follows."""

from __future__ import annotations

import pytest

from flowfabric import limits
from flowfabric.kernel.execution.expire import ExpireLease, PromoteDelayed
from flowfabric.kernel.execution.own import Renew
from flowfabric.kernel.execution.reclaim import RequeueLost
from flowfabric.kernel.execution.transition import lease_horizon
from flowfabric.model.attempt import AttemptOutcome, AttemptType
from flowfabric.model.event import LeaseEventType
from flowfabric.model.record import replace
from flowfabric.model.results import LeaseRenewal, Moved
from flowfabric.model.state import LEASE_EXPIRED, AttemptState, PublicState, TerminalOutcome
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, TTL_MS, decide, fence_of, image


def test_a_lease_lapses_exactly_at_its_end() -> None:
    """I3: one instant divides the owner's right from everybody else's."""
    running = make.leased()
    early = decide(running, ExpireLease(execution_id=EXECUTION_ID), NOW + TTL_MS - 1)
    assert early.reply == Moved(EXECUTION_ID, "unchanged")
    assert early.execution is None
    on_time = decide(running, ExpireLease(execution_id=EXECUTION_ID), NOW + TTL_MS)
    assert on_time.execution is not None
    assert on_time.execution.state == LEASE_EXPIRED


def test_a_lapsed_lease_raises_the_epoch_and_keeps_its_owner_on_record() -> None:
    """Invariant I4."""
    running = make.leased()
    decision = decide(running, ExpireLease(execution_id=EXECUTION_ID), NOW + TTL_MS)
    lapsed = decision.execution
    assert lapsed is not None
    assert lapsed.lease_epoch == running.lease_epoch + 1
    assert lapsed.worker_id == "w1"
    assert lapsed.reclaim_at == NOW + TTL_MS
    assert [(event.event_type, event.lease_epoch) for event in decision.events] == [  # type: ignore[union-attr]
        (LeaseEventType.EXPIRED, running.lease_epoch)
    ]


@pytest.mark.parametrize(
    "situation", ["waiting", "delayed", "held", "parked", "lapsed", "revoked", "completed"]
)
def test_expiry_touches_nothing_that_holds_no_lease(situation: str) -> None:
    """Guarded by the lease itself, so a stale list does no harm."""
    execution = make.SITUATIONS[situation]()
    decision = decide(execution, ExpireLease(execution_id=EXECUTION_ID), NOW + 10 * TTL_MS)
    assert decision.execution is None
    assert decision.events == ()


def test_renewing_moves_the_end_and_nothing_else() -> None:
    running = make.leased()
    decision = decide(
        running,
        Renew(execution_id=EXECUTION_ID, fence=fence_of(running), lease_ttl_ms=5000),
        NOW + 100,
    )
    renewed = decision.execution
    assert renewed is not None
    assert decision.reply == LeaseRenewal(NOW + 5100, running.lease_epoch)
    assert renewed.lease_expires_at == NOW + 5100
    assert renewed.last_transition_at == running.last_transition_at
    assert fence_of(renewed) == fence_of(running)
    assert decision.events == ()


@pytest.mark.parametrize(
    ("wanted", "deadline_at", "attempt_due_at", "expected"),
    [
        (100, None, None, 100),
        (100, 100, None, 100),
        (100, 99, None, 99),
        (100, 101, None, 100),
        (100, None, 99, 99),
        (100, None, 101, 100),
        (100, 99, 98, 98),
        (100, 98, 99, 98),
    ],
)
def test_a_lease_never_outlives_the_deadline_or_the_attempt(
    wanted: int, deadline_at: int | None, attempt_due_at: int | None, expected: int
) -> None:
    assert lease_horizon(wanted, deadline_at, attempt_due_at) == expected


def test_a_renewal_stops_at_the_horizon() -> None:
    running = make.leased(policy=make.policy(attempt_timeout_ms=4000, execution_deadline_ms=9000))
    assert running.lease_expires_at == NOW + 4000
    renewed = image(
        running,
        Renew(execution_id=EXECUTION_ID, fence=fence_of(running), lease_ttl_ms=TTL_MS),
        NOW + 3999,
    )
    assert renewed.lease_expires_at == NOW + 4000


def test_a_lost_lease_is_requeued_when_its_grace_is_over() -> None:
    """Automatic, with a new attempt that counts against the cap."""
    running = make.leased(NOW - TTL_MS)
    lapsed = image(running, ExpireLease(execution_id=EXECUTION_ID), NOW, reclaim_grace_ms=100)
    early = decide(lapsed, RequeueLost(execution_id=EXECUTION_ID), NOW + 99)
    assert early.reply == Moved(EXECUTION_ID, "unchanged")
    decision = decide(lapsed, RequeueLost(execution_id=EXECUTION_ID), NOW + 100)
    requeued, attempt = decision.execution, decision.attempt
    assert requeued is not None
    assert attempt is not None
    assert requeued.public_state is PublicState.WAITING
    assert requeued.state.attempt_state is AttemptState.PENDING_RETRY_ATTEMPT
    assert requeued.reclaim_count == 1
    assert requeued.next_attempt_type is AttemptType.RECLAIM
    assert requeued.worker_id is None
    assert requeued.lease_epoch > lapsed.lease_epoch
    assert attempt.outcome is AttemptOutcome.INTERRUPTED_RECLAIMED
    assert attempt.worker_id == "w1"


HERE = frozenset({"w1-1"})


def test_a_reclaim_by_the_owners_own_process_is_no_recovery() -> None:
    """Both stood still together, so no worker was lost: the cap is not touched, nor asked."""
    lapsed = make.lapsed(policy=make.policy(max_reclaim_count=0))
    assert lapsed.worker_instance_id in HERE
    requeued = image(lapsed, RequeueLost(execution_id=EXECUTION_ID), workers_here=HERE)
    assert requeued.public_state is PublicState.WAITING
    assert requeued.reclaim_count == 0
    assert requeued.next_attempt_type is AttemptType.RECLAIM
    elsewhere = image(
        lapsed, RequeueLost(execution_id=EXECUTION_ID), workers_here=frozenset({"w2-1"})
    )
    assert elsewhere.state.terminal_outcome is TerminalOutcome.FAILED


def test_a_revoked_lease_counts_wherever_its_owner_lives() -> None:
    requeued = image(make.revoked(), RequeueLost(execution_id=EXECUTION_ID), workers_here=HERE)
    assert requeued.reclaim_count == 1


def test_work_that_stops_its_own_process_each_time_does_so_a_bounded_number_of_times() -> None:
    often = replace(make.lapsed(), total_attempt_count=limits.RECLAIM_COUNT_DEFAULT)
    assert (
        image(often, RequeueLost(execution_id=EXECUTION_ID), workers_here=HERE).reclaim_count == 1
    )


@pytest.mark.parametrize("situation", ["waiting", "leased", "parked", "requeued", "completed"])
def test_nothing_is_requeued_that_was_not_lost(situation: str) -> None:
    decision = decide(
        make.SITUATIONS[situation](), RequeueLost(execution_id=EXECUTION_ID), NOW + 10 * TTL_MS
    )
    assert decision.execution is None


@pytest.mark.parametrize("cap", [0, 1, 2])
def test_the_cap_allows_exactly_so_many_lost_leases(cap: int) -> None:
    """Invariant I5."""
    execution = make.created(policy=make.policy(max_reclaim_count=cap))
    now = NOW
    for _ in range(cap):
        running = make.claimed(execution, now=now)
        now += TTL_MS
        execution = image(
            image(running, ExpireLease(execution_id=EXECUTION_ID), now),
            RequeueLost(execution_id=EXECUTION_ID),
            now,
        )
        assert execution.public_state is PublicState.WAITING
    running = make.claimed(execution, now=now)
    now += TTL_MS
    decision = decide(
        image(running, ExpireLease(execution_id=EXECUTION_ID), now),
        RequeueLost(execution_id=EXECUTION_ID),
        now,
    )
    assert decision.execution is not None
    assert decision.execution.state.terminal_outcome is TerminalOutcome.FAILED
    assert decision.execution.failure_reason == "max_reclaims_exceeded"
    assert decision.execution.reclaim_count == cap
    assert decision.attempt is not None
    assert decision.attempt.outcome is AttemptOutcome.INTERRUPTED_RECLAIMED


def test_a_reclaimed_attempt_gets_its_whole_time() -> None:
    """The old attempt's timeout does not expire the new one."""
    rules = make.policy(attempt_timeout_ms=2 * TTL_MS)
    again = make.claimed(make.requeued(policy=rules), "w2")
    assert again.attempt_due_at == NOW + 2 * TTL_MS
    assert again.attempt_index == 1


def test_a_parked_attempt_keeps_only_the_time_it_has_left() -> None:
    rules = make.policy(attempt_timeout_ms=5000)
    running = make.leased(policy=rules)
    parked = image(running, make.delay_with(fence_of(running), NOW + 60_000), NOW + 2000)
    assert parked.attempt_due_at is None
    waiting = image(parked, PromoteDelayed(execution_id=EXECUTION_ID), NOW + 60_000)
    again = make.claimed(waiting, "w2", now=NOW + 60_000)
    assert again.attempt_due_at == NOW + 63_000
    assert again.attempt_index == running.attempt_index
    assert again.attempt_id == running.attempt_id
