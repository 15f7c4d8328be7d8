"""Parents learn that their children have ended, or live again."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.engine.unit.flows.deferred import Deferred
from flowfabric.engine.unit.flows.graph import Graph
from flowfabric.kernel.flow.cascade import MemberKey
from flowfabric.kernel.flow.children import cancels_children, count_child, wake_parent
from flowfabric.model.execution import Execution
from flowfabric.model.flow import TaskKind


class Children:
    """Counts the open children of parents, and wakes a parent when it has none left."""

    def __init__(self, graph: Graph, deferred: Deferred) -> None:
        self._graph = graph
        self._deferred = deferred

    async def count(self, moved: Sequence[Execution]) -> None:
        """Members of one flow have ended or live again: their parents count them. A parent that did
        not succeed cancels its open children."""
        graph, emptied = self._graph, set[MemberKey]()
        keys = [(each.flow_id or "", each.execution_id) for each in moved]
        rows = await graph.load_members(keys)
        await graph.load_members(
            (row.flow_id, row.parent_id) for row in rows.values() if row.parent_id
        )
        for key, execution in zip(keys, moved, strict=True):
            row = graph.member(*key)
            if row is None:
                continue
            if cancels_children(row, execution):
                self._deferred.add(row.flow_id, TaskKind.CANCEL_CHILDREN, row.execution_id)
            parent = graph.member(row.flow_id, row.parent_id) if row.parent_id else None
            if parent is not None:
                parent = count_child(parent, execution)
                graph.put_member(parent)
                if not parent.open_children:
                    emptied.add((parent.flow_id, parent.execution_id))
        for flow_id, parent_id in sorted(emptied):
            if not await self.wake(flow_id, parent_id):
                kind, pause = TaskKind.WAKE_PARENT, limits.TASK_RETRY_MS
                self._deferred.add(flow_id, kind, parent_id, after_ms=pause)

    async def wake(self, flow_id: str, parent_id: str) -> bool:
        """All children of a parent have ended: it goes on. False if another transaction has locked
        it."""
        found = await self._graph.locks.load_unlocked([parent_id])
        if parent_id not in found:
            return False
        parent, row = found[parent_id], await self._graph.load_member(flow_id, parent_id)
        decision = wake_parent(parent, row, self._graph.at)
        if decision is not None:
            self._graph.apply(decision, parent)
        return True
