"""Graphs: no execution may wait for itself, however far round."""

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
from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.flow.flow import refuse_closed
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
    CascadeOutcome,
    DependencyAlreadyApplied,
    DependencyResolved,
    PolicyAlreadySet,
    PolicySet,
    Staged,
    Withdrawn,
)


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


class ResolveEdge(Command[DependencyResolved], frozen=True, kw_only=True):
    """Count an upstream's end for one edge, as the cascade does by itself."""

    flow_id: str
    edge_id: str
    upstream_execution_id: str
    downstream_execution_id: str

    def needs(self, need: Needs) -> None:
        """Its flow and both ends."""
        need.catalog = True
        need.flows.add(self.flow_id)
        need.executions.update((self.upstream_execution_id, self.downstream_execution_id))


class CascadeFrom(ExecutionCommand[CascadeOutcome], frozen=True, kw_only=True):
    """Resolve everything that follows from the end of one execution."""

    def needs(self, need: Needs) -> None:
        """The execution, and its flow."""
        need.executions.add(self.execution_id)
        need.catalog = True
        need.flows_of.add(self.execution_id)


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
            field = f"{name}_execution_id"
            return Refused(ExecutionNotInFlow, f"{field}: is not a member", {"field": field})
    if known is not None:
        fields = {
            "edge_id": known.edge_id,
            "upstream_execution_id": known.upstream_execution_id,
            "downstream_execution_id": known.downstream_execution_id,
        }
        return Refused(DependencyAlreadyExists, f"edge {known.edge_id}", fields)
    downstream = ends[1]
    if downstream is not None and downstream.group_state is not GroupState.PENDING:
        detail = f"downstream_execution_id: its group is {downstream.group_state.value}"
        return Refused(DependencyGroupDecided, detail, {"field": "downstream_execution_id"})
    return None


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


def refuse_policy(
    flow: FlowRow | None, member: MemberRow | None, command: SetGroupPolicy
) -> Refused | None:
    """A policy is fixed by the first edge."""
    if refusal := refuse_closed(flow, command.flow_id):
        return refusal
    if member is None:
        field = "downstream_execution_id"
        return Refused(ExecutionNotInFlow, f"{field}: is not a member", {"field": field})
    if (member.staged or member.total) and member.joins != command.policy:
        detail = "policy: edge_group_policy_already_fixed: dependencies already staged"
        return Refused(InvalidInput, detail, {"field": "policy"})
    return None


def ranks_of(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int] | Refused:
    """How far each node is from the start, or a node that waits for itself."""
    place = {name: at for at, name in enumerate(names)}
    waits_for, latest = [0] * len(place), [-1] * len(place)
    ends, earlier = [], []  # where an edge leads, and the edge before it from the same node
    for at, (upstream, downstream) in enumerate(edges):
        start, end = place[upstream], place[downstream]
        waits_for[end] += 1
        ends.append(end)
        earlier.append(latest[start])
        latest[start] = at
    ranks: dict[str, int] = {}
    level, rank = [at for at, number in enumerate(waits_for) if not number], 0
    while level:
        ranks.update((names[at], rank) for at in level)
        rank += 1
        behind = []
        for at in level:
            edge = latest[at]
            while edge >= 0:
                end = ends[edge]
                waits_for[end] -= 1
                if not waits_for[end]:  # the last it waits for is as far as can be
                    behind.append(end)
                edge = earlier[edge]
        level = behind
    if len(ranks) == len(place):
        return ranks
    around = _cycle({name for name in names if name not in ranks}, edges)
    path = " → ".join(around)
    return Refused(CycleDetected, f"edges: {path}", {"field": "edges", "nodes": around})


def _cycle(waiting: set[str], edges: Sequence[tuple[str, str]]) -> list[str]:
    """One cycle among nodes each of which waits for another of them."""
    upstream = {child: name for name, child in edges if name in waiting and child in waiting}
    name = min(waiting)
    seen: dict[str, int] = {}
    path: list[str] = []
    while name not in seen:
        seen[name] = len(path)
        path.append(name)
        name = upstream[name]
    around = path[seen[name] :][::-1]
    return [*around, around[0]]


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
    """A join that could never be met is a mistake of whoever wrote it."""
    field = f"nodes[{name}].join"
    if not inbound:
        return Refused(InvalidInput, f"{field}: the node has no inbound edge", {"field": field})
    if isinstance(policy, Quorum) and policy.k > inbound:
        detail = f"{field}: k is {policy.k}, but there are only {inbound} inbound edges"
        return Refused(InvalidInput, detail, {"field": field})
    return None
