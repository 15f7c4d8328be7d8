"""The flow as a whole: counting, when it is over, who joins, whom a cancel takes."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import (
    AlreadyInOtherFlow,
    FlowAlreadyTerminal,
    FlowConflict,
    InvalidInput,
    NotFound,
)
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.cancel import stop
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.operate import Release, Unblock
from flowfabric.kernel.flow.cancel import (
    CancelFlow,
    bar,
    cancel_flow,
    cancel_later,
    cancelled_before,
    cancelled_flow,
    is_cancelled_by,
    repeats_cancel,
    requested,
    stays_deferred,
)
from flowfabric.kernel.flow.flow import (
    AddMember,
    CreateFlow,
    SetFlowTag,
    add_member,
    create_flow,
    ended_state,
    purged_later,
    purged_with_flow,
    refuse_closed,
    refuse_member,
    set_flow_tag,
    settle,
    tally,
    with_members,
)
from flowfabric.limits import FLOW_MEMBERS_MAX, TASK_RETRY_MS
from flowfabric.model.event import OperatorEventType
from flowfabric.model.flow import (
    CancellationPolicy,
    FlowEventType,
    FlowRow,
    FlowState,
    MemberRow,
    TaskKind,
    TaskRow,
)
from flowfabric.model.flow_results import (
    Added,
    AlreadyMember,
    AlreadyTerminal,
    CancellationScheduled,
    FlowAlreadySatisfied,
    FlowCancelled,
    FlowCreated,
)
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.record import replace
from flowfabric.model.state import BlockingReason, PublicState
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, decide, refusal

AT = Moment(NOW, 500)
ALL, PENDING, ONLY = CancellationPolicy


def flow(**fields: Any) -> FlowRow:
    return replace(FlowRow("f", "default", "dag", FlowState.OPEN, 1, 1), **fields)


# --- beginning ---------------------------------------------------------------------------------


def test_a_flow_begins_empty_and_open() -> None:
    made = create_flow(
        None,
        CreateFlow(
            flow_id="f", flow_kind="dag", namespace="default", retention_ms=7, tags={"a.b": "c"}
        ),
        AT,
    )
    row = flow(created_at=NOW, last_mutation_at=NOW, retention_ms=7, tags={"a.b": "c"})
    assert (made.reply, made.saves) == (FlowCreated("f"), (row,))


def test_the_same_again_is_satisfied_and_other_words_are_a_conflict() -> None:
    same = CreateFlow(flow_id="f", flow_kind="dag", namespace="default")
    assert create_flow(flow(), same, AT) == Decision(FlowAlreadySatisfied("f"))
    for command, name in (
        (CreateFlow(flow_id="f", flow_kind="other", namespace="default"), "flow_kind"),
        (CreateFlow(flow_id="f", flow_kind="dag", namespace="other"), "namespace"),
    ):
        reply = create_flow(flow(), command, AT).reply
        assert isinstance(reply, Refused)
        assert (reply.error, reply.fields) == (FlowConflict, {"field": name})


@pytest.mark.parametrize("state", FlowState)
def test_a_graph_is_closed_exactly_when_its_flow_is_over(state: FlowState) -> None:
    reply = refuse_closed(flow(public_flow_state=state), "f")
    if state.is_terminal:
        assert reply is not None
        assert reply.error is FlowAlreadyTerminal
    else:
        assert reply is None


@pytest.mark.parametrize(
    ("fields", "reopen", "error"),
    [
        ({}, False, None),
        ({"public_flow_state": FlowState.COMPLETED}, False, FlowAlreadyTerminal),
        ({"public_flow_state": FlowState.COMPLETED}, True, None),
        ({"public_flow_state": FlowState.FAILED}, True, None),
        ({"public_flow_state": FlowState.CANCELLED}, True, FlowAlreadyTerminal),
        ({"namespace": "other"}, False, InvalidInput),
        ({"node_count": FLOW_MEMBERS_MAX}, False, InvalidInput),
        ({"node_count": FLOW_MEMBERS_MAX - 1}, False, None),
    ],
)
def test_the_executions_that_may_join_a_flow(
    fields: dict[str, Any], reopen: bool, error: type | None
) -> None:
    reply = refuse_member(
        flow(**fields), make.created(), AddMember(flow_id="f", execution_id="x", reopen=reopen)
    )
    assert (reply.error if isinstance(reply, Refused) else reply) is error


def test_a_member_of_another_flow_may_not_join() -> None:
    reply = refuse_member(
        flow(), replace(make.created(), flow_id="g"), AddMember(flow_id="f", execution_id="x")
    )
    assert isinstance(reply, Refused)
    assert (reply.error, reply.fields) == (AlreadyInOtherFlow, {"flow_id": "g"})


def test_a_member_is_purged_with_its_flow_and_not_by_itself() -> None:
    ended = replace(make.completed(), purge_at=NOW + 9)
    command = AddMember(flow_id="f", execution_id=EXECUTION_ID, node_name="n")
    decision = add_member(flow(node_count=1), ended, command, AT)
    assert decision.reply == Added(EXECUTION_ID, 2)
    assert decision.execution == replace(ended, flow_id="f", purge_at=None, last_mutation_at=NOW)
    row, member = decision.saves
    assert isinstance(row, FlowRow)
    assert (row.node_count, row.completed_count) == (2, 1)
    assert member == MemberRow("f", EXECUTION_ID, "n")
    gone = purged_with_flow(decision.execution, AT)
    assert (gone.purge_at, purged_later(row, AT).flow.due_at) == (NOW, NOW + TASK_RETRY_MS)


def test_a_member_is_added_once_and_to_a_flow_that_is_there() -> None:
    command = AddMember(flow_id="f", execution_id=EXECUTION_ID)
    member = replace(make.created(), flow_id="f")
    again = add_member(flow(node_count=3), member, command, AT)
    assert again == Decision(AlreadyMember(EXECUTION_ID, 3))
    assert refusal(add_member(None, not_found("x"), command, AT)) is NotFound
    missing = add_member(flow(), not_found("x"), command, AT)
    assert missing.reply == not_found("x")
    closed = flow(public_flow_state=FlowState.CANCELLED)
    assert refusal(add_member(closed, make.created(), command, AT)) is FlowAlreadyTerminal


def test_tags_are_added_up_to_a_bound() -> None:
    command = SetFlowTag(flow_id="f", tags={"b.b": "2", "c.c": "3"})
    decision = set_flow_tag(flow(tags={"a.a": "1", "b.b": "1"}), command, AT)
    (row,) = decision.saves
    assert isinstance(row, FlowRow)
    assert (row.tags, row.last_mutation_at) == ({"a.a": "1", "b.b": "2", "c.c": "3"}, NOW)
    assert refusal(set_flow_tag(None, command, AT)) is NotFound
    many = {f"t.{at}": "x" for at in range(1000)}
    assert refusal(set_flow_tag(flow(tags=many), command, AT)) is InvalidInput


# --- counting ----------------------------------------------------------------------------------


def test_each_new_member_raises_count_and_revision() -> None:
    change = with_members(flow(), [make.created(), make.leased()], AT)
    assert (change.flow.node_count, change.flow.graph_revision) == (2, 2)
    assert change.events == ()
    ended = with_members(change.flow, [make.failed()], AT)
    assert (ended.flow.node_count, ended.flow.failed_count) == (3, 1)


@pytest.mark.parametrize(
    ("own", "wishes", "expected"),
    [
        (None, [None], None),
        (None, [400], None),  # shorter than the engine's 500
        (None, [600, 700], 700),
        (100, [50], 100),
        (100, [600], 600),
        (900, [600], 900),
    ],
)
def test_the_longest_wish_is_kept(
    own: int | None, wishes: list[int | None], expected: int | None
) -> None:
    members = [make.created(policy=ExecutionPolicy(retention_ttl_ms=keep)) for keep in wishes]
    assert with_members(flow(retention_ms=own), members, AT).flow.retention_ms == expected


def test_the_last_end_completes_the_flow() -> None:
    two = flow(node_count=2)
    first = tally(two, [(make.leased(), make.completed())], AT)
    assert (first.flow.completed_count, first.flow.public_flow_state) == (1, FlowState.OPEN)
    assert first.events == ()
    last = tally(first.flow, [(make.leased(), make.completed())], AT)
    assert last.flow.public_flow_state is FlowState.COMPLETED
    assert (last.flow.finished_at, last.flow.due_at) == (NOW, NOW + 500)
    (event,) = last.events
    assert (event.event_type, event.occurred_at) == (FlowEventType.COMPLETED, NOW)


def test_a_replay_opens_it_and_its_end_closes_it_again() -> None:
    done = settle(flow(node_count=1, failed_count=1), AT).flow
    assert done.public_flow_state is FlowState.FAILED
    again = tally(done, [(make.failed(), make.created())], AT)
    assert (again.flow.failed_count, again.flow.public_flow_state) == (0, FlowState.OPEN)
    assert (again.flow.finished_at, again.flow.due_at) == (None, None)
    assert [event.event_type for event in again.events] == [FlowEventType.REOPENED]
    later = tally(again.flow, [(make.leased(), make.completed())], Moment(NOW + 9, 500))
    assert later.flow.public_flow_state is FlowState.COMPLETED
    assert later.flow.finished_at == NOW + 9


def test_a_flow_that_is_over_stays_over() -> None:
    done = settle(flow(node_count=1, completed_count=1), AT).flow
    assert settle(done, Moment(NOW + 5)).flow == done
    assert settle(done, Moment(NOW + 5)).events == ()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"completed_count": 2}, FlowState.COMPLETED),
        ({"completed_count": 1, "skipped_count": 1}, FlowState.COMPLETED),
        ({"skipped_count": 2}, FlowState.COMPLETED),
        ({"completed_count": 1, "failed_count": 1}, FlowState.FAILED),
        ({"completed_count": 1, "cancelled_count": 1}, FlowState.FAILED),
        ({"completed_count": 1, "expired_count": 1}, FlowState.FAILED),
    ],
)
def test_any_loss_fails_the_flow(counts: dict[str, int], expected: FlowState) -> None:
    """Flows 11: skipped alone counts as completed."""
    row = flow(node_count=2, **counts)
    assert row.ended_count == 2
    assert ended_state(row) is expected
    assert settle(row, AT).flow.public_flow_state is expected


def test_an_empty_flow_is_not_over() -> None:
    assert settle(flow(), AT).flow.finished_at is None


def test_a_cancelled_flow_stays_cancelled_to_its_end() -> None:
    change = cancelled_flow(flow(node_count=1), ALL, "enough", AT)
    row = change.flow
    assert (row.public_flow_state, row.finished_at) == (FlowState.CANCELLED, None)
    assert (row.cancelled_at, row.cancel_reason, row.cancellation_policy) == (NOW, "enough", ALL)
    assert [event.event_type for event in change.events] == [FlowEventType.CANCELLED]
    over = tally(row, [(make.leased(), make.completed())], AT)
    assert (over.flow.public_flow_state, over.flow.finished_at) == (FlowState.CANCELLED, NOW)
    assert over.events == ()


def test_a_new_life_opens_a_flow_however_it_was_closed() -> None:
    """What closed it is forgotten, so that the next cancel is a cancel and not a repetition."""
    drains = cancelled_flow(flow(node_count=2, completed_count=1), ALL, "enough", AT).flow
    over = tally(drains, [(make.leased(), make.completed())], AT).flow
    for closed in (drains, over):
        again = tally(closed, [(make.completed(), make.created())], AT)
        row = again.flow
        assert (row.public_flow_state, row.finished_at, row.due_at) == (FlowState.OPEN, None, None)
        assert (row.cancelled_at, row.cancel_reason, row.cancellation_policy) == (None,) * 3
        assert [event.event_type for event in again.events] == [FlowEventType.REOPENED]


def test_an_empty_flow_is_over_when_cancelled() -> None:
    row = cancelled_flow(flow(retention_ms=9), ALL, "x", AT).flow
    assert (row.finished_at, row.due_at) == (NOW, NOW + 9)


# --- cancelling --------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", make.SITUATIONS)
def test_the_members_each_cancel_policy_covers(situation: str) -> None:
    """Flows 10: what has begun drains under cancel_pending."""
    execution = make.SITUATIONS[situation]()
    lives = situation in make.LIVE
    begun = situation in ("leased", "lapsed", "revoked")
    assert is_cancelled_by(ALL, execution) is lives
    assert is_cancelled_by(PENDING, execution) is (lives and not begun)
    assert is_cancelled_by(ONLY, execution) is False


@pytest.mark.parametrize(
    ("state", "stored", "policy", "repeats"),
    [
        (FlowState.OPEN, None, ALL, False),
        (FlowState.COMPLETED, None, ALL, True),
        (FlowState.CANCELLED, ALL, ALL, True),
        (FlowState.CANCELLED, ALL, ONLY, True),
        (FlowState.CANCELLED, PENDING, PENDING, True),
        (FlowState.CANCELLED, PENDING, ALL, False),
        (FlowState.CANCELLED, ONLY, PENDING, False),
    ],
)
def test_a_cancel_is_a_repetition_unless_it_cancels_more(
    state: FlowState,
    stored: CancellationPolicy | None,
    policy: CancellationPolicy,
    repeats: bool,
) -> None:
    row = flow(public_flow_state=state, cancellation_policy=stored)
    assert repeats_cancel(row, policy) is repeats


def test_few_members_are_cancelled_at_once_and_many_or_with_a_grace_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flowfabric.limits.CANCEL_INLINE_MAX", 1)
    live, ended, ids = make.created(), make.completed(), ["a", "b"]
    command = CancelFlow(flow_id="f", policy=ALL, reason="enough")
    few = cancel_flow(flow(), ids, [live, ended], command, AT)
    assert few is not None
    assert (few.members, few.is_deferred) == ([live], False)
    assert few.header.reply == FlowCancelled(ALL, ("a", "b"))
    many = cancel_flow(flow(), ids, [live, live], command, AT)
    assert many is not None
    assert (many.header.reply, many.is_deferred) == (
        CancellationScheduled(ALL, 2, ("a", "b")),
        True,
    )
    by_hand = cancel_flow(flow(), ids, [live], replace(command, grace_ms=9), AT)
    assert by_hand is not None
    assert (by_hand.header.reply, by_hand.is_deferred) == (FlowCancelled(ALL, ("a", "b")), True)


def test_a_closed_flow_with_nothing_left_to_cancel_stays_as_it_is() -> None:
    closed = cancelled_flow(flow(node_count=1), PENDING, "first", AT).flow
    command = CancelFlow(flow_id="f", policy=ALL, reason="enough")
    assert cancel_flow(closed, ["a"], [make.completed()], command, AT) is None
    assert cancel_flow(closed, ["a"], [make.leased()], command, AT) is not None


def test_a_repeated_cancel_has_deferred_cancels_done_at_once() -> None:
    closed = cancelled_flow(flow(node_count=1), ALL, "first", AT).flow
    command = CancelFlow(flow_id="f", policy=ALL, reason="enough")
    late = TaskRow("f", TaskKind.CANCEL_MEMBER, "a", "first", 0, NOW + 5)
    due = replace(late, execution_id="b", due_at=NOW)
    again = cancelled_before(closed, ("a",), [late, due], command, AT)
    assert again.reply == CancellationScheduled(ALL, 1, ("a",))
    assert again.saves == (replace(late, due_at=NOW),)
    over = Decision(AlreadyTerminal(ALL, "first", ("a",)))
    assert cancelled_before(closed, ("a",), [], command, AT) == over
    by_hand = replace(command, grace_ms=9)
    assert cancelled_before(closed, ("a",), [late], by_hand, AT) == over


@pytest.mark.parametrize("situation", ["waiting", "delayed", "held", "retrying", "requeued"])
def test_release_and_unblock_refuse_a_barred_member(situation: str) -> None:
    barred = bar(make.LIVE[situation](), "enough", AT).execution
    assert barred is not None
    assert barred.state.blocking_reason is BlockingReason.PAUSED_BY_FLOW_CANCEL
    assert (barred.public_state, barred.blocking_detail) == (PublicState.WAITING, "enough")
    assert (barred.grant, barred.blocked_on) == (None, None)
    refusal(decide(barred, Release(execution_id=EXECUTION_ID)))
    refusal(decide(barred, Unblock(execution_id=EXECUTION_ID, expected=None)))


@pytest.mark.parametrize("situation", make.LIVE)
def test_a_member_whose_cancel_is_deferred_is_barred_unless_it_has_begun(situation: str) -> None:
    execution = make.LIVE[situation]()
    barred = cancel_later(execution, "enough", AT)
    assert (barred is not None) is execution.is_runnable
    assert barred is None or barred == bar(execution, "enough", AT)


def test_the_request_is_audited() -> None:
    event = requested(
        flow(tags={"a.b": "c"}), CancelFlow(flow_id="f", policy=ALL, reason="enough"), 3, AT
    )
    assert event.event_type is OperatorEventType.FLOW_CANCEL_REQUESTED
    assert (event.subject, event.tags) == ("f", {"a.b": "c"})
    assert event.details == {"policy": "cancel_all", "reason": "enough", "member_count": 3}


@pytest.mark.parametrize("situation", sorted(make.LIVE))
def test_the_cancel_of_a_live_member_stays_deferred_whatever_is_said(situation: str) -> None:
    assert stays_deferred(make.LIVE[situation]())


def test_no_cancel_stays_deferred_for_what_has_ended_or_is_gone() -> None:
    assert not stays_deferred(make.completed())
    assert not stays_deferred(stop(make.created(), "enough", "flow_cancel", AT).execution)
    assert not stays_deferred(None)
