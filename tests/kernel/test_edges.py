"""One edge at a time: staged, applied, withdrawn, resolved by hand; and the policy of a join."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import (
    CycleDetected,
    DependencyGroupDecided,
    EdgeInForce,
    EdgeNotInForce,
    ExecutionNotInFlow,
    FlowAlreadyTerminal,
    InvalidDependency,
    InvalidInput,
    NotFound,
)
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.flow.graph import (
    ApplyEdge,
    SetGroupPolicy,
    StageEdge,
    WithdrawEdge,
    apply_edge,
    new_edge,
    refuse_cycle,
    set_policy,
    stage_edge,
    withdraw_edge,
)
from flowfabric.kernel.flow.rank import Rise
from flowfabric.kernel.flow.resolve import ResolveEdge, answered_resolved, answered_unresolved
from flowfabric.model.flow import (
    AllDone,
    AllSucceeded,
    EdgeRow,
    EdgeState,
    FlowRow,
    FlowState,
    GroupState,
    MemberRow,
)
from flowfabric.model.flow_results import (
    AlreadyWithdrawn,
    Applied,
    DependencyAlreadyApplied,
    DependencyResolved,
    PolicyAlreadySet,
    PolicySet,
    Staged,
    Withdrawn,
)
from flowfabric.model.record import replace
from tests.support import builders as make
from tests.support.builders import NOW, refusal

AT = Moment(NOW)
FLOW = FlowRow("f", "default", "dag", FlowState.OPEN, 1, 1, graph_revision=4, edge_count=2)
OVER = replace(FLOW, public_flow_state=FlowState.COMPLETED)
EDGE = EdgeRow("f", "e", "u", "d", "success_only", EdgeState.PENDING, 1)
DOWN = MemberRow("f", "d", staged=1)
BETWEEN: Any = {
    "flow_id": "f",
    "edge_id": "e",
    "upstream_execution_id": "u",
    "downstream_execution_id": "d",
}
STAGE = StageEdge(**BETWEEN, dependency_kind="success_only")
APPLY, WITHDRAW, RESOLVE = ApplyEdge(**BETWEEN), WithdrawEdge(**BETWEEN), ResolveEdge(**BETWEEN)


def saved(decision: Decision[Any], kind: type) -> list[Any]:
    return [each for each in decision.saves if isinstance(each, kind)]


# --- staging -------------------------------------------------------------------------------------


def test_a_staged_edge_is_counted_by_its_group_and_its_flow() -> None:
    decision = stage_edge(FLOW, MemberRow("f", "d"), Rise("u"), [], STAGE, AT)
    assert decision.reply == Staged("e", 5)
    assert saved(decision, MemberRow) == [MemberRow("f", "d", staged=1)]
    assert saved(decision, EdgeRow) == [new_edge(STAGE, EdgeState.PENDING, AT)]
    (flow,) = saved(decision, FlowRow)
    assert (flow.edge_count, flow.graph_revision, flow.last_mutation_at) == (3, 5, NOW)


def test_an_edge_that_passes_data_is_counted_as_such() -> None:
    passing = replace(STAGE, data_passing_ref="x")
    decision = stage_edge(FLOW, MemberRow("f", "d"), Rise("u"), [], passing, AT)
    assert saved(decision, MemberRow)[-1].passing == 1


def test_raised_ranks_are_saved_and_the_downstreams_among_them() -> None:
    rows = {"d": MemberRow("f", "d", rank=7), "x": MemberRow("f", "x", rank=8)}
    decision = stage_edge(FLOW, MemberRow("f", "d"), Rise("u", raised=rows), [], STAGE, AT)
    final = {each.execution_id: each for each in saved(decision, MemberRow)}
    assert final == {"d": replace(rows["d"], staged=1), "x": rows["x"]}


def test_a_second_edge_takes_the_mark_off_the_first() -> None:
    first = replace(EDGE, edge_id="first", edge_state=EdgeState.APPLIED, is_sole=1)
    other = replace(first, edge_id="other", is_sole=0)
    decision = stage_edge(FLOW, DOWN, Rise("u"), [first, other], STAGE, AT)
    changed = [each for each in saved(decision, EdgeRow) if each.edge_id != "e"]
    assert changed == [replace(first, is_sole=0)]


def test_a_cycle_is_refused() -> None:
    assert refuse_cycle(Rise("u", {"d": 3}), STAGE) is None
    found = refuse_cycle(Rise("u", {"u": 3}), STAGE)
    assert found is not None
    assert (found.error, found.fields) == (CycleDetected, {"edge_id": "e"})


# --- applying ------------------------------------------------------------------------------------


def test_an_applied_edge_holds_its_downstream_back() -> None:
    member = replace(DOWN, staged=2, total=1, succeeded=1)
    ends = (make.leased(), make.created())
    decision = apply_edge(FLOW, EDGE, member, ends, APPLY, AT)
    assert decision.reply == Applied(2)
    assert saved(decision, MemberRow) == [replace(member, staged=1, total=2)]
    assert saved(decision, EdgeRow) == [replace(EDGE, edge_state=EdgeState.APPLIED, applied_at=NOW)]
    assert decision.execution is not None
    assert decision.execution.has_open_group
    assert "2 others" in decision.execution.blocking_detail


def test_an_edge_is_applied_once() -> None:
    applied = replace(EDGE, edge_state=EdgeState.APPLIED)
    ends = (make.created(), make.created())
    assert apply_edge(FLOW, applied, DOWN, ends, APPLY, AT) == Decision(DependencyAlreadyApplied())


@pytest.mark.parametrize("state", [GroupState.SATISFIED, GroupState.IMPOSSIBLE])
def test_a_decided_group_takes_no_edge(state: GroupState) -> None:
    decided, ends = replace(DOWN, group_state=state), (make.created(), make.created())
    assert refusal(apply_edge(FLOW, EDGE, decided, ends, APPLY, AT)) is DependencyGroupDecided
    assert refusal(apply_edge(FLOW, EDGE, None, ends, APPLY, AT)) is DependencyGroupDecided


def test_the_downstream_is_missed_before_the_upstream() -> None:
    gone = (not_found("u"), not_found("d"))
    decision = apply_edge(FLOW, EDGE, DOWN, gone, APPLY, AT)
    assert decision.reply == gone[1]
    half = (gone[0], make.created())
    assert apply_edge(FLOW, EDGE, DOWN, half, APPLY, AT).reply == gone[0]
    assert refusal(apply_edge(OVER, EDGE, DOWN, gone, APPLY, AT)) is FlowAlreadyTerminal


# --- withdrawing ---------------------------------------------------------------------------------


def test_a_withdrawn_edge_goes_and_its_group_is_one_smaller() -> None:
    edge, member = replace(EDGE, data_passing_ref="x"), replace(DOWN, staged=2, passing=1)
    decision = withdraw_edge(FLOW, edge, member, make.created(), WITHDRAW, AT)
    assert decision.reply == Withdrawn("e", 5, GroupState.PENDING)
    assert decision.drops == (edge,)
    assert saved(decision, MemberRow) == [replace(member, staged=1, passing=0)]
    assert [each.edge_count for each in saved(decision, FlowRow)] == [1]


def test_an_edge_that_is_not_there_was_withdrawn() -> None:
    decision = withdraw_edge(FLOW, None, DOWN, not_found("d"), WITHDRAW, AT)
    assert decision == Decision(AlreadyWithdrawn())


def test_what_cannot_be_withdrawn() -> None:
    applied, child = replace(EDGE, edge_state=EdgeState.APPLIED), make.created()
    assert refusal(withdraw_edge(FLOW, applied, DOWN, child, WITHDRAW, AT)) is EdgeInForce
    assert refusal(withdraw_edge(OVER, EDGE, DOWN, child, WITHDRAW, AT)) is FlowAlreadyTerminal
    assert refusal(withdraw_edge(FLOW, EDGE, None, child, WITHDRAW, AT)) is ExecutionNotInFlow
    assert refusal(withdraw_edge(FLOW, EDGE, DOWN, not_found("d"), WITHDRAW, AT)) is NotFound


# --- the policy ----------------------------------------------------------------------------------


def test_a_policy_is_set_once() -> None:
    command, member = SetGroupPolicy(flow_id="f", execution_id="d", policy=AllDone()), DOWN
    fresh = replace(member, staged=0)
    decision = set_policy(FLOW, fresh, command)
    assert (decision.reply, decision.saves) == (PolicySet(), (replace(fresh, policy=AllDone()),))
    again = set_policy(FLOW, replace(member, policy=AllDone()), command)
    assert again == Decision(PolicyAlreadySet())
    assert refusal(set_policy(FLOW, member, command)) is InvalidInput
    assert refusal(set_policy(FLOW, None, command)) is ExecutionNotInFlow
    explicit = set_policy(FLOW, member, replace(command, policy=AllSucceeded()))
    assert explicit.reply == PolicySet()


# --- resolving by hand ---------------------------------------------------------------------------

OPEN = replace(EDGE, edge_state=EdgeState.APPLIED)


@pytest.mark.parametrize(
    ("edge", "error"),
    [
        (None, InvalidDependency),
        (replace(OPEN, upstream_execution_id="x"), InvalidDependency),
        (EDGE, EdgeNotInForce),
    ],
    ids=["none", "other", "staged"],
)
def test_an_edge_that_was_not_applied_cannot_be_resolved(edge: EdgeRow | None, error: type) -> None:
    answer = answered_unresolved(edge, make.completed(), RESOLVE)
    assert isinstance(answer, Refused)
    assert answer.error is error


def test_an_edge_is_resolved_only_by_an_end() -> None:
    answer = answered_unresolved(OPEN, make.leased(), RESOLVE)
    assert isinstance(answer, Refused)
    assert answer.fields == {"field": "upstream_execution_id"}
    assert answered_unresolved(OPEN, make.failed(), RESOLVE) is None
    assert answered_unresolved(OPEN, not_found("u"), RESOLVE) == not_found("u")


def test_an_edge_is_resolved_once_in_each_life() -> None:
    counted = replace(OPEN, resolved_generation=0)
    answer = answered_unresolved(counted, make.completed(), RESOLVE)
    assert answer == DependencyResolved("already_resolved")


def test_what_resolving_did_is_told() -> None:
    met = replace(DOWN, group_state=GroupState.SATISFIED)
    lost = replace(DOWN, group_state=GroupState.IMPOSSIBLE)
    child, ended = make.created(), make.failed()
    told = answered_resolved(DOWN, met, child, is_handed=True)
    assert told == DependencyResolved("satisfied", data_injected=True)
    told = answered_resolved(DOWN, lost, ended, is_handed=False)
    assert told == DependencyResolved("impossible", child_skipped=True)
    told = answered_resolved(DOWN, lost, None, is_handed=False)
    assert told == DependencyResolved("impossible")
    assert answered_resolved(DOWN, DOWN, child, is_handed=False) == DependencyResolved("pending")
    assert answered_resolved(met, met, child, is_handed=False) == DependencyResolved(
        "already_fired"
    )
