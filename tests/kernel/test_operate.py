"""What an operator may change about waiting work."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotEligible,
    InvalidBlockingReason,
    NotFound,
)
from flowfabric.kernel.execution.operate import (
    Block,
    ChangePriority,
    Hold,
    Release,
    SetTag,
    Unblock,
)
from flowfabric.kernel.execution.revoke import RevokeLease
from flowfabric.model.event import LeaseEvent, OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.results import AlreadySatisfied, Blocked, PriorityChanged, Rejected, Revoked
from flowfabric.model.state import (
    ADMISSION_BLOCK_REASONS,
    BlockingReason,
    EligibilityState,
    PublicState,
)
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, decide, image, refusal

RUNNABLE = ("waiting", "delayed", "held", "parked", "retrying", "requeued")
NOT_RUNNABLE = ("leased", "lapsed", "revoked", "completed", "failed", "cancelled")


def block(reason: BlockingReason = BlockingReason.WAITING_FOR_QUOTA) -> Block:
    return Block(execution_id=EXECUTION_ID, reason=reason, detail="too many")


@pytest.mark.parametrize(
    "command",
    [
        ChangePriority(execution_id=EXECUTION_ID, new_priority=1),
        Hold(execution_id=EXECUTION_ID, reason=""),
        Release(execution_id=EXECUTION_ID),
        block(),
        Unblock(execution_id=EXECUTION_ID, expected=None),
        SetTag(execution_id=EXECUTION_ID, key="a.b", value="c"),
        RevokeLease(execution_id=EXECUTION_ID, reason="x"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_missing_execution_is_not_found(command: Any) -> None:
    assert refusal(decide(None, command)) is NotFound


@pytest.mark.parametrize("situation", RUNNABLE)
def test_priority_changes_in_every_runnable_state(situation: str) -> None:
    """Audited."""
    decision = decide(
        make.SITUATIONS[situation](priority=3),
        ChangePriority(execution_id=EXECUTION_ID, new_priority=8),
    )
    assert decision.reply == PriorityChanged(EXECUTION_ID, 3, 8)
    assert decision.execution is not None
    assert decision.execution.priority == 8
    (event,) = decision.events
    assert isinstance(event, OperatorEvent)
    assert event.details == {"old_priority": 3, "new_priority": 8}


@pytest.mark.parametrize("situation", NOT_RUNNABLE)
def test_priority_of_what_runs_or_ended_stays(situation: str) -> None:
    execution = make.SITUATIONS[situation]()
    assert (
        refusal(decide(execution, ChangePriority(execution_id=EXECUTION_ID, new_priority=8)))
        is ExecutionNotEligible
    )
    assert (
        refusal(decide(execution, Hold(execution_id=EXECUTION_ID, reason="")))
        is ExecutionNotEligible
    )
    assert refusal(decide(execution, Release(execution_id=EXECUTION_ID))) is ExecutionNotEligible


@pytest.mark.parametrize("situation", ["waiting", "delayed", "parked", "retrying", "requeued"])
def test_a_hold_and_its_release_restore_what_was_before(situation: str) -> None:
    """A delay goes on underneath; the attempt is untouched."""
    before = make.SITUATIONS[situation]()
    held = image(before, Hold(execution_id=EXECUTION_ID, reason="audit"))
    assert held.state.eligibility_state is EligibilityState.BLOCKED_BY_OPERATOR
    assert held.blocking_detail == "audit"
    released = image(held, Release(execution_id=EXECUTION_ID))
    assert released.state is before.state
    late = image(held, Release(execution_id=EXECUTION_ID), NOW + 1000)
    assert late.public_state is PublicState.WAITING
    assert late.state.attempt_state is before.state.attempt_state


def test_holding_twice_is_answered_once_done() -> None:
    """Invariant I6."""
    held = make.held()
    decision = decide(held, Hold(execution_id=EXECUTION_ID, reason="again"))
    assert decision.reply == Blocked(EXECUTION_ID, BlockingReason.PAUSED_BY_OPERATOR)
    assert decision.execution is None
    assert decision.events == ()


def test_hold_and_release_are_audited() -> None:
    (first,) = decide(make.created(), Hold(execution_id=EXECUTION_ID, reason="audit")).events
    (second,) = decide(make.held(), Release(execution_id=EXECUTION_ID)).events
    assert isinstance(first, OperatorEvent)
    assert isinstance(second, OperatorEvent)
    assert (first.event_type, second.event_type) == (
        OperatorEventType.HELD,
        OperatorEventType.RELEASED,
    )


@pytest.mark.parametrize("reason", sorted(ADMISSION_BLOCK_REASONS))
def test_every_block_can_be_lifted(reason: BlockingReason) -> None:
    """Symmetrical for every reason, lane state and operator included."""
    before = make.created()
    blocked = image(before, block(reason))
    assert blocked.state.blocking_reason is reason
    assert not blocked.is_waiting
    assert image(blocked, Unblock(execution_id=EXECUTION_ID, expected=reason)).state is before.state


@pytest.mark.parametrize("situation", ["delayed", "held", "leased", "parked", "lapsed"])
def test_a_block_takes_only_waiting_work(situation: str) -> None:
    """A dependency, a delay or another block is never overwritten."""
    decision = decide(make.SITUATIONS[situation](), block())
    assert isinstance(decision.reply, Rejected)
    assert decision.execution is None


def test_a_block_of_what_ended_or_for_no_reason_is_refused() -> None:
    assert refusal(decide(make.completed(), block())) is ExecutionNotActive
    for reason in set(BlockingReason) - ADMISSION_BLOCK_REASONS:
        assert refusal(decide(make.created(), block(reason))) is InvalidBlockingReason


def test_an_unblock_lifts_only_the_expected_block() -> None:
    blocked = image(make.created(), block())
    other = Unblock(execution_id=EXECUTION_ID, expected=BlockingReason.WAITING_FOR_BUDGET)
    assert refusal(decide(blocked, other)) is ExecutionNotEligible
    assert refusal(decide(blocked, Release(execution_id=EXECUTION_ID))) is ExecutionNotEligible
    assert (
        refusal(decide(make.created(), Unblock(execution_id=EXECUTION_ID, expected=None)))
        is ExecutionNotEligible
    )
    assert (
        refusal(decide(make.delayed(), Unblock(execution_id=EXECUTION_ID, expected=None)))
        is ExecutionNotEligible
    )


def test_releasing_a_hold_does_not_lift_the_block_beneath_it() -> None:
    """The prior eligibility is remembered and restored."""
    blocked = image(make.created(), block())
    decision = decide(blocked, Hold(execution_id=EXECUTION_ID, reason="audit"))
    if decision.execution is None:  # refusing to hold what is blocked would be right as well
        return
    released = image(decision.execution, Release(execution_id=EXECUTION_ID))
    assert not released.is_waiting, "the quota block is gone though nobody lifted it"


def test_a_tag_is_set_and_overwritten_in_key_order() -> None:
    execution = image(
        make.created(tags={"b.c": "1"}), SetTag(execution_id=EXECUTION_ID, key="a.b", value="2")
    )
    assert list(execution.tags.items()) == [("a.b", "2"), ("b.c", "1")]
    assert (
        image(execution, SetTag(execution_id=EXECUTION_ID, key="a.b", value="3")).tags["a.b"] == "3"
    )


# --- revoke ------------------------------------------------------------------------------------


def test_a_revoked_lease_is_fenced_at_once() -> None:
    """Invariant I4."""
    running = make.leased()
    decision = decide(running, RevokeLease(execution_id=EXECUTION_ID, reason="suspect"))
    after = decision.execution
    assert after is not None
    assert decision.reply == Revoked(EXECUTION_ID, running.lease_epoch + 1)
    assert after.lease_epoch == running.lease_epoch + 1
    assert after.reclaim_at == NOW
    assert "suspect" in after.blocking_detail
    assert {type(event) for event in decision.events} == {LeaseEvent, OperatorEvent}


@pytest.mark.parametrize(
    ("situation", "why"),
    [
        ("revoked", "already_revoked"),
        ("lapsed", "already_expired"),
        ("waiting", "no_active_lease"),
        ("parked", "no_active_lease"),
        ("completed", "no_active_lease"),
    ],
)
def test_revoking_what_holds_no_lease_changes_nothing(situation: str, why: str) -> None:
    """A finished execution is not reported as revoked."""
    decision = decide(
        make.SITUATIONS[situation](), RevokeLease(execution_id=EXECUTION_ID, reason="x")
    )
    assert decision.reply == AlreadySatisfied(why, EXECUTION_ID)
    assert decision.execution is None
    assert decision.events == ()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"expected_lease_id": "lease-other"}, "lease_id_mismatch"),
        ({"worker_instance_id": "w9-1"}, "different_worker_instance_id"),
    ],
)
def test_a_revocation_may_name_the_worker_it_means(fields: dict[str, str], why: str) -> None:
    """The real ids are compared."""
    running: Execution = make.leased()
    missed = decide(running, RevokeLease(execution_id=EXECUTION_ID, reason="x", **fields))
    assert missed.reply == AlreadySatisfied(why, EXECUTION_ID)
    right = RevokeLease(
        execution_id=EXECUTION_ID,
        reason="x",
        expected_lease_id="lease-w1-1",
        worker_instance_id="w1-1",
    )
    assert isinstance(decide(running, right).reply, Revoked)
