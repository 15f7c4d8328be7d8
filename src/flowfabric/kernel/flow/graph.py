"""Dependencies one by one: an edge is staged, applied or withdrawn, a join gets its policy."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.errors import (
    CycleDetected,
    DependencyAlreadyExists,
    DependencyGroupDecided,
    DependentNotRunnable,
    EdgeInForce,
    ExecutionNotInFlow,
    InvalidDependency,
    InvalidInput,
    SelfReferencingEdge,
    StaleGraphRevision,
)
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.flow.dependent import hold_back
from flowfabric.kernel.flow.flow import refuse_closed
from flowfabric.kernel.flow.rank import Rise
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    EdgePolicy,
    EdgeRow,
    EdgeState,
    FlowRow,
    GroupState,
    MemberRow,
    Quorum,
)
from flowfabric.model.flow_results import (
    AlreadyWithdrawn,
    Applied,
    DependencyAlreadyApplied,
    PolicyAlreadySet,
    PolicySet,
    Staged,
    Withdrawn,
)
from flowfabric.model.record import replace

_PENDING = GroupState.PENDING


class StageEdge(Command[Staged], frozen=True, kw_only=True):
    """Announce a dependency: by itself it holds no child back, but its group waits for it."""

    flow_id: str
    edge_id: str
    upstream_execution_id: str
    downstream_execution_id: str
    dependency_kind: str
    data_passing_ref: str | None = None
    input_name: str | None = None
    expected_graph_revision: int | None = None  # none: whatever it is

    def needs(self, need: Needs) -> None:
        """The flow."""
        need.catalog = True
        need.flows.add(self.flow_id)


class ApplyEdge(Command[Applied | DependencyAlreadyApplied], frozen=True, kw_only=True):
    """Make a staged dependency effective."""

    flow_id: str
    edge_id: str
    upstream_execution_id: str
    downstream_execution_id: str

    def needs(self, need: Needs) -> None:
        """Its flow and both ends."""
        need.catalog = True
        need.flows.add(self.flow_id)
        need.executions.update((self.upstream_execution_id, self.downstream_execution_id))


class WithdrawEdge(Command[Withdrawn | AlreadyWithdrawn], frozen=True, kw_only=True):
    """A dependency that was staged is not to come."""

    flow_id: str
    edge_id: str
    upstream_execution_id: str
    downstream_execution_id: str

    def needs(self, need: Needs) -> None:
        """The flow and the member that waits."""
        need.catalog = True
        need.flows.add(self.flow_id)
        need.executions.add(self.downstream_execution_id)


class SetGroupPolicy(Command[PolicySet | PolicyAlreadySet], frozen=True, kw_only=True):
    """How a member's dependencies join."""

    flow_id: str
    execution_id: str
    policy: EdgePolicy

    def needs(self, need: Needs) -> None:
        """The flow."""
        need.catalog = True
        need.flows.add(self.flow_id)


def refuse_stage(
    flow: FlowRow | None,
    known: EdgeRow | None,
    ends: tuple[MemberRow | None, MemberRow | None],
    command: StageEdge,
) -> Refused | None:
    """Why an edge cannot be recorded, if it cannot; cycles are looked for afterwards."""
    if command.upstream_execution_id == command.downstream_execution_id:
        return Refused(SelfReferencingEdge, command.upstream_execution_id)
    if refusal := refuse_closed(flow, command.flow_id):
        return refusal
    expected = command.expected_graph_revision
    if flow is not None and expected is not None and flow.graph_revision != expected:
        detail = f"the revision is {flow.graph_revision}, expected {expected}"
        return Refused(StaleGraphRevision, detail, {"graph_revision": flow.graph_revision})
    for member, name in zip(ends, ("upstream", "downstream"), strict=True):
        if member is None:
            return _not_member(f"{name}_execution_id")
    if known is not None:
        fields = {
            "edge_id": known.edge_id,
            "upstream_execution_id": known.upstream_execution_id,
            "downstream_execution_id": known.downstream_execution_id,
        }
        return Refused(DependencyAlreadyExists, f"edge {known.edge_id}", fields)
    downstream = ends[1]
    if downstream is not None and downstream.group_state is not _PENDING:
        return _decided_already()
    return None


def refuse_cycle(rise: Rise, command: StageEdge) -> Refused | None:
    """Why an edge cannot be recorded, if its upstream waits for its downstream already."""
    if not rise.closes_cycle:
        return None
    path = f"{command.upstream_execution_id} already waits for {command.downstream_execution_id}"
    return Refused(CycleDetected, path, {"edge_id": command.edge_id})


def stage_edge(
    flow: FlowRow,
    downstream: MemberRow,
    rise: Rise,
    edges: Sequence[EdgeRow],
    command: StageEdge,
    at: Moment,
) -> Decision[Staged]:
    """Record an edge that was not refused, and the ranks that it raises.

    `edges`: those that lead to the downstream, where it has had one so far. That one speaks for the
    group no more.
    """
    member = rise.raised.get(downstream.execution_id, downstream)
    member = replace(
        member,
        staged=member.staged + 1,
        passing=member.passing + bool(command.data_passing_ref),
    )
    grown = _revised(flow, 1, at)
    first = [replace(each, is_sole=0) for each in edges if each.decides_alone]
    saves = (*rise.raised.values(), member, *first, new_edge(command, EdgeState.PENDING, at), grown)
    return Decision(Staged(command.edge_id, grown.graph_revision), saves=saves)


def _revised(flow: FlowRow, edges: int, at: Moment) -> FlowRow:
    """A flow whose graph has so many edges more."""
    return replace(
        flow,
        edge_count=flow.edge_count + edges,
        graph_revision=flow.graph_revision + 1,
        last_mutation_at=at.now,
    )


def _not_member(field: str) -> Refused:
    return Refused(ExecutionNotInFlow, f"{field}: is not a member", {"field": field})


def _decided_already() -> Refused:
    detail = "its group has already been decided, so no dependency can be added"
    field = "downstream_execution_id"
    return Refused(DependencyGroupDecided, f"{field}: {detail}", {"field": field})


def refuse_apply(
    flow: FlowRow | None, edge: EdgeRow | None, child: Execution | None, command: ApplyEdge
) -> Refused | None:
    """Why a staged edge cannot take effect, if it cannot."""
    if refusal := refuse_closed(flow, command.flow_id):
        return refusal
    ends = (command.upstream_execution_id, command.downstream_execution_id)
    if edge is None or (edge.upstream_execution_id, edge.downstream_execution_id) != ends:
        detail = f"edge_id: no edge {command.edge_id} between these two was staged"
        return Refused(InvalidDependency, detail, {"field": "edge_id"})
    if child is not None and not child.is_runnable and edge.edge_state is EdgeState.PENDING:
        detail = f"downstream_execution_id: it is {child.public_state.value}"
        return Refused(DependentNotRunnable, detail, {"field": "downstream_execution_id"})
    return None


def apply_edge(
    flow: FlowRow | None,
    edge: EdgeRow | None,
    member: MemberRow | None,
    ends: tuple[Execution | Refused, Execution | Refused],
    command: ApplyEdge,
    at: Moment,
) -> Decision[Applied | DependencyAlreadyApplied]:
    """A staged edge takes effect: the downstream waits for it. `member`: the downstream's row."""
    upstream, child = ends
    known = None if isinstance(child, Refused) else child
    if refusal := refuse_apply(flow, edge, known, command):
        return Decision(refusal)
    for end in (child, upstream):
        if isinstance(end, Refused):
            return Decision(end)
    if edge is None or edge.edge_state is not EdgeState.PENDING:
        return Decision(DependencyAlreadyApplied())
    if known is None or member is None or member.group_state is not _PENDING:
        return Decision(_decided_already())
    member = replace(member, staged=member.staged - 1, total=member.total + 1)
    applied = replace(edge, edge_state=EdgeState.APPLIED, applied_at=at.now)
    held = hold_back(known, f"waiting for {member.unresolved} others to end", at)
    return Decision(Applied(member.unresolved), held.execution, saves=(member, applied))


def refuse_withdraw(
    flow: FlowRow | None, edge: EdgeRow | None, command: WithdrawEdge
) -> Refused | None:
    """Why a staged edge cannot be taken back, if it cannot. That it is not there is no reason:
    the call may be a repetition."""
    if refusal := refuse_closed(flow, command.flow_id):
        return refusal
    ends = (command.upstream_execution_id, command.downstream_execution_id)
    if edge is not None and (edge.upstream_execution_id, edge.downstream_execution_id) != ends:
        detail = f"edge_id: edge {command.edge_id} is between two others"
        return Refused(InvalidDependency, detail, {"field": "edge_id"})
    if edge is not None and edge.edge_state is not EdgeState.PENDING:
        return Refused(EdgeInForce, f"edge_id: {edge.edge_id}", {"field": "edge_id"})
    return None


def withdraw_edge(
    flow: FlowRow | None,
    edge: EdgeRow | None,
    member: MemberRow | None,
    child: Execution | Refused,
    command: WithdrawEdge,
    at: Moment,
) -> Decision[Withdrawn | AlreadyWithdrawn]:
    """A staged edge goes, and its group is one smaller; whether that decides the group is asked
    afterwards. `member`: the downstream's row."""
    if refusal := refuse_withdraw(flow, edge, command):
        return Decision(refusal)
    if edge is None or flow is None:
        return Decision(AlreadyWithdrawn())
    if isinstance(child, Refused):
        return Decision(child)
    if member is None:
        return Decision(_not_member("downstream_execution_id"))
    passing = member.passing - bool(edge.data_passing_ref)
    member = replace(member, staged=member.staged - 1, passing=passing)
    fewer = _revised(flow, -1, at)
    reply = Withdrawn(command.edge_id, fewer.graph_revision, member.group_state)
    return Decision(reply, saves=(member, fewer), drops=(edge,))


def set_policy(
    flow: FlowRow | None, member: MemberRow | None, command: SetGroupPolicy
) -> Decision[PolicySet | PolicyAlreadySet]:
    """A member's dependencies join by this policy."""
    if refusal := refuse_policy(flow, member, command):
        return Decision(refusal)
    if member is None or member.policy == command.policy:
        return Decision(PolicyAlreadySet())
    return Decision(PolicySet(), saves=(replace(member, policy=command.policy),))


def refuse_policy(
    flow: FlowRow | None, member: MemberRow | None, command: SetGroupPolicy
) -> Refused | None:
    """A policy is fixed by the first edge."""
    if refusal := refuse_closed(flow, command.flow_id):
        return refusal
    if member is None:
        return _not_member("downstream_execution_id")
    if (member.staged or member.total) and member.joins != command.policy:
        detail = "policy: edge_group_policy_already_fixed: dependencies already staged"
        return Refused(InvalidInput, detail, {"field": "policy"})
    return None


def new_edge(command: StageEdge, state: EdgeState, at: Moment, *, is_sole: bool = False) -> EdgeRow:
    """The row of an edge."""
    return EdgeRow(
        command.flow_id,
        command.edge_id,
        command.upstream_execution_id,
        command.downstream_execution_id,
        command.dependency_kind,
        state,
        at.now,
        command.data_passing_ref,
        command.input_name,
        at.now if state is EdgeState.APPLIED else None,
        is_sole=int(is_sole),
    )


def refuse_quorum(policy: EdgePolicy, inbound: int, name: str) -> Refused | None:
    """Why a join could never be met, if it could not: then the graph is mistaken."""
    field = f"nodes[{name}].join"
    if not inbound:
        return Refused(InvalidInput, f"{field}: the node has no inbound edge", {"field": field})
    if isinstance(policy, Quorum) and policy.k > inbound:
        detail = f"{field}: k is {policy.k}, but there are only {inbound} inbound edges"
        return Refused(InvalidInput, detail, {"field": field})
    return None
