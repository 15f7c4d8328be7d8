"""Waitpoints, as pure decisions: who hands them out, and how they close."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import (
    InvalidWaitpointKey,
    KeyringEmpty,
    NotFound,
    PendingWaitpointExpired,
    WaitpointAlreadyExists,
    WaitpointInUse,
    WaitpointNotPending,
    WaitpointOfOtherAttempt,
)
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.wait.suspend import Facts, suspend
from flowfabric.kernel.wait.waitpoint import (
    Binding,
    CloseWaitpoint,
    CreateWaitpoint,
    abandons_waitpoints,
    close_abandoned,
    close_waitpoint,
    create_waitpoint,
    lapse_waitpoint,
)
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import replace
from flowfabric.model.suspension import Single, WaitpointRow, WaitpointState
from tests.kernel.test_suspend import command_of
from tests.support.builders import (
    EXECUTION_ID,
    NOW,
    SECRET,
    SITUATIONS,
    completed,
    created,
    delay_with,
    fence_of,
    image,
    lapsed,
    leased,
    retrying,
)
from tests.support.decisions import saved, the

AT = Moment(NOW)


def refused(decision: Decision[Any]) -> type:
    """The refusal, which must write nothing."""
    assert isinstance(decision.reply, Refused), decision.reply
    assert decision == Decision(decision.reply)
    return decision.reply.error


def any_fence(execution: Execution) -> Fence:
    return Fence(execution.lease_id or "l", execution.lease_epoch, execution.attempt_id or "a")


def a_waitpoint(state: WaitpointState, **fields: Any) -> WaitpointRow:
    made = create_waitpoint(
        leased(),
        None,
        SECRET,
        CreateWaitpoint(
            execution_id=EXECUTION_ID,
            fence=fence_of(leased()),
            waitpoint_id="w",
            waitpoint_key="a",
            expires_in_ms=500,
        ),
        AT,
    )
    return replace(the(made, WaitpointRow), state=state, **fields)


def test_a_waitpoint_is_made_pending_with_its_end() -> None:
    row = a_waitpoint(WaitpointState.PENDING)
    assert (row.expires_at, row.due_at, row.suspension_id) == (NOW + 500, NOW + 500, None)
    running = leased()
    again = CreateWaitpoint(
        execution_id=EXECUTION_ID,
        fence=fence_of(running),
        waitpoint_id="w",
        waitpoint_key="a",
        expires_in_ms=500,
    )
    assert refused(create_waitpoint(running, row, SECRET, again, AT)) is WaitpointAlreadyExists


@pytest.mark.parametrize("situation", SITUATIONS)
def test_only_a_live_owner_hands_out_addresses(situation: str) -> None:
    execution = SITUATIONS[situation]()
    command = CreateWaitpoint(
        execution_id=EXECUTION_ID,
        fence=any_fence(execution),
        waitpoint_id="w",
        waitpoint_key="a",
        expires_in_ms=500,
    )
    decision = create_waitpoint(execution, None, SECRET, command, AT)
    assert isinstance(decision.reply, WaitpointRow) == (situation == "leased")


@pytest.mark.parametrize("state", WaitpointState)
def test_closing_depends_on_the_state(state: WaitpointState) -> None:
    row = a_waitpoint(state)
    decision = close_waitpoint(
        leased(), row, CloseWaitpoint(execution_id=EXECUTION_ID, waitpoint_id="w", reason="why"), AT
    )
    if state is WaitpointState.ACTIVE:
        assert refused(decision) is WaitpointInUse
    elif state is WaitpointState.CLOSED:
        assert decision == Decision(row)
    else:
        closed = the(decision, WaitpointRow)
        assert (closed.state, closed.close_reason) == (WaitpointState.CLOSED, "why")


def test_a_foreign_waitpoint_cannot_be_closed() -> None:
    row = replace(a_waitpoint(WaitpointState.PENDING), execution_id="other")
    for known in (row, None):
        decision = close_waitpoint(
            created(),
            known,
            CloseWaitpoint(execution_id=EXECUTION_ID, waitpoint_id="w", reason="x"),
            AT,
        )
        assert refused(decision) is NotFound


def test_a_waitpoint_is_counted_and_needs_a_signing_key() -> None:
    running = leased()
    command = CreateWaitpoint(
        execution_id=EXECUTION_ID,
        fence=fence_of(running),
        waitpoint_id="w",
        waitpoint_key="a",
        expires_in_ms=500,
    )
    made = create_waitpoint(running, None, SECRET, command, AT)
    assert made.execution == replace(running, side_holds=1)
    assert the(made, WaitpointRow).token_kid == SECRET.kid
    assert refused(create_waitpoint(running, None, None, command, AT)) is KeyringEmpty


@pytest.mark.parametrize("state", WaitpointState)
@pytest.mark.parametrize("now", [NOW + 499, NOW + 500])
def test_only_a_pending_waitpoint_past_its_time_expires(state: WaitpointState, now: int) -> None:
    owner = replace(leased(), side_holds=1)
    decision = lapse_waitpoint(owner, a_waitpoint(state), Moment(now))
    if state is WaitpointState.PENDING and now == NOW + 500:
        assert decision.reply is True
        assert decision.execution == replace(owner, side_holds=0)
        gone = the(decision, WaitpointRow)
        assert (gone.state, gone.close_reason) == (WaitpointState.CLOSED, "never_committed")
    else:
        assert decision == Decision(False)
    assert lapse_waitpoint(owner, None, Moment(now)) == Decision(False)


@pytest.mark.parametrize(
    ("after", "abandons"),
    [
        (completed(), True),
        (retrying(), True),
        (image(leased(), delay_with(fence_of(leased()), NOW + 9)), False),
        (lapsed(), False),
        (replace(leased(), attempt_index=1), True),
    ],
)
def test_waitpoints_are_abandoned_with_their_attempt(after: Execution, abandons: bool) -> None:
    before = replace(leased(), side_holds=1)
    assert abandons_waitpoints(before, after) == abandons
    assert not abandons_waitpoints(leased(), after)  # there are none
    assert abandons_waitpoints(replace(leased(), suspension_id="s"), after) == abandons


def test_what_has_ended_abandons_nothing_more() -> None:
    over = replace(completed(), side_holds=1)
    assert not abandons_waitpoints(over, over)


def test_what_was_abandoned_is_closed_once() -> None:
    rows = [a_waitpoint(state) for state in WaitpointState]
    gone = saved(close_abandoned(rows, AT, is_over=True), WaitpointRow)
    assert len(gone) == 2
    for each in gone:
        assert (each.state, each.close_reason) == (WaitpointState.CLOSED, "attempt ended")


# --- waited on -----------------------------------------------------------------------------------


def waited_on(known: WaitpointRow | None, *, is_pending: bool) -> type | None:
    """The refusal of a suspension on waitpoint w, if it is refused."""
    running = leased()
    bindings = (Binding("w", "a", is_pending),)
    command = command_of(fence_of(running), bindings=bindings, condition=Single("a"))
    rows = {} if known is None else {"w": known}
    decision = suspend(running, Facts(SECRET, waitpoints=rows), command, AT)
    return refused(decision) if isinstance(decision.reply, Refused) else None


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (None, NotFound),
        (a_waitpoint(WaitpointState.PENDING, execution_id="another"), NotFound),
        (a_waitpoint(WaitpointState.PENDING, waitpoint_key="other"), InvalidWaitpointKey),
        (a_waitpoint(WaitpointState.CLOSED), WaitpointNotPending),
        (a_waitpoint(WaitpointState.ACTIVE), WaitpointNotPending),
        (a_waitpoint(WaitpointState.PENDING, attempt_index=7), WaitpointOfOtherAttempt),
        (a_waitpoint(WaitpointState.PENDING, expires_at=NOW), PendingWaitpointExpired),
        (a_waitpoint(WaitpointState.PENDING), None),
    ],
)
def test_only_a_pending_waitpoint_of_this_attempt_is_waited_on(
    row: WaitpointRow | None, error: type | None
) -> None:
    """Each other reason has a code of its own."""
    assert waited_on(row, is_pending=True) is error


def test_a_new_waitpoint_takes_no_id_that_exists() -> None:
    known = a_waitpoint(WaitpointState.PENDING)
    assert waited_on(known, is_pending=False) is WaitpointAlreadyExists
