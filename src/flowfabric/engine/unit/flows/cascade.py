"""What follows in a flow when members end or live again, in the same transaction.

Members end; their flow and their parents count them; the edges that leave them are resolved; the
groups these edges belong to are counted; members whose group is decided are released, skipped, or
rejected with their input (`joins.py`); a skip or a rejection is an end again. What is too much for
one transaction, or locked by another one, is deferred.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from flowfabric.engine.unit.flows.children import Children
from flowfabric.engine.unit.flows.deferred import Deferred
from flowfabric.engine.unit.flows.graph import Graph
from flowfabric.engine.unit.flows.joins import Joins
from flowfabric.engine.unit.flows.revival import Revival
from flowfabric.kernel.flow.deferred import retry_pause_ms
from flowfabric.kernel.flow.flow import tally
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeAhead, TaskKind

Move = tuple[Execution, Execution]  # a member that ended or lives again, before and after


class Cascade:
    """Follows the ends of members through their graph, until nothing follows."""

    def __init__(self, graph: Graph, deferred: Deferred, joins: Joins) -> None:
        self._graph = graph
        self._view = graph.view
        self._deferred = deferred
        self._joins = joins
        self.tries: dict[str, int] = {}  # how often the cascade of an execution was deferred

    @cached_property
    def children(self) -> Children:
        """Parents and their children."""
        return Children(self._graph, self._deferred)

    @cached_property
    def _revival(self) -> Revival:
        return Revival(self._graph, self._deferred, self._joins)

    async def follow_up(self) -> None:
        """Everything that follows from members that ended or live again, until nothing does."""
        await self._graph.locks.lock(())  # those left for later, before anything else is locked
        while moves := self._view.take_member_moves():
            await self._count(moves)
            if living := [move for move in moves if not move[1].is_terminal]:
                await self._revival.revive(living)
            await self.resolve_from([after for _, after in moves if after.is_terminal])
        await self._deferred.record()

    async def _count(self, moves: Sequence[Move]) -> None:
        """Flows count their members, and parents their children."""
        by_flow: defaultdict[str, list[Move]] = defaultdict(list)
        for move in moves:
            by_flow[move[1].flow_id or ""].append(move)
        await self._graph.locks.lock(by_flow)
        for flow_id, its_moves in by_flow.items():
            if (flow := self._graph.flow(flow_id)) is not None:
                self._graph.take_change(tally(flow, its_moves, self._view.at))
                if flow.child_count:
                    await self.children.count([after for _, after in its_moves])

    async def resolve_from(self, ended: Sequence[Execution]) -> bool:
        """Resolve the edges that leave these members; False when some are deferred."""
        if not ended:
            return True
        by_id = {each.execution_id: each for each in ended}
        edges = await self._edges_from(by_id)
        is_all = 0 < self._joins.remaining >= len(edges)
        if not is_all:
            for each in ended:
                self._deferred.add(each.flow_id or "", TaskKind.CASCADE, each.execution_id)
        locked = await self._joins.resolve(edges[: max(0, self._joins.remaining)], by_id)
        for upstream_id in locked:
            flow_id, tries = by_id[upstream_id].flow_id or "", self.tries.get(upstream_id, 0)
            kind, pause = TaskKind.CASCADE, retry_pause_ms(tries)
            self._deferred.add(flow_id, kind, upstream_id, after_ms=pause, tries=tries)
        return is_all and not locked

    async def _edges_from(self, ended: Mapping[str, Execution]) -> list[EdgeAhead]:
        """The open edges that leave members, in the order in which these ended: one more than may
        be resolved, where there are so many."""
        if self._joins.remaining <= 0:
            return []
        edges = await self._graph.edges.leaving(sorted(ended), limit=self._joins.remaining + 1)
        if len(ended) > 1:
            order = {key: at for at, key in enumerate(ended)}
            edges.sort(key=lambda edge: order[edge.upstream_execution_id])
        return edges
