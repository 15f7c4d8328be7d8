"""The flow as a whole: counting, when it is over, who joins, whom a cancel takes."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import AlreadyInOtherFlow, FlowAlreadyTerminal, FlowConflict, InvalidInput
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.execution.cancel import stop
from flowfabric.kernel.execution.operate import Release, Unblock
from flowfabric.kernel.flow.cancel import CancelFlow, bar, requested, stays_owed
from flowfabric.kernel.flow.flow import (
    AddMember,
    CreateFlow,
    admit_member,
    cancelled_flow,
    create_flow,
    ended_state,
    is_taken,
    refuse_closed,
    settle,
    tally,
    with_members,
)
from flowfabric.limits import FLOW_MEMBERS_MAX
from flowfabric.model.event import OperatorEventType
from flowfabric.model.flow import CancellationPolicy, FlowEventType, FlowRow, FlowState
from flowfabric.model.flow_results import FlowAlreadySatisfied
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
    assert made == flow(created_at=NOW, last_mutation_at=NOW, retention_ms=7, tags={"a.b": "c"})


def test_the_same_again_is_satisfied_and_other_words_are_a_conflict() -> None:
    assert create_flow(
        flow(), CreateFlow(flow_id="f", flow_kind="dag", namespace="default"), AT
    ) == FlowAlreadySatisfied("f")
    for command, name in (
        (CreateFlow(flow_id="f", flow_kind="other", namespace="default"), "flow_kind"),
        (CreateFlow(flow_id="f", flow_kind="dag", namespace="other"), "namespace"),
    ):
        reply = create_flow(flow(), command, AT)
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
    reply = admit_member(
        flow(**fields), make.created(), AddMember(flow_id="f", execution_id="x", reopen=reopen)
    )
    assert (reply.error if isinstance(reply, Refused) else reply) is error


def test_a_member_of_another_flow_may_not_join() -> None:
    reply = admit_member(
        flow(), replace(make.created(), flow_id="g"), AddMember(flow_id="f", execution_id="x")
    )
    assert isinstance(reply, Refused)
    assert (reply.error, reply.fields) == (AlreadyInOtherFlow, {"flow_id": "g"})


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
    assert is_taken(ALL, execution) is lives
    assert is_taken(PENDING, execution) is (lives and not begun)
    assert is_taken(ONLY, execution) is False


@pytest.mark.parametrize("situation", ["waiting", "delayed", "held", "retrying", "requeued"])
def test_release_and_unblock_refuse_a_barred_member(situation: str) -> None:
    barred = bar(make.LIVE[situation](), "enough", AT).execution
    assert barred is not None
    assert barred.state.blocking_reason is BlockingReason.PAUSED_BY_FLOW_CANCEL
    assert (barred.public_state, barred.blocking_detail) == (PublicState.WAITING, "enough")
    assert (barred.grant, barred.blocked_on) == (None, None)
    refusal(decide(barred, Release(execution_id=EXECUTION_ID)))
    refusal(decide(barred, Unblock(execution_id=EXECUTION_ID, expected=None)))


def test_the_request_is_audited() -> None:
    event = requested(
        flow(tags={"a.b": "c"}), CancelFlow(flow_id="f", policy=ALL, reason="enough"), 3, AT
    )
    assert event.event_type is OperatorEventType.FLOW_CANCEL_REQUESTED
    assert (event.subject, event.tags) == ("f", {"a.b": "c"})
    assert event.details == {"policy": "cancel_all", "reason": "enough", "member_count": 3}


@pytest.mark.parametrize("situation", sorted(make.LIVE))
def test_the_cancel_of_an_open_member_stays_deferred(situation: str) -> None:
    assert stays_owed(make.LIVE[situation]())


def test_no_cancel_is_deferred_for_ended_or_purged_members() -> None:
    assert not stays_owed(make.completed())
    assert not stays_owed(stop(make.created(), "enough", "flow_cancel", AT).execution)
    assert not stays_owed(None)
