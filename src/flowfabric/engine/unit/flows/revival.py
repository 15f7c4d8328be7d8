"""Members that a replay gives another life: what they lacked, they wait for again."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.engine.unit.flows.deferred import Deferred
from flowfabric.engine.unit.flows.graph import Graph
from flowfabric.engine.unit.flows.joins import Joins
from flowfabric.kernel.execution.replay import replay
from flowfabric.kernel.flow.deferred import PARENT_ENDED
from flowfabric.kernel.flow.dependent import hold_back
from flowfabric.kernel.flow.join import judged, reopened
from flowfabric.kernel.flow.revival import (
    OF_FORMER_LIFE,
    lacks_input,
    replays_along,
    waits_again,
)
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeState, GroupState, TaskKind
from flowfabric.model.state import TerminalOutcome


class Revival:
    """Reopens the groups of members that live again."""

    def __init__(self, graph: Graph, deferred: Deferred, joins: Joins) -> None:
        self._graph = graph
        self._view = graph.view
        self._deferred = deferred
        self._joins = joins

    async def revive(self, moves: Sequence[tuple[Execution, Execution]]) -> None:
        """Members live again, each given as it ended and as it stands: one that was skipped waits
        again for what it lacked."""
        await self._end_former_lives([after for _, after in moves])
        for before, after in moves:
            if before.state.terminal_outcome is TerminalOutcome.SKIPPED:
                await self._reopen(after)
            else:
                await self._wait_again(after)
            if after.execution_id in self._view.cascading:
                await self._replay_skipped(after)

    async def _end_former_lives(self, executions: Sequence[Execution]) -> None:
        """A cancel deferred for the life before is forgotten. That of a parent's children is
        deferred for each of them by itself, so that it does not reach the children to come."""
        ids = [(each.flow_id or "", each.execution_id) for each in executions]
        keys = [(flow_id, kind, key) for flow_id, key in ids for kind in OF_FORMER_LIFE]
        for flow_id, kind, parent_id in await self._deferred.forget(keys):
            if kind is TaskKind.CANCEL_CHILDREN:
                for child_id in await self._graph.children_of(parent_id):
                    self._deferred.add(flow_id, TaskKind.CANCEL_MEMBER, child_id, PARENT_ENDED)

    async def _wait_again(self, execution: Execution) -> None:
        """A replayed member whose group was still open waits again; if the group was decided
        meanwhile, that decision is applied now."""
        flow_id, key = execution.flow_id or "", execution.execution_id
        member = await self._graph.load_member(flow_id, key)
        if member is None:
            return
        if lacks_input(member, execution):
            await self._joins.hand_on_again(execution)
        elif waits_again(member):
            held = hold_back(execution, "waiting for others to end", self._view.at)
            self._view.apply(execution, held)
            if member.group_state is GroupState.IMPOSSIBLE:
                await self._reopen(execution)

    async def _reopen(self, execution: Execution) -> None:
        """Open what was impossible, and resolve it again for upstreams that ended another time."""
        graph, flow_id, key = self._graph, execution.flow_id or "", execution.execution_id
        member = await graph.load_member(flow_id, key)
        if member is None:
            return
        member, opened = reopened(member, await graph.edges.leading_to([key]))
        graph.put_member(member)
        for edge in opened:
            graph.edges.put(edge)
        upstreams = await graph.locks.load_unlocked(edge.upstream_execution_id for edge in opened)
        for locked in sorted({edge.upstream_execution_id for edge in opened} - upstreams.keys()):
            self._deferred.add(flow_id, TaskKind.CASCADE, locked, after_ms=limits.TASK_RETRY_MS)
        ended = {
            upstream: each
            for upstream, each in upstreams.items()
            if each is not None and each.is_terminal
        }
        again = [edge for edge in opened if edge.upstream_execution_id in ended]
        await self._joins.resolve(again, ended)
        current = graph.member(flow_id, key) or member
        if judged(current) is GroupState.SATISFIED:  # a loss is counted by the life it is of
            await self._joins.decide_by_counters(current)

    async def _replay_skipped(self, execution: Execution) -> None:
        """A replay that cascades takes along what the former life made impossible."""
        edges = await self._graph.edges.leaving([execution.execution_id], EdgeState.IMPOSSIBLE)
        children = await self._graph.locks.require(edge.downstream_execution_id for edge in edges)
        by_id = {each.execution_id: each for each in children}
        for command in replays_along(execution, children):
            child = by_id[command.execution_id]
            self._view.apply(child, replay(child, command, self._view.at), command)
