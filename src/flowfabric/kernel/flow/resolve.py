"""Edges resolved by hand, as the cascade does by itself."""

from __future__ import annotations

from flowfabric.errors import EdgeNotInForce, ExecutionNotTerminal, InvalidDependency
from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.flow.join import is_open
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeRow, EdgeState, GroupState, MemberRow
from flowfabric.model.flow_results import CascadeOutcome, DependencyResolved


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


def answered_unresolved(
    edge: EdgeRow | None, upstream: Execution | Refused, command: ResolveEdge
) -> DependencyResolved | Refused | None:
    """The answer where there is nothing to resolve: the edge was resolved before, or is refused.
    None: it is open and its upstream has ended."""
    ends = (command.upstream_execution_id, command.downstream_execution_id)
    if edge is None or (edge.upstream_execution_id, edge.downstream_execution_id) != ends:
        detail = f"edge_id: no edge {command.edge_id} between these two"
        return Refused(InvalidDependency, detail, {"field": "edge_id"})
    if isinstance(upstream, Refused):
        return upstream
    if edge.edge_state is EdgeState.PENDING:
        return Refused(EdgeNotInForce, f"edge_id: {edge.edge_id}", {"field": "edge_id"})
    if not is_open(edge, upstream.replay_count):
        return DependencyResolved("already_resolved")
    if not upstream.is_terminal:
        field = "upstream_execution_id"
        detail = f"{field}: it is {upstream.public_state.value}, it must have ended"
        return Refused(ExecutionNotTerminal, detail, {"field": field})
    return None


def answered_resolved(
    before: MemberRow | None, after: MemberRow | None, child: Execution | None, *, is_handed: bool
) -> DependencyResolved:
    """What resolving an edge did to its downstream. `is_handed`: it got another input."""
    if before is None or after is None or before.group_state is not GroupState.PENDING:
        return DependencyResolved("already_fired")
    is_impossible = after.group_state is GroupState.IMPOSSIBLE
    return DependencyResolved(
        after.group_state.value,
        data_injected=is_handed,
        child_skipped=is_impossible and child is not None and child.is_terminal,
    )
