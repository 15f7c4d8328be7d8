"""What is true of flows at every moment, from the records alone, with no rule of the kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    COUNTER_OF_OUTCOME,
    AllDone,
    AllSucceeded,
    CancellationPolicy,
    EdgeRow,
    EdgeState,
    FlowEventType,
    FlowRow,
    FlowState,
    GroupState,
    MemberRow,
    TaskKind,
)
from flowfabric.model.state import BlockingReason
from flowfabric.stores.tables import EDGES, FLOW_TASKS, FLOWS, MEMBERS
from tests.support.groups import groups_as_they_stand

Dump = dict[str, list[Any]]


def check_flows(dump: Dump, now: int) -> None:
    """Counters are rows, groups are edges, and every live member has a cause to wait."""
    executions = {e.execution_id: e for e in dump["executions"] if isinstance(e, Execution)}
    going = {f.flow_id for f in dump[FLOWS.name] if f.due_at is not None and f.due_at <= now}
    members: defaultdict[str, list[MemberRow]] = defaultdict(list)
    inbound: defaultdict[str, list[EdgeRow]] = defaultdict(list)
    outbound: Counter[str] = Counter()
    for edge in dump[EDGES.name]:
        inbound[edge.downstream_execution_id].append(edge)
        outbound[edge.flow_id] += 1
    for member in groups_as_they_stand(dump):
        members[member.flow_id].append(member)
    owed = {(each.kind, each.execution_id) for each in dump[FLOW_TASKS.name]}
    known = {flow.flow_id for flow in dump[FLOWS.name]}
    for table in (MEMBERS, EDGES, FLOW_TASKS):
        assert {row.flow_id for row in dump[table.name]} <= known, f"{table.name}: an orphan"
    for flow in dump[FLOWS.name]:
        if flow.flow_id not in going:  # a purge goes page by page
            its = members[flow.flow_id]
            check_counts(flow, its, executions, outbound[flow.flow_id])
            check_children(its, executions)
            check_cancelled(flow, [executions[each.execution_id] for each in its], owed)
            for member in its:
                check_group(member, inbound[member.execution_id])
                check_cause(member, executions, inbound[member.execution_id], owed)


def check_counts(
    flow: FlowRow, members: list[MemberRow], executions: dict[str, Execution], edges: int
) -> None:
    """The flow's counters, and the state that follows from them."""
    its = [executions[each.execution_id] for each in members]
    assert {each.flow_id for each in its} <= {flow.flow_id}, flow
    ended = Counter(COUNTER_OF_OUTCOME[e.state.terminal_outcome] for e in its if e.is_terminal)
    for name in COUNTER_OF_OUTCOME.values():
        assert getattr(flow, name) == ended[name], f"{name}: {ended[name]} ended so, {flow}"
    unneeded = sum(each.cancellation_reason == "sibling_quorum_satisfied" for each in its)
    assert flow.unneeded_count == unneeded, flow
    assert flow.node_count == len(members), flow
    assert flow.edge_count == edges, flow
    assert flow.child_count == sum(each.parent_id is not None for each in members), flow
    state, over = flow.public_flow_state, bool(its) and all(each.is_terminal for each in its)
    if over:
        lost = ended["failed_count"] + ended["expired_count"]
        lost += ended["cancelled_count"] - unneeded
        right = FlowState.FAILED if lost else FlowState.COMPLETED
        assert state in (right, FlowState.CANCELLED), flow
        assert flow.finished_at is not None, flow
        assert flow.due_at is not None, flow
    elif its:
        assert state in (FlowState.OPEN, FlowState.CANCELLED), flow
        assert flow.finished_at is None, flow
        assert flow.due_at is None, flow
    cancelled = state is FlowState.CANCELLED
    for said in (flow.cancelled_at, flow.cancel_reason, flow.cancellation_policy):
        assert (said is not None) == cancelled, flow


def check_cancelled(
    flow: FlowRow, members: list[Execution], owed: set[tuple[TaskKind, str]]
) -> None:
    """A flow that says it took all its members with it did, or owes it."""
    if flow.cancellation_policy is CancellationPolicy.CANCEL_ALL:
        for each in members:
            task = (TaskKind.CANCEL_MEMBER, each.execution_id)
            assert each.is_terminal or task in owed, f"{each} lives on in {flow}"


def check_children(members: list[MemberRow], executions: dict[str, Execution]) -> None:
    """A parent knows how many of its children live."""
    live = Counter(
        each.parent_id for each in members if not executions[each.execution_id].is_terminal
    )
    for member in members:
        assert member.open_children == live[member.execution_id], member


def check_group(member: MemberRow, edges: Iterable[EdgeRow]) -> None:
    """Group counters equal their edges."""
    states = Counter(edge.edge_state for edge in edges)
    assert member.staged == states.pop(EdgeState.PENDING, 0), member
    assert member.total == states.total(), member
    assert member.succeeded == states[EdgeState.SATISFIED], member
    assert member.failed + member.skipped == states[EdgeState.IMPOSSIBLE], member
    assert member.succeeded + member.failed + member.skipped <= member.total, (
        "more resolved edges than edges"
    )
    decided = member.group_state is not GroupState.PENDING
    assert decided == (member.satisfied_at is not None), member
    met = member.group_state is GroupState.SATISFIED
    if met and isinstance(member.joins, AllSucceeded | AllDone):
        assert not member.staged, f"{member} went on without an edge that was staged"


def check_cause(
    member: MemberRow,
    executions: dict[str, Execution],
    inbound: Iterable[EdgeRow],
    owed: set[tuple[TaskKind, str]],
) -> None:
    """I9: a live member is due, can be claimed, or waits for a live member."""
    key = member.execution_id
    execution = executions[key]
    undecided = member.total > 0 and member.group_state is GroupState.PENDING
    if not execution.is_runnable:
        assert execution.is_terminal or not undecided, f"{execution} runs before its group"
        return
    assert execution.open_group or not undecided, f"{execution} may run before its group"
    if execution.state.blocking_reason is BlockingReason.PAUSED_BY_FLOW_CANCEL:
        return  # whoever acknowledges a member without cancelling it keeps it so
    if execution.is_waiting:
        assert not execution.open_group, f"{execution} waits for others and for a worker"
        return
    if execution.state.blocking_reason is not BlockingReason.WAITING_FOR_CHILDREN:
        return  # limits, operators and delays: their own checks
    assert execution.open_group, execution
    causes = {f"child of {key}"} if member.open_children else set()
    causes |= {"task"} if (TaskKind.WAKE_PARENT, key) in owed else set()
    for edge in inbound if undecided else ():
        if edge.edge_state is EdgeState.PENDING:
            causes.add(f"whoever staged {edge.edge_id}")
        if edge.edge_state is not EdgeState.APPLIED:
            continue
        upstream = executions[edge.upstream_execution_id]
        if not upstream.is_terminal:
            causes.add(upstream.execution_id)
        elif edge.resolved_generation == upstream.replay_count:
            causes.add("the next life of an upstream")
        else:
            task = (TaskKind.CASCADE, upstream.execution_id)
            assert task in owed, f"{edge}: its upstream has ended and nobody will count it"
            causes.add("task")
    assert causes or execution.due_at is not None, f"{execution} waits for nobody"


def check_fired_once(before: Dump, after: Dump) -> None:
    """A decided group stays decided, unless a replay reopens it."""
    were = {MEMBERS.key_of(each): each for each in groups_as_they_stand(before)}
    for member in groups_as_they_stand(after):
        was = were.get(MEMBERS.key_of(member))
        if was is None or was.group_state is GroupState.PENDING:
            continue
        if was.generation == member.generation:
            assert member.group_state is was.group_state, f"{was} became {member}"
            assert member.satisfied_at == was.satisfied_at, f"{member} fired again"
        else:
            assert member.generation == was.generation + 1, member


def check_new_lives(before: Dump, after: Dump) -> None:
    """Who lives again does so in a flow that is open."""
    closed = {each.flow_id for each in after[FLOWS.name] if each.public_flow_state.is_terminal}
    ended = {each.execution_id for each in before.get("executions", ()) if each.is_terminal}
    for execution in after["executions"]:
        if execution.execution_id in ended and not execution.is_terminal:
            assert execution.flow_id not in closed, f"{execution} lives again in a closed flow"


def check_sibling_cancels(before: Dump, after: Dump) -> None:
    """Whoever is cancelled as a sibling worked for a group that has been decided."""
    live = {e.execution_id for e in before.get("executions", ()) if not e.is_terminal}
    decided = {
        each.execution_id
        for each in groups_as_they_stand(after)
        if each.group_state is not GroupState.PENDING
    }
    targets: defaultdict[str, set[str]] = defaultdict(set)
    for edge in after[EDGES.name]:
        targets[edge.upstream_execution_id].add(edge.downstream_execution_id)
    for execution in after["executions"]:
        key = execution.execution_id
        if key in live and execution.is_terminal and execution.cancelled_by == "sibling_quorum":
            assert targets[key] & decided, f"{execution} was cancelled for an open group"


def check_ends(dump: Dump) -> None:
    """One completion event for each end, one flow event for each end of a flow (no sweeps)."""
    ended = Counter(event.execution_id for event in dump["completion_events"])
    for execution in dump["executions"]:
        lives = execution.replay_count + execution.is_terminal
        assert ended[execution.execution_id] == lives, f"{execution} ended {ended}"
    last: dict[str, FlowEventType] = {}
    for event in dump["flow_events"]:
        again = last.get(event.flow_id)
        if event.event_type is FlowEventType.REOPENED:
            assert again not in (None, FlowEventType.REOPENED), event
        else:
            joined = (again, event.event_type) == (FlowEventType.COMPLETED, FlowEventType.FAILED)
            fresh = again in (None, FlowEventType.REOPENED)
            assert fresh or joined, f"{event} after {again}"  # joined: one that had failed before
        last[event.flow_id] = event.event_type
    for flow in dump[FLOWS.name]:
        state = flow.public_flow_state.value
        said = last.get(flow.flow_id, FlowEventType.REOPENED).value
        assert said == ("reopened" if state == "open" else state), f"{flow} was said to be {said}"
