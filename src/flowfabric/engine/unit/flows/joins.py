"""Joins: edges are resolved, groups are counted, and members whose group is decided go on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from flowfabric import limits
from flowfabric.engine.unit.flows.deferred import Deferred
from flowfabric.engine.unit.flows.graph import COUNTED, Graph
from flowfabric.engine.unit.flows.inputs import Inputs
from flowfabric.kernel.flow.cascade import (
    AnyEdge,
    Child,
    after_decision,
    concerned,
    conclude,
    count_groups,
    is_handed_input,
    sort_ends,
)
from flowfabric.kernel.flow.dependent import reject_input, release_member, waits_for_others
from flowfabric.kernel.flow.join import (
    EdgeEnd,
    cancels_siblings,
    decided,
    edge_end,
    sibling_reason,
)
from flowfabric.model.execution import Execution
from flowfabric.model.flow import MemberRow, TaskKind


class Joins:
    """Resolves edges, and releases, skips or rejects the members whose groups that decides."""

    remaining = limits.CASCADE_MAX  # edges this transaction may still resolve
    resolved = 0  # edges so far
    moved = 0  # members that were released, skipped or rejected so far

    def __init__(self, graph: Graph, deferred: Deferred) -> None:
        self._graph = graph
        self._view = graph.view
        self._deferred = deferred

    @cached_property
    def _inputs(self) -> Inputs:
        return Inputs(self._graph)

    async def resolve(
        self, edges: Sequence[AnyEdge], upstreams: Mapping[str, Execution]
    ) -> set[str]:
        """Resolve edges whose upstreams have ended. Returns the upstreams with an edge left,
        because its child is locked by another transaction."""
        graph, at = self._graph, self._graph.at
        ends = {key: edge_end(each, at.now) for key, each in upstreams.items()}
        open_edges = sort_ends(edges, upstreams, graph.loaded)
        self.remaining -= open_edges.size
        locked = await self._release_alone(open_edges.alone, ends)
        if not open_edges.groups:
            return locked
        members = await graph.load_members(open_edges.groups, are_open=True)
        counted = count_groups(open_edges.groups, members, upstreams, at)
        deciding = [key[1] for key, each in counted.items() if each.fires]
        children = await graph.locks.load_unlocked(deciding)
        concluded = conclude(open_edges.groups, counted, children)
        for member in concluded.members:
            graph.put_member(member, COUNTED)
        self._end(concluded.resolved, ends)
        await self.decide(concluded.decided, concluded.late)
        return locked | concluded.locked

    def _end(self, edges: Sequence[AnyEdge], ends: Mapping[str, EdgeEnd]) -> None:
        self._graph.edges.end(edges, ends)
        self.resolved += len(edges)

    async def _release_alone(
        self, edges: Sequence[AnyEdge], ends: Mapping[str, EdgeEnd]
    ) -> set[str]:
        """Release children whose only dependency succeeded: their group needs no counting. Returns
        the upstreams whose child is locked by another transaction."""
        if not edges:
            return set()
        children = await self._graph.locks.load_unlocked(e.downstream_execution_id for e in edges)
        unlocked = [edge for edge in edges if edge.downstream_execution_id in children]
        self._end(unlocked, ends)
        for child in children.values():
            if waits_for_others(child):
                self.moved += 1
                self._view.apply(child, release_member(child, self._view.at))
        if len(unlocked) == len(edges):
            return set()
        return {e.upstream_execution_id for e in edges if e.downstream_execution_id not in children}

    async def decide(self, decided: Sequence[Child], late: Collection[str] = ()) -> None:
        """Groups were decided: each member is released, skipped, or rejected with its input.
        Siblings that are needed no more are cancelled later. `late`: edges that hand nothing on."""
        for member, _ in decided:
            if cancels_siblings(member):
                kind, reason = TaskKind.CANCEL_SIBLINGS, sibling_reason(member)
                self._deferred.add(member.flow_id, kind, member.execution_id, reason)
        members = concerned(decided)
        self.moved += len(members)
        handed = [execution for member, execution in members if is_handed_input(member)]
        unfit = await self._inputs.hand_on(handed, late) if handed else {}
        for member, execution in members:
            misfit = unfit.get(execution.execution_id)
            decision = after_decision(member, execution, misfit, self._view.at)
            if decision is not None:
                self._view.apply(execution, decision)

    async def decide_by_counters(self, member: MemberRow) -> MemberRow:
        """Decide a group though nothing has ended just now, if its counters do; the member as it
        stands then."""
        after = decided(member, self._view.at.now)
        if after is None:
            return member
        self._graph.put_member(after)
        execution = self._view.executions.get(member.execution_id)
        if isinstance(execution, Execution):
            await self.decide([Child(after, execution)])
        return after

    async def hand_on_again(self, execution: Execution) -> None:
        """Give a member that never ran the results that were handed on while it had ended."""
        for unfit in (await self._inputs.hand_on([execution])).values():
            self._view.apply(execution, reject_input(execution, unfit, self._view.at))
