"""Retention: a flow goes as a whole, with its members, its edges and what was deferred."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.engine.unit.flows.deferred import Deferred
from flowfabric.engine.unit.flows.graph import Graph
from flowfabric.kernel.flow.cascade import AnyEdge
from flowfabric.kernel.flow.flow import purged_later, purged_with_flow
from flowfabric.model.budget import SpendScope
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeState, FlowRow, MemberRow
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import EDGES, FLOWS, MEMBERS, TOTALS


class Purge:
    """Purges a flow, a page of members in each transaction."""

    def __init__(self, graph: Graph, deferred: Deferred) -> None:
        self._graph = graph
        self._view = graph.view
        self._deferred = deferred

    async def purge(self, flow: FlowRow) -> int:
        """Purge a page of members, and with the last one the rest; how many rows that was about."""
        graph, flow_id = self._graph, flow.flow_id
        search = Search(by_key(MEMBERS), ((flow_id,),), limit=limits.CASCADE_MAX)
        page = await graph.overlay.search(search)
        found = await graph.locks.load_unlocked(each.execution_id for each in page)
        gone = [each for each in page if each.execution_id in found]
        for member in gone:
            execution = found[member.execution_id]
            if execution is not None:
                self._let_go(execution)
        await self._drop(gone)
        if len(page) < limits.CASCADE_MAX and len(gone) == len(page):
            await self._deferred.forget_flow(flow_id)
            await self._forget_totals(flow)
            self._view.rows.drop(FLOWS, [(flow_id,)])
        else:
            graph.take_change(purged_later(flow, self._view.at))
        return len(gone) + 1

    async def _forget_totals(self, flow: FlowRow) -> None:
        """What its members have spent. None of them adds to it any more."""
        whose = (SpendScope.FLOW, flow.namespace, flow.flow_id)
        for key in await self._graph.overlay.search_keys(Search(by_key(TOTALS), (whose,))):
            self._view.rows.drop_unseen(TOTALS, key)

    def _let_go(self, execution: Execution) -> None:
        self._view.put(execution, purged_with_flow(execution, self._view.at))

    async def _drop(self, members: Sequence[MemberRow]) -> None:
        """Drop members with all edges at either end of them."""
        rows, graph = self._view.rows, self._graph
        ids = [each.execution_id for each in members]
        edges: list[AnyEdge] = [*await graph.edges.leading_to(ids)]
        edges += await graph.edges.leaving(ids, EdgeState.PENDING)
        rows.take(MEMBERS, {MEMBERS.key_of(each): each for each in members})
        for key in sorted({(each.flow_id, each.edge_id) for each in edges}):
            rows.drop_unseen(EDGES, key)
        rows.drop(MEMBERS, [MEMBERS.key_of(each) for each in members])
