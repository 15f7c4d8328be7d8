"""What is owed to flows: continued cascades, cancels, and the purge of a whole flow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowfabric import limits
from flowfabric.engine.unit.due import Due
from flowfabric.engine.unit.flows.cascade import PARENT_ENDED, FlowCascade, retry_pause_ms
from flowfabric.engine.unit.flows.graph import AnyEdge
from flowfabric.kernel.execution.cancel import stop
from flowfabric.kernel.flow.cancel import FLOW_CANCEL
from flowfabric.kernel.flow.join import SIBLING_QUORUM, spares_shared
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    EdgeState,
    FlowRow,
    GroupState,
    MemberRow,
    TaskKind,
    TaskRow,
)
from flowfabric.model.record import replace
from flowfabric.stores.tables import EDGES, FLOW_TASKS, FLOWS, MEMBERS

FLOW_CASCADE = "flow_cascade"


class FlowTasks(FlowCascade):
    """Does what earlier transactions left, a bounded piece at a time."""

    cancel_room = limits.CASCADE_MAX  # members this transaction may still cancel

    async def hold_due(self, executions: Iterable[Execution], due: Due) -> None:
        """Hold every flow this look at what is due may touch, at once and so in one order."""
        members = {each.flow_id for each in executions if each.flow_id is not None}
        await self.hold(members | {key[0] for key in (*due.of(FLOW_TASKS), *due.of(FLOWS))})

    async def move_due(self, due: Due) -> int:
        """What is due for flows that are held; how much was done."""
        now, tasks, flows = self.at.now, due.of(FLOW_TASKS), due.of(FLOWS)
        if not tasks and not flows:
            return 0
        found = await self.tx.rows(FLOW_TASKS, sorted(tasks)) if tasks else {}
        self.view.rows.take(FLOW_TASKS, found)
        ready = [found[key] for key in tasks if key in found and found[key].due_at <= now]
        done = len(ready)
        await self._cascade([each for each in ready if each.kind is TaskKind.CASCADE])
        for task in ready:  # earliest first
            if task.kind is not TaskKind.CASCADE and self._has_room:
                await self._do(task)
                await self.follow_up()
        for key in flows:
            flow = self.flow(key[0])
            if flow is not None and flow.due_at is not None and flow.due_at <= now:
                done += await self._purge(flow)
        return done

    @property
    def _has_room(self) -> bool:
        return self.room > 0 and self.cancel_room > 0

    async def _do(self, task: TaskRow) -> None:
        ended = False
        match task.kind:
            case TaskKind.CANCEL_SIBLINGS:
                ended = await self._cancel_siblings(task)
            case TaskKind.CANCEL_CHILDREN:
                children = await self.children_of(task.execution_id)
                ended = await self._cancel(children, PARENT_ENDED, FLOW_CASCADE)
            case TaskKind.CANCEL_MEMBER:
                source = FLOW_CASCADE if task.reason == PARENT_ENDED else FLOW_CANCEL
                ended = await self._cancel([task.execution_id], task.reason, source)
            case TaskKind.WAKE_PARENT:
                ended = await self.wake_parent(task.flow_id, task.execution_id)
            case TaskKind.CASCADE:
                await self._cascade([task])
                return
        await self.note_owed()  # before this task's own fate, which is decided here
        key = FLOW_TASKS.key_of(task)
        if ended:
            self.view.rows.drop(FLOW_TASKS, [key])
        else:
            self._put_off(task)

    def _put_off(self, task: TaskRow) -> None:
        """Somebody holds what it needs, or it was too much at once: again soon."""
        if self._has_room:
            due, tries = self.at.now + retry_pause_ms(task.tries), task.tries + 1
        else:
            due, tries = self.at.now, task.tries
        self.view.rows.put(FLOW_TASKS, replace(task, tries=tries, due_at=due))

    async def _cascade(self, tasks: Sequence[TaskRow]) -> None:
        """Go on where cascades stopped, all in one: what is left then is owed again."""
        if not tasks:
            return
        found = await self.free(each.execution_id for each in tasks)
        ended = []
        for task in tasks:
            if task.execution_id not in found:
                self._put_off(task)
                continue
            self.view.rows.drop(FLOW_TASKS, [FLOW_TASKS.key_of(task)])
            self.tries[task.execution_id] = task.tries + 1
            upstream = found[task.execution_id]
            if upstream is not None and upstream.is_terminal:  # else its next end will tell
                ended.append(upstream)
        await self.resolve_from(ended)
        await self.follow_up()

    async def _cancel_siblings(self, task: TaskRow) -> bool:
        """Those who still work for a decided group are not needed any more."""
        await self.members([(task.flow_id, task.execution_id)])
        member = self.member(task.flow_id, task.execution_id)
        if member is None or member.group_state is GroupState.PENDING:
            return True  # a replay has opened the group again: they are needed
        edges = await self.in_edges([task.execution_id], EdgeState.APPLIED)
        ids = sorted({edge.upstream_execution_id for edge in edges})
        if spares_shared(member):
            shared = await self._awaited_elsewhere(ids)
            ids = [key for key in ids if key not in shared]
        return await self._cancel(ids, task.reason, SIBLING_QUORUM)

    async def _awaited_elsewhere(self, ids: Sequence[str]) -> set[str]:
        """Those for whom a group that is not decided still waits."""
        edges = await self.out_edges(ids)
        await self.members((edge.flow_id, edge.downstream_execution_id) for edge in edges)
        return {
            edge.upstream_execution_id
            for edge in edges
            if (member := self.member(edge.flow_id, edge.downstream_execution_id)) is not None
            and member.group_state is GroupState.PENDING
        }

    async def _cancel(self, ids: Sequence[str], reason: str, source: str) -> bool:
        """Cancel those that have not ended; False when some are left.

        Those that have ended are stepped over, or the first page would hide the second for ever.
        """
        is_whole = True
        for start in range(0, len(ids), limits.CASCADE_MAX):
            page = ids[start : start + limits.CASCADE_MAX]
            found = await self.free(page) if self.cancel_room > 0 else {}
            is_whole = is_whole and len(found) == len(page)
            for execution in found.values():
                if execution is None or execution.is_terminal:
                    continue
                if self.cancel_room <= 0:
                    return False
                self.cancel_room -= 1
                self.apply(execution, stop(execution, reason, source, self.at))
        return is_whole

    # --- retention -----------------------------------------------------------------------------

    async def _purge(self, flow: FlowRow) -> int:
        """A flow goes as a whole: a page of members, and with the last one the rest."""
        await self.flush()
        flow_id = flow.flow_id
        page = await self.tx.rows_by(MEMBERS, "flow_id", [flow_id], limit=limits.CASCADE_MAX)
        found = await self.free(each.execution_id for each in page)
        gone = [each for each in page if each.execution_id in found]
        for member in gone:
            execution = found[member.execution_id]
            if execution is not None:
                self._let_be_purged(execution)
        await self._forget(flow_id, gone)
        if len(page) < limits.CASCADE_MAX and len(gone) == len(page):
            await self._forget_owed(flow_id)
            self.view.rows.drop(FLOWS, [(flow_id,)])
        else:
            self.put_flow(replace(flow, due_at=self.at.now + limits.TASK_RETRY_MS))
        return len(gone) + 1

    def _let_be_purged(self, execution: Execution) -> None:
        key = execution.execution_id
        gone = replace(execution, purge_at=self.at.now, last_mutation_at=self.at.now)
        self.view.executions[key] = self.view.changes.updated[key] = gone

    async def _forget_owed(self, flow_id: str) -> None:
        """Nobody is left to whom anything could be owed."""
        found = await self.tx.peek_rows(FLOW_TASKS, [(flow_id,)])
        self.view.rows.take(FLOW_TASKS, found)
        self.view.rows.drop(FLOW_TASKS, sorted(found))

    async def _forget(self, flow_id: str, members: list[MemberRow]) -> None:
        rows = self.view.rows
        ids = [each.execution_id for each in members]
        edges: list[AnyEdge] = [*await self.in_edges(ids)]
        edges += await self.out_edges(ids, EdgeState.PENDING)
        rows.take(MEMBERS, {MEMBERS.key_of(each): each for each in members})
        for key in sorted({(each.flow_id, each.edge_id) for each in edges}):
            rows.drop_unseen(EDGES, key)
        rows.drop(MEMBERS, [MEMBERS.key_of(each) for each in members])
