"""What dependencies do to one execution: held back, released, skipped, parked with its children."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import ExecutionNotActive, LeaseExpired, StaleLease
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.operate import Hold, Release
from flowfabric.kernel.flow.cancel import bar
from flowfabric.kernel.flow.dependent import (
    WaitChildren,
    hold_back,
    reject_input,
    release_member,
    skip,
    wait_children,
)
from flowfabric.kernel.flow.inputs import TooLarge
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import CompletionEvent, LeaseEvent, LeaseEventType
from flowfabric.model.execution import Execution
from flowfabric.model.failure import FailureEntry
from flowfabric.model.flow_results import ChildrenAwaited
from flowfabric.model.record import replace
from flowfabric.model.state import (
    AttemptState,
    BlockingReason,
    EligibilityState,
    PublicState,
    TerminalOutcome,
)
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, TTL_MS, fence_of, image

AT = Moment(NOW)
RUNNABLE = ("waiting", "delayed", "held", "parked", "retrying", "requeued")


def after(decision: Decision[Any]) -> Execution:
    assert decision.execution is not None
    return decision.execution


@pytest.mark.parametrize("situation", RUNNABLE)
def test_runnable_work_is_held_back_and_released_to_where_it_was(situation: str) -> None:
    """A delay and an operator's hold go on underneath."""
    before = make.LIVE[situation]()
    waits = after(hold_back(before, "waiting for 1", AT))
    assert waits.open_group == 1
    if situation == "held":
        assert waits.state == before.state
    else:
        assert waits.state.eligibility_state is EligibilityState.BLOCKED_BY_DEPENDENCIES
        assert waits.blocking_detail == "waiting for 1"
    assert waits.state.attempt_state is before.state.attempt_state
    free = after(release_member(waits, AT))
    assert (free.state, free.open_group) == (before.state, 0)
    assert free.eligible_at == before.eligible_at


def test_a_delay_that_ran_out_meanwhile_is_over() -> None:
    waits = after(hold_back(make.delayed(delay_ms=1000), "", AT))
    free = after(release_member(waits, Moment(NOW + 1000)))
    assert free.public_state is PublicState.WAITING


def test_a_hold_over_open_dependencies_leads_back_to_them() -> None:
    waits = after(hold_back(make.created(), "", AT))
    held = image(waits, Hold(execution_id=EXECUTION_ID, reason="x"))
    assert held.state.blocking_reason is BlockingReason.PAUSED_BY_OPERATOR
    assert (
        image(held, Release(execution_id=EXECUTION_ID)).public_state is PublicState.WAITING_CHILDREN
    )
    free = after(release_member(held, AT))  # the hold stays
    assert free.state == held.state
    assert image(free, Release(execution_id=EXECUTION_ID)).public_state is PublicState.WAITING


def test_a_blocked_member_loses_its_grant() -> None:
    granted = replace(make.created(), grant=object())
    assert after(hold_back(granted, "", AT)).grant is None


# --- skipping ----------------------------------------------------------------------------------


def test_a_skip_is_an_end_without_an_attempt() -> None:
    waits = replace(after(hold_back(make.created(), "", AT)), flow_id="f")
    decision = skip(waits, AT)
    done = after(decision)
    assert done.state.terminal_outcome is TerminalOutcome.SKIPPED
    assert done.state.attempt_state is AttemptState.NONE
    assert (done.failure_reason, done.open_group) == ("dependency_impossible", 0)
    assert (done.completed_at, done.purge_at) == (NOW, None)
    assert decision.attempt is None
    (event,) = decision.events
    assert isinstance(event, CompletionEvent)
    assert (event.outcome, event.flow_id) == (TerminalOutcome.SKIPPED, "f")


def test_skipping_what_had_begun_ends_its_attempt() -> None:
    """Full cleanup, whatever it was doing."""
    decision = skip(make.parked(), AT)
    assert after(decision).state.attempt_state is AttemptState.ATTEMPT_TERMINAL
    assert decision.attempt is not None
    assert decision.attempt.outcome is AttemptOutcome.ENDED_CANCELLED
    assert decision.attempt.failure_reason == "dependency_impossible"
    running = skip(make.leased(), AT)
    assert after(running).lease_epoch > make.leased().lease_epoch
    assert [type(event) for event in running.events] == [CompletionEvent]


def test_a_member_barred_by_a_cancelled_flow_is_cancelled_not_skipped() -> None:
    barred = after(bar(make.created(), "enough", AT))
    done = after(skip(barred, AT))
    assert done.state.terminal_outcome is TerminalOutcome.CANCELLED
    assert (done.cancellation_reason, done.cancelled_by) == ("enough", "flow_cancel")


# --- too much input ----------------------------------------------------------------------------


def test_a_member_with_too_large_an_input_fails_without_an_attempt() -> None:
    waits = replace(after(hold_back(make.created(), "", AT)), flow_id="f")
    decision = reject_input(waits, TooLarge(11, 10), AT)
    done = after(decision)
    assert done.state.terminal_outcome is TerminalOutcome.FAILED
    assert (done.state.attempt_state, done.open_group) == (AttemptState.NONE, 0)
    assert done.failure_category == "input_too_large"
    assert done.failure_reason == TooLarge(11, 10).reason
    assert decision.attempt is None
    assert [type(each) for each in decision.events] == [CompletionEvent, FailureEntry]


def test_a_started_member_with_too_large_an_input_fails_its_attempt() -> None:
    decision = reject_input(make.parked(), TooLarge(11, 10), AT)
    assert decision.attempt is not None
    assert decision.attempt.outcome is AttemptOutcome.ENDED_FAILURE
    assert decision.attempt.failure_category == "input_too_large"


def test_a_member_barred_by_a_cancelled_flow_is_cancelled_whatever_its_input() -> None:
    barred = after(bar(make.created(), "enough", AT))
    done = after(reject_input(barred, TooLarge(11, 10), AT))
    assert done.state.terminal_outcome is TerminalOutcome.CANCELLED


# --- parents -----------------------------------------------------------------------------------


def park(execution: Execution, open_children: int, now: int = NOW) -> Decision[Any]:
    command = WaitChildren(execution_id=EXECUTION_ID, fence=fence_of(execution))
    return wait_children(execution, open_children, command, Moment(now))


def test_a_parent_lets_go_and_waits_for_its_children() -> None:
    running = make.leased()
    decision = park(running, 2, NOW + 40)
    parked = after(decision)
    assert decision.reply == ChildrenAwaited(PublicState.WAITING_CHILDREN, 2)
    assert parked.state.attempt_state is AttemptState.ATTEMPT_INTERRUPTED
    assert (parked.open_group, parked.worker_id, parked.lease_expires_at) == (1, None, None)
    assert parked.lease_epoch == running.lease_epoch + 1
    assert parked.attempt_spent_ms == 40  # its children's time is not its own
    (event,) = decision.events
    assert isinstance(event, LeaseEvent)
    assert (event.event_type, event.reason) == (LeaseEventType.RELEASED, "waiting_children")
    again = make.claimed(after(release_member(parked, Moment(NOW + 50))), now=NOW + 50)
    assert (again.attempt_index, again.attempt_id) == (running.attempt_index, running.attempt_id)


def test_d13_without_children_it_goes_straight_on() -> None:
    decision = park(make.leased(), 0)
    assert decision.reply == ChildrenAwaited(PublicState.WAITING, 0)
    assert after(decision).open_group == 0


def test_a_repeated_wait_is_answered() -> None:
    running = make.leased()
    parked, command = (
        park(running, 2),
        WaitChildren(execution_id=EXECUTION_ID, fence=fence_of(running)),
    )
    again = make.answered(parked, wait_children(after(parked), 1, command, AT), command)
    assert again == Decision(ChildrenAwaited(PublicState.WAITING_CHILDREN, 2))


def test_only_the_owner_waits() -> None:
    running = make.leased()
    command = WaitChildren(execution_id=EXECUTION_ID, fence=fence_of(running))
    stale = replace(command, fence=replace(command.fence, lease_epoch=7))
    for execution, wanted, now, error in (
        (running, stale, NOW, StaleLease),
        (running, command, NOW + TTL_MS, LeaseExpired),
        (make.created(), command, NOW, ExecutionNotActive),
    ):
        reply = wait_children(execution, 1, wanted, Moment(now)).reply
        assert isinstance(reply, Refused)
        assert reply.error is error
