"""Graphs built step by step, and edges resolved by hand."""

from __future__ import annotations

from typing import Any

from flowfabric.engine.unit.flows.deferred import FlowTasks
from flowfabric.errors import (
    Corruption,
    CycleDetected,
    DependencyGroupDecided,
    EdgeNotInForce,
    ExecutionNotInFlow,
    ExecutionNotTerminal,
    InvalidDependency,
)
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.flow.dependent import hold_back
from flowfabric.kernel.flow.flow import (
    AddMember,
    SetFlowTag,
    admit_member,
    flow_not_found,
    with_members,
)
from flowfabric.kernel.flow.graph import (
    ApplyEdge,
    CascadeFrom,
    ResolveEdge,
    SetGroupPolicy,
    StageEdge,
    WithdrawEdge,
    new_edge,
    refuse_apply,
    refuse_policy,
    refuse_stage,
    refuse_withdraw,
)
from flowfabric.kernel.flow.join import is_open
from flowfabric.kernel.tags import with_tags
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeState, GroupState, MemberRow
from flowfabric.model.flow_results import (
    Added,
    AlreadyMember,
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
from flowfabric.model.record import replace
from flowfabric.stores.base import Corrupt


class FlowBuilding(FlowTasks):
    """One member, one edge, one policy at a time."""

    def execution(self, execution_id: str) -> Execution | Refused:
        """An execution that a command names."""
        found = self.view.executions.get(execution_id)
        if isinstance(found, Corrupt):
            return Refused(Corruption, f"execution {execution_id}: {found.detail}")
        return not_found(execution_id) if found is None else found

    # --- one by one ----------------------------------------------------------------------------

    async def _add(self, command: AddMember) -> Any:
        execution = self.execution(command.execution_id)
        flow = self.flow(command.flow_id)
        if flow is None:
            return flow_not_found(command.flow_id)
        if isinstance(execution, Refused):
            return execution
        if execution.flow_id == command.flow_id:
            return AlreadyMember(command.execution_id, flow.node_count)
        refusal = admit_member(flow, execution, command)
        if refusal is not None:
            return refusal
        # Its own purge time is no more: a member goes with its flow.
        joined = replace(
            execution, flow_id=command.flow_id, purge_at=None, last_mutation_at=self.at.now
        )
        self.apply(execution, Decision(None, joined))
        self.put_member(MemberRow(command.flow_id, command.execution_id, command.node_name))
        flow = self.take_change(with_members(flow, [joined], self.at))
        return Added(command.execution_id, flow.node_count)

    async def _stage(self, command: StageEdge) -> Any:
        flow_id = command.flow_id
        ends = (command.upstream_execution_id, command.downstream_execution_id)
        await self.members((flow_id, each) for each in ends)
        upstream, downstream = (self.member(flow_id, each) for each in ends)
        flow, known = self.flow(flow_id), await self.edge(flow_id, command.edge_id)
        if refusal := refuse_stage(flow, known, (upstream, downstream), command):
            return refusal
        assert flow is not None and upstream is not None and downstream is not None  # noqa: S101, PT018 - refused above
        if not await self._raise_rank(downstream, upstream):
            path = f"{ends[0]} already waits for {ends[1]}"
            return Refused(CycleDetected, path, {"edge_id": command.edge_id})
        downstream = self.member(flow_id, ends[1]) or downstream
        if downstream.size == 1:
            await self._not_sole(downstream.execution_id)
        passing = downstream.passing + bool(command.data_passing_ref)
        self.put_member(replace(downstream, staged=downstream.staged + 1, passing=passing))
        self.add_edge(new_edge(command, EdgeState.PENDING, self.at))
        grown = replace(
            flow,
            edge_count=flow.edge_count + 1,
            graph_revision=flow.graph_revision + 1,
            last_mutation_at=self.at.now,
        )
        self.put_flow(grown)
        return Staged(command.edge_id, grown.graph_revision)

    async def _raise_rank(self, start: MemberRow, upstream: MemberRow) -> bool:
        """Every edge leads upwards: raise whoever stands too low; False if that never ends."""
        raised: dict[str, MemberRow] = {}
        ranks = {start.execution_id: upstream.rank + 1} if start.rank <= upstream.rank else {}
        while ranks:
            await self.members((start.flow_id, key) for key in ranks)
            for key, rank in ranks.items():
                member = self.member(start.flow_id, key)
                if member is not None:
                    raised[key] = replace(member, rank=max(rank, member.rank))
            if upstream.execution_id in raised:
                return False
            following: dict[str, int] = {}
            for edge in await self.out_edges(sorted(ranks), None):  # a replay opens any again
                least = raised[edge.upstream_execution_id].rank + 1
                child = edge.downstream_execution_id
                following[child] = max(following.get(child, 0), least)
            await self.members((start.flow_id, key) for key in following)
            ranks = {
                key: rank
                for key, rank in following.items()
                if rank > self._rank(start, key, raised)
            }
        for member in raised.values():
            self.put_member(member)
        return True

    def _rank(self, start: MemberRow, key: str, raised: dict[str, MemberRow]) -> int:
        member = raised.get(key) or self.member(start.flow_id, key)
        return 0 if member is None else member.rank

    async def _apply_edge(self, command: ApplyEdge) -> Any:
        flow_id = command.flow_id
        child = self.execution(command.downstream_execution_id)
        upstream = self.execution(command.upstream_execution_id)
        edge = await self.edge(flow_id, command.edge_id)
        known = child if isinstance(child, Execution) else None
        if refusal := refuse_apply(self.flow(flow_id), edge, known, command):
            return refusal
        if isinstance(child, Refused) or isinstance(upstream, Refused) or edge is None:
            return child if isinstance(child, Refused) else upstream
        if edge.edge_state is not EdgeState.PENDING:
            return DependencyAlreadyApplied()
        await self.members([(flow_id, child.execution_id)])
        member = self.member(flow_id, child.execution_id)
        if member is None or member.group_state is not GroupState.PENDING:
            detail = "downstream_execution_id: its group is decided"
            return Refused(DependencyGroupDecided, detail, {"field": "downstream_execution_id"})
        member = replace(member, staged=member.staged - 1, total=member.total + 1)
        self.put_member(member)
        applied = replace(edge, edge_state=EdgeState.APPLIED, applied_at=self.at.now)
        self.put_edge(applied)
        detail = f"waiting for {member.size - member.resolved} others to end"
        self.apply(child, hold_back(child, detail, self.at))
        if upstream.is_terminal:
            await self.resolve_edges([applied], {upstream.execution_id: upstream})
            member = self.member(flow_id, child.execution_id) or member
        return Applied(member.size - member.resolved)

    async def _not_sole(self, execution_id: str) -> None:
        """A member gets a second edge: its first one does not speak for the group any more."""
        for edge in await self.in_edges([execution_id]):
            if edge.is_sole:
                self.put_edge(replace(edge, is_sole=0))

    async def _withdraw(self, command: WithdrawEdge) -> Any:
        flow_id, child_id = command.flow_id, command.downstream_execution_id
        flow, edge = self.flow(flow_id), await self.edge(flow_id, command.edge_id)
        if refusal := refuse_withdraw(flow, edge, command):
            return refusal
        if edge is None or flow is None:
            return AlreadyWithdrawn()
        if isinstance(child := self.execution(child_id), Refused):
            return child
        await self.members([(flow_id, child_id)])
        member = self.member(flow_id, child_id)
        if member is None:
            return Refused(ExecutionNotInFlow, "downstream_execution_id: is not a member")
        passing = member.passing - bool(edge.data_passing_ref)
        member = replace(member, staged=member.staged - 1, passing=passing)
        self.put_member(member)
        self.drop_edge(edge)
        fewer = replace(
            flow,
            edge_count=flow.edge_count - 1,
            graph_revision=flow.graph_revision + 1,
            last_mutation_at=self.at.now,
        )
        self.put_flow(fewer)
        member = await self.decide_group(member)
        return Withdrawn(command.edge_id, fewer.graph_revision, member.group_state)

    async def _set_policy(self, command: SetGroupPolicy) -> Any:
        await self.members([(command.flow_id, command.execution_id)])
        member = self.member(command.flow_id, command.execution_id)
        if refusal := refuse_policy(self.flow(command.flow_id), member, command):
            return refusal
        if member is None or member.policy == command.policy:
            return PolicyAlreadySet()
        self.put_member(replace(member, policy=command.policy))
        return PolicySet()

    def _tag(self, command: SetFlowTag) -> Any:
        flow = self.flow(command.flow_id)
        if flow is None:
            return flow_not_found(command.flow_id)
        tags = with_tags(flow.tags, command.tags)
        if isinstance(tags, Refused):
            return tags
        self.put_flow(replace(flow, tags=tags, last_mutation_at=self.at.now))
        return None

    # --- resolving by hand ---------------------------------------------------------------------

    async def _resolve(self, command: ResolveEdge) -> Any:
        edge = await self.edge(command.flow_id, command.edge_id)
        ends = (command.upstream_execution_id, command.downstream_execution_id)
        if edge is None or (edge.upstream_execution_id, edge.downstream_execution_id) != ends:
            detail = f"edge_id: no edge {command.edge_id} between these two"
            return Refused(InvalidDependency, detail, {"field": "edge_id"})
        upstream = self.execution(command.upstream_execution_id)
        if isinstance(upstream, Refused):
            return upstream
        if edge.edge_state is EdgeState.PENDING:
            return Refused(EdgeNotInForce, f"edge_id: {edge.edge_id}", {"field": "edge_id"})
        if not is_open(edge, upstream.replay_count):
            return DependencyResolved("already_resolved")
        if not upstream.is_terminal:
            detail = (
                f"upstream_execution_id: it is {upstream.public_state.value}, it must have ended"
            )
            return Refused(ExecutionNotTerminal, detail, {"field": "upstream_execution_id"})
        await self.members([(command.flow_id, ends[1])])
        before = self.member(command.flow_id, ends[1])
        await self.resolve_edges([edge], {ends[0]: upstream})
        after = self.member(command.flow_id, ends[1])
        child = self.view.executions.get(ends[1])
        was_open = before is not None and before.group_state is GroupState.PENDING
        if after is None or not was_open:
            return DependencyResolved("already_fired")
        return DependencyResolved(
            after.group_state.value,
            data_injected=ends[1] in self.view.changes.payloads,
            child_skipped=isinstance(child, Execution)
            and after.group_state is GroupState.IMPOSSIBLE
            and child.is_terminal,
        )

    async def _cascade_from(self, command: CascadeFrom) -> Any:
        execution = self.execution(command.execution_id)
        if isinstance(execution, Refused):
            return execution
        if not execution.is_terminal or execution.flow_id is None:
            return CascadeOutcome(0, 0, True)
        resolved, moved = self.resolved, self.moved
        is_whole = await self.resolve_from([execution])
        await self.follow_up()
        return CascadeOutcome(self.resolved - resolved, self.moved - moved, is_whole)
