"""What follows in a flow when a member ends or lives again, in the same transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from flowfabric import limits
from flowfabric.engine.unit.flows.graph import AnyEdge
from flowfabric.engine.unit.flows.inputs import FlowInputs
from flowfabric.engine.unit.view import View
from flowfabric.kernel.decision import Decision
from flowfabric.kernel.execution.replay import Replay, replay
from flowfabric.kernel.flow.dependent import (
    hold_back,
    reject_input,
    set_free,
    skip,
    waits_for_others,
)
from flowfabric.kernel.flow.flow import tally
from flowfabric.kernel.flow.join import (
    EdgeEnd,
    cancels_siblings,
    count_ends,
    decided,
    edge_end,
    is_open,
    judged,
    keeps_back,
    meets_alone,
    reopened,
    sibling_reason,
)
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeAhead, EdgeState, GroupState, MemberRow, TaskKind
from flowfabric.model.record import replace
from flowfabric.model.state import TerminalOutcome
from flowfabric.stores.base import Transaction

Move = tuple[Execution, Execution]
PARENT_ENDED = "parent_ended"  # why children are cancelled
COUNTED = ("succeeded", "failed", "skipped", "group_state", "satisfied_at")


def retry_pause_ms(tries: int) -> int:
    """How long to leave something alone that somebody holds, the longer the more often."""
    return min(limits.TASK_RETRY_MS << min(tries, 10), limits.TASK_RETRY_MS_MAX)


class FlowCascade(FlowInputs):
    """Resolves edges, sets children free or skips them, and counts who has ended."""

    room = limits.CASCADE_MAX  # edges this transaction may still resolve
    resolved = 0
    moved = 0

    def __init__(self, tx: Transaction, view: View) -> None:
        super().__init__(tx, view)
        self.tries: dict[str, int] = {}  # how often the cascade of an execution was put off

    async def follow_up(self) -> None:
        """Everything that follows from members that ended, until nothing does."""
        if self.later:  # before anything else is locked, or the order would be another
            await self.hold(())
        while moves := self.view.take_member_moves():
            by_flow: defaultdict[str, list[Move]] = defaultdict(list)
            for move in moves:
                by_flow[move[1].flow_id or ""].append(move)
            await self.hold(by_flow)
            for flow_id, its_moves in by_flow.items():
                if (flow := self.flow(flow_id)) is None:
                    continue
                self.take_change(tally(flow, its_moves, self.at))
                if flow.child_count:
                    await self._count_children(its_moves)
            ended = [after for _, after in moves if after.is_terminal]
            if len(ended) < len(moves):
                await self._revive([move for move in moves if not move[1].is_terminal])
            await self.resolve_from(ended)
        await self.note_owed()

    # --- edges ---------------------------------------------------------------------------------

    async def resolve_from(self, ended: Sequence[Execution]) -> bool:
        """Resolve the edges that leave these; False when some are left for later."""
        if not ended:
            return True
        by_id = {each.execution_id: each for each in ended}
        edges: list[EdgeAhead] = []
        if self.room > 0:
            edges = await self.out_edges(sorted(by_id), limit=self.room + 1)
            if len(by_id) > 1:
                order = {key: at for at, key in enumerate(by_id)}
                edges.sort(key=lambda edge: order[edge.upstream_execution_id])  # as they ended
        is_all = 0 < self.room >= len(edges)
        if not is_all:
            for each in ended:
                self.owe(each.flow_id or "", TaskKind.CASCADE, each.execution_id)
        kept = await self.resolve_edges(edges[: max(0, self.room)], by_id)
        for upstream_id in kept:
            tries = self.tries.get(upstream_id, 0)
            flow_id, pause = by_id[upstream_id].flow_id or "", retry_pause_ms(tries)
            self.owe(flow_id, TaskKind.CASCADE, upstream_id, after_ms=pause, tries=tries)
        return is_all and not kept

    async def resolve_edges(
        self, edges: Sequence[AnyEdge], upstreams: Mapping[str, Execution]
    ) -> set[str]:
        """Resolve edges whose upstreams have ended; those whose child somebody holds are left,
        and their upstreams returned."""
        outcomes = {key: each.state.terminal_outcome for key, each in upstreams.items()}
        ends = {key: edge_end(each, self.at.now) for key, each in upstreams.items()}
        by_child: defaultdict[tuple[str, str], list[AnyEdge]] = defaultdict(list)
        sole: list[AnyEdge] = []
        for edge in edges:
            upstream_id = edge.upstream_execution_id
            if not is_open(edge, upstreams[upstream_id].replay_count):
                continue
            self.room -= 1
            key = (edge.flow_id, edge.downstream_execution_id)
            if meets_alone(edge, outcomes[upstream_id]) and not self.is_seen(*key):
                sole.append(edge)
            else:
                by_child[key].append(edge)
        kept = await self._meet(sole, ends)
        await self.members(by_child, are_open=True)
        counted = {
            key: count_ends(
                member, [outcomes[e.upstream_execution_id] for e in its_edges], self.at.now
            )
            for key, its_edges in by_child.items()
            if (member := self.member(*key)) is not None
        }
        children = await self.free(key[1] for key, each in counted.items() if each.fires)
        resolved: list[AnyEdge] = []
        decided: list[tuple[MemberRow, GroupState, Execution | None]] = []
        late: set[str] = set()
        for key, (member, fires, decisive) in counted.items():
            its_edges = by_child[key]
            if fires is not None:
                if key[1] not in children:
                    kept.update(edge.upstream_execution_id for edge in its_edges)
                    continue
                decided.append((member, fires, children[key[1]]))
                if decisive + 1 < len(its_edges):
                    # Too late to be handed on, as if they had come by themselves.
                    late.update(edge.edge_id for edge in its_edges[decisive + 1 :])
            resolved += its_edges
            self.put_member(member, COUNTED)
        self.end_edges(resolved, ends)
        self.resolved += len(resolved)
        await self.decide_children(decided, late)
        return kept

    async def _meet(self, edges: Sequence[AnyEdge], ends: Mapping[str, EdgeEnd]) -> set[str]:
        """Upstreams succeeded for whom alone others wait: those go on, and nothing need be counted.
        The upstreams of those whom somebody holds are returned."""
        children = await self.free(edge.downstream_execution_id for edge in edges)
        resolved = [edge for edge in edges if edge.downstream_execution_id in children]
        self.end_edges(resolved, ends)
        self.resolved += len(resolved)
        for child in children.values():
            if waits_for_others(child):
                self.moved += 1
                self.apply(child, set_free(child, self.at))
        if len(resolved) == len(edges):
            return set()
        held = (edge for edge in edges if edge.downstream_execution_id not in children)
        return {edge.upstream_execution_id for edge in held}

    async def decide_children(
        self,
        decided: Sequence[tuple[MemberRow, GroupState, Execution | None]],
        late: Collection[str] = (),
    ) -> None:
        """Groups were decided: each child goes on with what it is handed, or is skipped. Edges that
        came late, after the decision, hand nothing on."""
        free: list[tuple[MemberRow, Execution]] = []
        for member, fires, child in decided:
            if cancels_siblings(member):
                reason = sibling_reason(member)
                self.owe(member.flow_id, TaskKind.CANCEL_SIBLINGS, member.execution_id, reason)
            if not waits_for_others(child):
                continue
            self.moved += 1
            if fires is GroupState.IMPOSSIBLE:
                self.apply(child, skip(child, self.at))
            else:
                free.append((member, child))
        unfit = await self.hand_on([child for member, child in free if member.passing], late)
        for member, child in free:
            if child.execution_id in unfit:
                self.apply(child, reject_input(child, unfit[child.execution_id], self.at))
            elif not (child.is_interrupted and member.open_children):  # its children set it free
                self.apply(child, set_free(child, self.at))

    def apply(self, execution: Execution, decision: Decision[object]) -> None:
        """Take a decision about a member into the batch."""
        self.view.apply(execution, decision)

    # --- parents and children ------------------------------------------------------------------

    async def _count_children(self, moves: Sequence[Move]) -> None:
        """Parents learn that children ended or live again; an end that is none of success takes
        the children with it."""
        keys = [(after.flow_id or "", after.execution_id) for _, after in moves]
        await self.members(keys)
        rows = [self.member(*key) for key in keys]
        await self.members((row.flow_id, row.parent_id) for row in rows if row and row.parent_id)
        emptied: set[tuple[str, str]] = set()
        for (_, execution), row in zip(moves, rows, strict=True):
            if row is None:
                continue
            current = self.member(row.flow_id, row.execution_id) or row
            lost = execution.state.terminal_outcome is not TerminalOutcome.SUCCESS
            if execution.is_terminal and lost and current.open_children:
                self.owe(row.flow_id, TaskKind.CANCEL_CHILDREN, row.execution_id)
            parent = self.member(row.flow_id, row.parent_id) if row.parent_id else None
            if parent is not None:
                step = -1 if execution.is_terminal else 1
                parent = replace(parent, open_children=max(0, parent.open_children + step))
                self.put_member(parent)
                if not parent.open_children:
                    emptied.add((parent.flow_id, parent.execution_id))
        for flow_id, parent_id in sorted(emptied):
            if not await self.wake_parent(flow_id, parent_id):
                self.owe(flow_id, TaskKind.WAKE_PARENT, parent_id, after_ms=limits.TASK_RETRY_MS)

    async def wake_parent(self, flow_id: str, parent_id: str) -> bool:
        """All children of a parent have ended: it goes on. False when somebody holds it."""
        found = await self.free([parent_id])
        if parent_id not in found:
            return False
        await self.members([(flow_id, parent_id)])
        parent, row = found[parent_id], self.member(flow_id, parent_id)
        waits = parent is not None and parent.is_interrupted and bool(parent.open_group)
        if parent is not None and waits and row is not None and not keeps_back(row):
            self.apply(parent, set_free(parent, self.at))
        return True

    # --- replay --------------------------------------------------------------------------------

    async def _revive(self, moves: Sequence[Move]) -> None:
        """Members that live again: what was skipped waits again for what it lacked."""
        await self._end_former_lives([after for _, after in moves])
        for before, after in moves:
            if before.state.terminal_outcome is TerminalOutcome.SKIPPED:
                await self._reopen(after)
            else:
                await self._wait_again(after)
            if after.execution_id in self.view.cascading:
                await self._replay_skipped(after)

    async def _end_former_lives(self, executions: Sequence[Execution]) -> None:
        """A cancel that is still owed was for the life before. It is forgotten; that of children is
        owed to each by itself, so that it does not reach those the parent will have."""
        ids = [(each.flow_id or "", each.execution_id) for each in executions]
        kinds = (TaskKind.CANCEL_MEMBER, TaskKind.CANCEL_CHILDREN)
        keys = [(flow_id, kind, key) for flow_id, key in ids for kind in kinds]
        for flow_id, kind, parent_id in await self.forget_tasks(keys):
            if kind is TaskKind.CANCEL_CHILDREN:
                for child_id in await self.children_of(parent_id):
                    self.owe(flow_id, TaskKind.CANCEL_MEMBER, child_id, PARENT_ENDED)

    async def _wait_again(self, execution: Execution) -> None:
        """Who ended before the group was decided has not waited to its end; a decision that came
        meanwhile is made up for."""
        flow_id, key = execution.flow_id or "", execution.execution_id
        await self.members([(flow_id, key)])
        member = self.member(flow_id, key)
        if member is None or not member.total:
            return
        if member.group_state is GroupState.SATISFIED:
            if not execution.total_attempt_count:
                for excess in (await self.hand_on([execution])).values():
                    self.apply(execution, reject_input(execution, excess, self.at))
            return
        self.apply(execution, hold_back(execution, "waiting for others to end", self.at))
        if member.group_state is GroupState.IMPOSSIBLE:
            await self._reopen(execution)

    async def _reopen(self, execution: Execution) -> None:
        flow_id, key = execution.flow_id or "", execution.execution_id
        await self.members([(flow_id, key)])
        member = self.member(flow_id, key)
        if member is None:
            return
        member, opened = reopened(member, await self.in_edges([key]))
        self.put_member(member)
        for edge in opened:
            self.put_edge(edge)
        upstreams = await self.free(edge.upstream_execution_id for edge in opened)
        for held in sorted({edge.upstream_execution_id for edge in opened} - upstreams.keys()):
            self.owe(flow_id, TaskKind.CASCADE, held, after_ms=limits.TASK_RETRY_MS)
        later = {
            upstream: each
            for upstream, each in upstreams.items()
            if each is not None and each.is_terminal
        }
        again = [edge for edge in opened if edge.upstream_execution_id in later]
        await self.resolve_edges(again, later)
        current = self.member(flow_id, key) or member
        if judged(current) is GroupState.SATISFIED:  # a loss is counted by the life it is of
            await self.decide_group(current)

    async def decide_group(self, member: MemberRow) -> MemberRow:
        """Let a group go by its counters alone; its member as it stands then."""
        after = decided(member, self.at.now)
        if after is None:
            return member
        self.put_member(after)
        child = self.view.executions.get(member.execution_id)
        if isinstance(child, Execution):
            await self.decide_children([(after, after.group_state, child)])
        return after

    async def _replay_skipped(self, execution: Execution) -> None:
        """A replay that cascades gives those it made impossible another life, all the way down."""
        edges = await self.out_edges([execution.execution_id], EdgeState.IMPOSSIBLE)
        ids = sorted({edge.downstream_execution_id for edge in edges})
        await self.need(ids)
        for key in ids:
            child = self.view.executions.get(key)
            if not isinstance(child, Execution):
                continue
            if child.state.terminal_outcome is TerminalOutcome.SKIPPED:
                command = Replay(
                    execution_id=key,
                    requested_by="flow",
                    reason=f"{execution.execution_id} is replayed",
                    cascade=True,
                )
                self.view.apply(child, replay(child, command, self.at), command)
