"""Does what earlier transactions deferred: cascades that go on, cancels, parents to wake."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.engine.unit.flows.cascade import Cascade
from flowfabric.engine.unit.flows.deferred import Deferred
from flowfabric.engine.unit.flows.graph import Graph
from flowfabric.engine.unit.flows.joins import Joins
from flowfabric.kernel.execution.cancel import stop
from flowfabric.kernel.flow.deferred import FLOW_CASCADE, PARENT_ENDED, cancel_source
from flowfabric.kernel.flow.join import SIBLING_QUORUM, siblings_to_cancel, spares_shared
from flowfabric.model.flow import EdgeState, GroupState, MemberRow, TaskKind, TaskRow


class CatchUp:
    """Does deferred work, a bounded piece at a time."""

    cancels_remaining = limits.CASCADE_MAX  # members this transaction may still cancel

    def __init__(self, graph: Graph, deferred: Deferred, joins: Joins, cascade: Cascade) -> None:
        self._graph = graph
        self._view = graph.view
        self._deferred = deferred
        self._joins = joins
        self._cascade = cascade
        self.cancelled: list[str] = []  # members that this transaction has cancelled so far

    async def work_off(self, tasks: Sequence[TaskRow]) -> None:
        """Do pieces of deferred work whose flows are locked, the earliest first, as far as the
        bounds of one transaction allow. All cascades go on in one."""
        await self._go_on([each for each in tasks if each.kind is TaskKind.CASCADE])
        for task in tasks:
            if task.kind is not TaskKind.CASCADE and self._has_room:
                await self._do(task)
                await self._cascade.follow_up()

    @property
    def _has_room(self) -> bool:
        """Whether the bounds of this transaction are not reached: what is unfinished all the same
        was locked."""
        return self._joins.remaining > 0 and self.cancels_remaining > 0

    async def _do(self, task: TaskRow) -> None:
        ended = False
        match task.kind:
            case TaskKind.CANCEL_SIBLINGS:
                ended = await self._cancel_siblings(task)
            case TaskKind.CANCEL_CHILDREN:
                children = await self._graph.children_of(task.execution_id)
                ended = await self._cancel(children, PARENT_ENDED, FLOW_CASCADE)
            case TaskKind.CANCEL_MEMBER:
                source = cancel_source(task)
                ended = await self._cancel([task.execution_id], task.reason, source)
            case TaskKind.WAKE_PARENT:
                ended = await self._cascade.children.wake(task.flow_id, task.execution_id)
            case TaskKind.CASCADE:
                await self._go_on([task])
                return
        await self._deferred.record()  # before this piece's own fate, which is decided here
        if ended:
            self._deferred.done(task)
        else:
            self._deferred.put_off(task, is_locked=self._has_room)

    async def _go_on(self, tasks: Sequence[TaskRow]) -> None:
        """Go on where cascades stopped; what is left then is deferred again."""
        if not tasks:
            return
        found = await self._graph.locks.load_unlocked(each.execution_id for each in tasks)
        ended = []
        for task in tasks:
            if task.execution_id not in found:
                self._deferred.put_off(task, is_locked=self._has_room)
                continue
            self._deferred.done(task)
            self._cascade.tries[task.execution_id] = task.tries + 1
            upstream = found[task.execution_id]
            if upstream is not None and upstream.is_terminal:  # else its next end will cascade
                ended.append(upstream)
        await self._cascade.resolve_from(ended)
        await self._cascade.follow_up()

    async def _cancel_siblings(self, task: TaskRow) -> bool:
        """Cancel the upstreams that still run for a decided group."""
        member = await self._graph.load_member(task.flow_id, task.execution_id)
        if member is None or member.group_state is GroupState.PENDING:
            return True  # a replay has opened the group again: they are needed
        ids = await self.siblings_of(member)
        return await self._cancel(ids, task.reason, SIBLING_QUORUM)

    async def siblings_of(self, member: MemberRow) -> list[str]:
        """The upstreams with an open edge to this member, without those that are spared."""
        graph = self._graph
        edges = await graph.edges.leading_to([member.execution_id], EdgeState.APPLIED)
        ids = sorted({edge.upstream_execution_id for edge in edges})
        if spares_shared(member):
            others = await graph.edges.leaving(ids)
            rows = await graph.load_members((e.flow_id, e.downstream_execution_id) for e in others)
            ids = siblings_to_cancel(ids, others, rows)
        return ids

    async def _cancel(self, ids: Sequence[str], reason: str, source: str) -> bool:
        """Cancel those that have not ended; False when some are left.

        Those that have ended are stepped over, or the first page would hide the second for ever.
        """
        is_whole = True
        for start in range(0, len(ids), limits.CASCADE_MAX):
            page = ids[start : start + limits.CASCADE_MAX]
            has_room = self.cancels_remaining > 0
            found = await self._graph.locks.load_unlocked(page) if has_room else {}
            is_whole = is_whole and len(found) == len(page)
            for execution in found.values():
                if execution is None or execution.is_terminal:
                    continue
                if self.cancels_remaining <= 0:
                    return False
                self.cancels_remaining -= 1
                self.cancelled.append(execution.execution_id)
                self._view.apply(execution, stop(execution, reason, source, self._view.at))
        return is_whole
