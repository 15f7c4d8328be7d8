"""Commands about flows, decided inside one transaction."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from flowfabric import limits
from flowfabric.engine.flow_building import CascadeFrom, FlowBuilding, ResolveEdge
from flowfabric.errors import (
    Corruption,
    FlowConflict,
    IdempotencyConflict,
    NotFound,
)
from flowfabric.kernel.cancel import Cancel, stop
from flowfabric.kernel.complete import Complete
from flowfabric.kernel.create import CreateExecution
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.dependent import WaitChildren, wait_children
from flowfabric.kernel.fail import Fail
from flowfabric.kernel.fence import refuse_unless_owner
from flowfabric.kernel.flow import (
    AddMember,
    CreateFlow,
    SetFlowTag,
    cancelled_flow,
    create_flow,
    flow_not_found,
    is_taken,
    refuse_closed,
    with_members,
)
from flowfabric.kernel.flow_cancel import (
    FLOW_CANCEL,
    AckCancelMember,
    CancelFlow,
    bar,
    requested,
    stays_owed,
    widens,
)
from flowfabric.kernel.graph import (
    ApplyEdge,
    SetGroupPolicy,
    StageEdge,
    WithdrawEdge,
)
from flowfabric.kernel.replay import Replay
from flowfabric.kernel.submit_flow import (
    SpawnChildren,
    SubmitFlow,
    refuse_budgets,
    rows_of,
)
from flowfabric.model.execution import Execution, IdempotencyRecord
from flowfabric.model.flow import (
    FlowRow,
    MemberRow,
    TaskKind,
)
from flowfabric.model.flow_results import (
    AlreadyTerminal,
    CancellationScheduled,
    FlowCancelled,
    FlowCreated,
    FlowDuplicate,
    FlowSubmitted,
    Spawned,
)
from flowfabric.model.record import replace
from flowfabric.model.results import Created, Duplicate
from flowfabric.stores.base import Corrupt
from flowfabric.stores.tables import FLOW_TASKS, MEMBERS

CHILDREN = "children"  # the kind of a flow that began with a spawn


_REPORTING = frozenset((Complete, Fail))  # decided without a look at their flows
_ENDING = _REPORTING | {Cancel, Replay}
HELD_LATER_FROM = 50  # so many commands at once
_RULES: dict[type, str] = {
    CreateFlow: "_create",
    SubmitFlow: "_submit",
    AddMember: "_add",
    StageEdge: "_stage",
    ApplyEdge: "_apply_edge",
    WithdrawEdge: "_withdraw",
    SetGroupPolicy: "_set_policy",
    SetFlowTag: "_tag",
    ResolveEdge: "_resolve",
    CascadeFrom: "_cascade_from",
    CancelFlow: "_cancel_flow",
    AckCancelMember: "_acknowledge",
    SpawnChildren: "_spawn",
    WaitChildren: "_wait_children",
}
FLOW_COMMANDS = frozenset(_RULES)
_BY_MEMBER = _ENDING | {SpawnChildren, WaitChildren, CascadeFrom}  # their flow is that of a member
_ABOUT_FLOWS = FLOW_COMMANDS | _BY_MEMBER


def executions_in(command: Any) -> Iterable[str]:
    """The executions a command about flows is about."""
    match command:
        case ApplyEdge() | ResolveEdge():
            return (command.upstream_execution_id, command.downstream_execution_id)
        case WithdrawEdge():
            return (command.downstream_execution_id,)
        case AddMember() | CascadeFrom() | SpawnChildren() | WaitChildren() | AckCancelMember():
            return (command.execution_id,)
        case _:
            return ()


def keys_in(command: Any) -> Iterable[tuple[str, str]]:
    """The idempotency keys a command about flows uses."""
    match command:
        case SubmitFlow(idempotency_key=str(key)):
            return ((command.flow.namespace, key),)
        case SpawnChildren():
            return tuple(
                (each.route.namespace, each.idempotency_key)
                for each in command.children
                if each.idempotency_key is not None
            )
        case _:
            return ()


class FlowBook(FlowBuilding):
    """Flows as one transaction sees and changes them."""

    async def members_to_load(self, commands: Iterable[Any]) -> set[str]:
        """Members of the flows that are to be cancelled: they are held before their flow."""
        flows = [(each.flow_id,) for each in commands if type(each) is CancelFlow]
        if not flows:
            return set()
        return {key[1] for key in await self.tx.peek_rows(MEMBERS, sorted(flows))}

    async def prepare(self, commands: Sequence[Any]) -> None:
        """Hold the flows that the commands are about, in one order.

        Many ends are written before their flows are held: what they did needs no flow, and others
        go on with its graph meanwhile.
        """
        kinds = set(map(type, commands))
        if kinds.isdisjoint(_ABOUT_FLOWS):
            return
        wanted = self._flows_of(commands)
        if len(commands) >= HELD_LATER_FROM and kinds <= _REPORTING:
            self.later = wanted
        elif wanted:
            await self.hold(wanted)

    def _flows_of(self, commands: Sequence[Any]) -> set[str]:
        executions = self.view.executions
        wanted: set[str] = set()
        for command in commands:
            kind = type(command)
            if kind in _BY_MEMBER:
                execution = executions.get(command.execution_id)
                if isinstance(execution, Execution):
                    if execution.flow_id is not None:
                        wanted.add(execution.flow_id)
                    elif kind is SpawnChildren:
                        wanted.add(_flow_of_children(execution))
            elif kind in FLOW_COMMANDS and (kind is not SubmitFlow or command.is_named):
                wanted.add(command.flow_id)
        return wanted

    async def decide(self, command: Any) -> Any:
        """The reply to a command about flows; its changes join the batch."""
        reply = getattr(self, _RULES[type(command)])(command)
        if inspect.isawaitable(reply):
            reply = await reply
        await self.note_owed()
        return reply

    # --- whole graphs --------------------------------------------------------------------------

    def _create(self, command: CreateFlow) -> Any:
        made = create_flow(self.flow(command.flow_id), command, self.at)
        if not isinstance(made, FlowRow):
            return made
        self.put_flow(made)
        return FlowCreated(made.flow_id)

    def _submit(self, command: SubmitFlow) -> Any:
        if (before := self._submitted_before(command)) is not None:
            return before
        decisions = [self.view.preview(node.create) for node in command.nodes]
        for node, decision in zip(command.nodes, decisions, strict=True):
            if isinstance(decision.reply, Refused):
                detail = f"nodes[{node.name}]: {decision.reply.detail}"
                return replace(decision.reply, detail=detail)
        made = create_flow(self.flow(command.flow_id), command.flow, self.at)
        if not isinstance(made, FlowRow):
            detail = f"flow_id: there is a flow {command.flow_id} already"
            return Refused(FlowConflict, detail, {"field": "flow_id"})
        for node, decision in zip(command.nodes, decisions, strict=True):
            self.view.take_created(node.create, decision)
        executions = [each.execution for each in decisions if each.execution is not None]
        flow = with_members(made, executions, self.at).flow
        self.put_flow(replace(flow, edge_count=len(command.edges)))
        self.add_graph(*rows_of(command, self.at))
        if command.idempotency_key is not None:
            self._remember_key(command)
        ids = {node.name: node.create.execution_id for node in command.nodes}
        return FlowSubmitted(command.flow_id, ids)

    def _submitted_before(self, command: SubmitFlow) -> FlowDuplicate | Refused | None:
        known = self.view.keys.get((command.flow.namespace, command.idempotency_key or ""))
        if known is None or self.at.now >= known.expires_at:
            return None
        if known.fingerprint != command.fingerprint:
            detail = f"idempotency_key: was used for another graph, flow {known.execution_id}"
            return Refused(IdempotencyConflict, detail, {"field": "idempotency_key"})
        return FlowDuplicate(known.execution_id)

    def _remember_key(self, command: SubmitFlow) -> None:
        key = (command.flow.namespace, command.idempotency_key or "")
        until = self.at.now + command.dedup_window_ms
        record = IdempotencyRecord(*key, command.flow_id, command.fingerprint, until)
        self.view.take_key(key, record)

    # --- cancelling ----------------------------------------------------------------------------

    async def _cancel_flow(self, command: CancelFlow) -> Any:
        flow = self.flow(command.flow_id)
        if flow is None:
            return flow_not_found(command.flow_id)
        await self.flush()
        ids = sorted(key[1] for key in await self.tx.peek_rows(MEMBERS, [(flow.flow_id,)]))
        is_closed = refuse_closed(flow, flow.flow_id) is not None
        if is_closed and not widens(flow, command.policy):
            return await self._cancelled_before(flow, command, tuple(ids))
        await self.need(ids)
        members = [
            each for key in ids if isinstance(each := self.view.executions.get(key), Execution)
        ]
        taken = [each for each in members if is_taken(command.policy, each)]
        if is_closed and not taken:
            return await self._cancelled_before(flow, command, tuple(ids))
        self.view.note_event(requested(flow, command, len(ids), self.at))
        self.take_change(cancelled_flow(flow, command.policy, command.reason, self.at))
        if command.grace_ms is None and len(taken) <= limits.CANCEL_INLINE_MAX:
            for execution in taken:
                self.apply(execution, stop(execution, command.reason, FLOW_CANCEL, self.at))
            return FlowCancelled(command.policy, tuple(ids))
        for execution in taken:
            self._owe_cancel(execution, command)
        if command.grace_ms is not None:
            return FlowCancelled(command.policy, tuple(ids))
        return CancellationScheduled(command.policy, len(ids), tuple(ids))

    async def _cancelled_before(
        self, flow: FlowRow, command: CancelFlow, ids: tuple[str, ...]
    ) -> Any:
        """The answer to a repeated cancel. What is still owed is done at once, unless its caller
        does that by hand."""
        policy, rows = flow.cancellation_policy, self.view.rows
        rows.take(FLOW_TASKS, await self.tx.peek_rows(FLOW_TASKS, [(flow.flow_id,)]))
        owed = rows.group(FLOW_TASKS, (flow.flow_id, TaskKind.CANCEL_MEMBER))  # this batch's too
        if policy is None or command.grace_ms is not None or not owed:
            return AlreadyTerminal(policy, flow.cancel_reason, ids)
        for task in owed:
            if task.due_at > self.at.now:
                rows.put(FLOW_TASKS, replace(task, due_at=self.at.now))
        return CancellationScheduled(policy, len(ids), ids)

    def _owe_cancel(self, execution: Execution, command: CancelFlow) -> None:
        if execution.is_runnable:
            self.apply(execution, bar(execution, command.reason, self.at))
        self.owe(
            command.flow_id,
            TaskKind.CANCEL_MEMBER,
            execution.execution_id,
            command.reason,
            after_ms=command.grace_ms or 0,
        )

    async def _acknowledge(self, command: AckCancelMember) -> Any:
        execution = self.view.executions.get(command.execution_id)
        if isinstance(execution, Corrupt):  # nobody knows whether it has ended
            return Refused(Corruption, f"execution {command.execution_id}: {execution.detail}")
        if stays_owed(execution):
            return None
        key = (command.flow_id, TaskKind.CANCEL_MEMBER, command.execution_id)
        await self.forget_tasks([key])
        return None

    # --- children ------------------------------------------------------------------------------

    async def _spawn(self, command: SpawnChildren) -> Any:
        parent = self.execution(command.execution_id)
        if isinstance(parent, Refused):
            return parent
        flow_id = parent.flow_id or _flow_of_children(parent)
        children = [replace(each, flow_id=flow_id) for each in command.children]
        refusal = refuse_unless_owner(parent, command.execution_id, command.fence, self.at.now)
        if refusal is not None:
            return await self._spawned_before(parent, children) or refusal
        if refusal := refuse_budgets(command, flow_id):
            return refusal
        decisions = [self.view.preview(each) for each in children]
        for at, decision in enumerate(decisions):
            if isinstance(decision.reply, Refused):
                return replace(decision.reply, detail=f"children[{at}]: {decision.reply.detail}")
        flow = self.flow(flow_id)
        if flow is None:
            flow = self._found_family(parent, flow_id)
            parent = replace(parent, flow_id=flow_id)
        elif refusal := refuse_closed(flow, flow_id):
            return refusal
        self._take_children(flow, parent, children, decisions)
        await self.members([(flow_id, parent.execution_id)])
        row = self.member(flow_id, parent.execution_id)
        new = sum(isinstance(each.reply, Created) for each in decisions)
        if row is not None and new:
            self.put_member(replace(row, open_children=row.open_children + new))
        return Spawned(flow_id, tuple(_id_of(each) for each in decisions))

    async def _spawned_before(
        self, parent: Execution, children: Sequence[CreateExecution]
    ) -> Spawned | None:
        """Children that are all known under their keys, as children of this parent: the call is
        one that was answered before, however far its parent has gone on."""
        flow_id = parent.flow_id
        if flow_id is None or any(each.idempotency_key is None for each in children):
            return None
        replies = [self.view.preview(each).reply for each in children]
        known = [each.execution_id for each in replies if isinstance(each, Duplicate)]
        if len(known) < len(children):
            return None
        await self.members([(flow_id, each) for each in known])
        rows = [self.member(flow_id, each) for each in known]
        if any(row is None or row.parent_id != parent.execution_id for row in rows):
            return None
        return Spawned(flow_id, tuple(known))

    def _found_family(self, parent: Execution, flow_id: str) -> FlowRow:
        """A parent without a flow begins one under its own id."""
        joined = replace(parent, flow_id=flow_id, last_mutation_at=self.at.now)
        self.apply(parent, Decision(None, joined))
        begun = CreateFlow(flow_id, CHILDREN, parent.namespace)
        flow = create_flow(None, begun, self.at)
        assert isinstance(flow, FlowRow)  # noqa: S101 - there was none
        self.put_member(MemberRow(flow_id, parent.execution_id, parent.execution_kind))
        return with_members(flow, [joined], self.at).flow

    def _take_children(
        self,
        flow: FlowRow,
        parent: Execution,
        children: Sequence[CreateExecution],
        decisions: Sequence[Decision],
    ) -> None:
        new = []
        for command, decision in zip(children, decisions, strict=True):
            if decision.execution is not None:
                self.view.take_created(command, decision)
                new.append(decision.execution)
                key, kind = decision.execution.execution_id, decision.execution.execution_kind
                self.put_member(MemberRow(flow.flow_id, key, kind, parent_id=parent.execution_id))
        grown = with_members(flow, new, self.at).flow
        self.put_flow(replace(grown, child_count=grown.child_count + len(new)))

    async def _wait_children(self, command: WaitChildren) -> Any:
        execution = self.execution(command.execution_id)
        if isinstance(execution, Refused):
            return execution
        open_children = 0
        if execution.flow_id is not None:
            await self.members([(execution.flow_id, execution.execution_id)])
            row = self.member(execution.flow_id, execution.execution_id)
            open_children = 0 if row is None else row.open_children
        decision = wait_children(execution, open_children, command, self.at)
        return self.view.apply(execution, command, decision)


def _flow_of_children(parent: Execution) -> str:
    return parent.execution_id[-36:]


def _id_of(decision: Decision) -> str:
    reply = decision.reply
    if isinstance(reply, Created | Duplicate):
        return reply.execution_id
    raise NotFound("children: neither created nor known")
