"""Operations that build, run and cancel flows."""

from __future__ import annotations

import asyncio
from typing import cast

from flowfabric import ids, limits
from flowfabric.api import flows as api
from flowfabric.engine.due_work import move_due
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.flow_requests import to_children, to_submit
from flowfabric.engine.operations.new_entries import check_answers, checkpoint_command
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.operations.requests import flow_hooks
from flowfabric.engine.operations.submits import recorded_submit, submit_recorded
from flowfabric.engine.operations.waiting import left_s, wait_until
from flowfabric.errors import FlowAlreadyTerminal, FlowFabricError, InvalidInput
from flowfabric.kernel.command import Command
from flowfabric.kernel.flow.cancel import AckCancelMember, CancelFlow
from flowfabric.kernel.flow.children import SpawnChildren
from flowfabric.kernel.flow.dependent import WaitChildren
from flowfabric.kernel.flow.flow import AddMember, CreateFlow, SetFlowTag
from flowfabric.kernel.flow.graph import (
    ApplyEdge,
    SetGroupPolicy,
    StageEdge,
    WithdrawEdge,
)
from flowfabric.kernel.flow.resolve import CascadeFrom, ResolveEdge
from flowfabric.model.checks import (
    check_flag,
    check_integer,
    check_list,
    check_name,
    check_tag_key,
    check_tag_value,
    check_tags,
    check_text,
    check_uuid,
    clip_text,
)
from flowfabric.model.flow import (
    FLOW_CANCELLED,
    SUCCESS_ONLY,
    CancellationPolicy,
    TaskKind,
    check_edge_policy,
)
from flowfabric.model.flow_results import (
    AlreadyTerminal,
    Applied,
    CancellationScheduled,
    DependencyAlreadyApplied,
    FlowAlreadySatisfied,
    FlowCancelled,
    FlowCreated,
    FlowDuplicate,
    FlowSubmitted,
    PartiallyCancelled,
    Spawned,
)
from flowfabric.model.journal import EntryKind
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import replace
from flowfabric.stores.tables import FLOW_TASKS

DRAIN_PAUSE_S = 0.02

# --- whole graphs --------------------------------------------------------------------------------


@answers(api.SubmitFlow)
async def submit_flow(machine: Machine, request: api.SubmitFlow) -> FlowSubmitted | FlowDuplicate:
    """All of it, or nothing; in the caller's own transaction if it gives one."""
    key = request.idempotency_key
    if key is not None:
        check_text(key, field="idempotency_key", max_bytes=limits.IDEMPOTENCY_KEY_BYTES)
    check_integer(
        request.dedup_window_ms, field="dedup_window_ms", least=1, most=limits.DURATION_MS_MAX
    )
    namespace = machine.namespace(request.namespace)
    flow = api.NewFlow(
        flow_id=_flow_id(request.flow_id),
        flow_kind=check_name(request.flow_kind, field="flow_kind"),
        namespace=namespace,
        tags=check_tags(request.tags or {}),
        retention_ms=_retention(request.retention_ms),
        idempotency_key=key,
        dedup_window_ms=request.dedup_window_ms,
        is_named=request.flow_id is not None,
        hooks=flow_hooks(request, namespace, machine.config),
    )
    partitions = machine.store.partitions
    command = to_submit(flow, request.nodes, request.edges, machine.config, partitions)
    creates = [node.create for node in command.nodes]
    recorded = recorded_submit(machine, request.handle, request.entries, (command,))
    if recorded is not None and request.connection is not None:
        detail = "connection: what a handler submits in its own transaction is in no journal"
        raise InvalidInput(detail, field="connection")
    if request.connection is not None:
        (reply,) = await machine.execute_in(
            request.connection, (command,), creates, of_flow=flow.hooks
        )
        return reply
    await machine.known.ensure(creates, of_flow=flow.hooks)
    if recorded is not None:
        (answer,) = await submit_recorded(machine, recorded)
        return cast("FlowSubmitted | FlowDuplicate", answer)
    return await machine.execute(command)


# --- one by one ----------------------------------------------------------------------------------


@answers(api.CreateFlow)
async def create_flow(
    machine: Machine, request: api.CreateFlow
) -> FlowCreated | FlowAlreadySatisfied:
    """An empty flow, whose end finds the routes of its hooks."""
    namespace = machine.namespace(request.namespace)
    command = CreateFlow(
        flow_id=_flow_id(request.flow_id),
        flow_kind=check_name(request.flow_kind, field="flow_kind"),
        namespace=namespace,
        retention_ms=_retention(request.retention_ms),
        tags=check_tags(request.tags or {}),
        hooks=flow_hooks(request, namespace, machine.config),
    )
    if command.hooks is not None:
        await machine.known.ensure((), of_flow=command.hooks)
    return await machine.execute(command)


@commands(api.AddExecutionToFlow)
def add_execution_to_flow(machine: Machine, request: api.AddExecutionToFlow) -> AddMember:
    """Only on the flow's own partition."""
    flow, key = check_uuid(request.flow_id), machine.check_id(request.execution_id)
    number = ids.partition_of(flow, machine.store.partitions)
    if not key.startswith(f"{{fp:{number}}}:"):
        detail = (
            "execution_id: is on another partition than the flow; "
            "create it with colocate_with=flow_id"
        )
        raise InvalidInput(detail, field="execution_id")
    name = check_text(
        request.node_name, field="node_name", max_bytes=limits.NODE_NAME_BYTES, empty=True
    )
    return AddMember(
        flow_id=flow,
        execution_id=key,
        node_name=name,
        reopen=check_flag(request.reopen, field="reopen"),
    )


@commands(api.StageDependencyEdge)
def stage_dependency_edge(machine: Machine, request: api.StageDependencyEdge) -> StageEdge:
    """Announce an edge, without applying it."""
    if request.dependency_kind != SUCCESS_ONLY:
        detail = f"dependency_kind: only {SUCCESS_ONLY} is known"
        raise InvalidInput(detail, field="dependency_kind")
    revision, edge_id = request.expected_graph_revision, request.edge_id
    if revision is not None:
        check_integer(revision, field="expected_graph_revision", least=0, most=1 << 62)
    flow = check_uuid(request.flow_id)
    new = ids.new_uuid7s(1)[0] if edge_id is None else check_uuid(edge_id, field="edge_id")
    upstream, downstream = _ends(machine, request)
    return StageEdge(
        flow_id=flow,
        edge_id=new,
        upstream_execution_id=upstream,
        downstream_execution_id=downstream,
        dependency_kind=request.dependency_kind,
        data_passing_ref=_optional(request.data_passing_ref, "data_passing_ref"),
        input_name=_optional(request.input_name, "input_name"),
        expected_graph_revision=revision,
    )


@commands(api.ApplyDependencyToChild)
def apply_dependency_to_child(machine: Machine, request: api.ApplyDependencyToChild) -> ApplyEdge:
    """The child waits from now on."""
    return ApplyEdge(**_named_edge(machine, request))


@commands(api.WithdrawDependencyEdge)
def withdraw_dependency_edge(machine: Machine, request: api.WithdrawDependencyEdge) -> WithdrawEdge:
    """Only an edge that was not applied."""
    return WithdrawEdge(**_named_edge(machine, request))


@answers(api.AddDependency)
async def add_dependency(
    machine: Machine, request: api.AddDependency
) -> Applied | DependencyAlreadyApplied:
    """Both commands, or neither."""
    upstream, downstream = _ends(machine, request)
    stage = StageEdge(
        flow_id=check_uuid(request.flow_id),
        edge_id=ids.new_uuid7s(1)[0],
        upstream_execution_id=upstream,
        downstream_execution_id=downstream,
        dependency_kind=SUCCESS_ONLY,
        data_passing_ref=_optional(request.data_passing_ref, "data_passing_ref"),
        input_name=_optional(request.input_name, "input_name"),
    )
    apply = ApplyEdge(
        flow_id=stage.flow_id,
        edge_id=stage.edge_id,
        upstream_execution_id=upstream,
        downstream_execution_id=downstream,
    )
    together: list[Command[object]] = [stage, apply]
    replies = await machine.execute_together(together)
    return cast("Applied | DependencyAlreadyApplied", replies[1])


@commands(api.SetEdgeGroupPolicy)
def set_edge_group_policy(machine: Machine, request: api.SetEdgeGroupPolicy) -> SetGroupPolicy:
    """Set how a member's inbound edges join."""
    child = _end(machine, request.downstream_execution_id, "downstream_execution_id")
    return SetGroupPolicy(
        flow_id=check_uuid(request.flow_id),
        execution_id=child,
        policy=check_edge_policy(request.policy),
    )


@commands(api.SetFlowTag)
def set_flow_tag(machine: Machine, request: api.SetFlowTag) -> SetFlowTag:
    """Set one tag."""
    tag = {check_tag_key(request.key): check_tag_value(request.value)}
    actor = machine.actor(request.actor)
    return SetFlowTag(flow_id=check_uuid(request.flow_id), tags=tag, actor=actor)


@commands(api.SetFlowTags)
def set_flow_tags(machine: Machine, request: api.SetFlowTags) -> SetFlowTag:
    """Set several tags."""
    flow_id, tags = check_uuid(request.flow_id), check_tags(request.tags)
    return SetFlowTag(flow_id=flow_id, tags=tags, actor=machine.actor(request.actor))


# --- steps of the cascade -------------------------------------------------------------------------


@commands(api.ResolveDependency)
def resolve_dependency(machine: Machine, request: api.ResolveDependency) -> ResolveEdge:
    """Resolve one edge."""
    return ResolveEdge(**_named_edge(machine, request))


@commands(api.CascadeCompletion)
def cascade_completion(machine: Machine, request: api.CascadeCompletion) -> CascadeFrom:
    """Resolve everything that follows from one end."""
    return CascadeFrom(execution_id=machine.check_id(request.execution_id))


# --- cancelling ----------------------------------------------------------------------------------


@answers(api.CancelFlow)
async def cancel_flow(
    machine: Machine, request: api.CancelFlow
) -> FlowCancelled | CancellationScheduled | PartiallyCancelled:
    """Cancel it; then, if asked, do its deferred work until the wait is over."""
    until = wait_until(request.wait_ms)
    flow = check_uuid(request.flow_id)
    command = _cancel(flow, request.policy, request.reason, None)
    reply = await machine.execute(replace(command, actor=machine.actor(request.actor)))
    if isinstance(reply, AlreadyTerminal):
        stored = reply.stored_cancellation_policy
        if stored is None:
            raise FlowAlreadyTerminal(f"flow {flow} has finished")
        reply = FlowCancelled(stored, reply.member_execution_ids)
    assert isinstance(reply, FlowCancelled | CancellationScheduled)  # noqa: S101 - narrows
    if request.wait_ms == 0:
        return reply
    left = await _drain(machine, flow, until)
    answer = (reply.cancellation_policy, reply.member_execution_ids)
    return PartiallyCancelled(*answer, left) if left else FlowCancelled(*answer)


async def _drain(machine: Machine, flow_id: str, until: float) -> tuple[str, ...]:
    """Do the deferred work of a cancelled flow; returns the members still open at the end."""
    while True:
        deferred = await machine.read(lambda reader: reader.peek_rows(FLOW_TASKS, [(flow_id,)]))
        left = tuple(key[2] for key in sorted(deferred) if key[1] is TaskKind.CANCEL_MEMBER)
        if not left or left_s(until) <= 0:
            return left
        if not await move_due(machine):
            await asyncio.sleep(DRAIN_PAUSE_S)


@commands(api.CancelFlowHeader)
def cancel_flow_header(_machine: Machine, request: api.CancelFlowHeader) -> CancelFlow:
    """Cancel the flow alone; its members have a grace period."""
    grace_ms = request.grace_ms
    check_integer(grace_ms, field="grace_ms", least=0, most=limits.DURATION_MS_MAX)
    return _cancel(check_uuid(request.flow_id), request.policy, request.reason, grace_ms)


@commands(api.AckCancelMember)
def ack_cancel_member(machine: Machine, request: api.AckCancelMember) -> AckCancelMember:
    """Remove the member's deferred cancel."""
    return AckCancelMember(
        flow_id=check_uuid(request.flow_id), execution_id=machine.check_id(request.execution_id)
    )


def _cancel(
    flow_id: str, policy: CancellationPolicy | str, reason: str, grace_ms: int | None
) -> CancelFlow:
    word = check_word(policy, CancellationPolicy, field="policy")
    text = clip_text(reason, limits.REASON_BYTES, field="reason") or FLOW_CANCELLED
    return CancelFlow(flow_id=flow_id, policy=word, reason=text, grace_ms=grace_ms)


# --- children ------------------------------------------------------------------------------------


@answers(api.SpawnChildren)
async def spawn_children(machine: Machine, request: api.SpawnChildren) -> Spawned:
    """Create in the flow of their parent, which only the transaction knows."""
    handle = machine.check_handle(request.handle)
    creates = to_children(handle.execution_id, request.children, machine.config)
    several = check_list(request.entries, field="entries")
    entries = checkpoint_command(handle, several, None, machine.config) if several else None
    if entries is not None:
        check_answers(entries, EntryKind.SPAWN, len(creates), "children")
    await machine.known.ensure(creates, knows_flow=False)
    command = SpawnChildren(
        execution_id=handle.execution_id,
        fence=handle.fence,
        children=tuple(creates),
        flow_budgets=machine.known.flow_budgets(creates),
        entries=entries,
    )
    return await machine.execute(command)


@commands(api.WaitChildren)
def wait_children(machine: Machine, request: api.WaitChildren) -> WaitChildren:
    """Wait until every child has ended."""
    handle = machine.check_handle(request.handle)
    return WaitChildren(execution_id=handle.execution_id, fence=handle.fence)


# --- checks --------------------------------------------------------------------------------------


def _named_edge(
    machine: Machine,
    request: api.ApplyDependencyToChild | api.WithdrawDependencyEdge | api.ResolveDependency,
) -> dict[str, str]:
    """The flow, the edge and both its ends."""
    flow, edge = check_uuid(request.flow_id), check_uuid(request.edge_id, field="edge_id")
    upstream, downstream = _ends(machine, request)
    return {
        "flow_id": flow,
        "edge_id": edge,
        "upstream_execution_id": upstream,
        "downstream_execution_id": downstream,
    }


def _ends(
    machine: Machine,
    request: api.StageDependencyEdge
    | api.AddDependency
    | api.ApplyDependencyToChild
    | api.WithdrawDependencyEdge
    | api.ResolveDependency,
) -> tuple[str, str]:
    return (
        _end(machine, request.upstream_execution_id, "upstream_execution_id"),
        _end(machine, request.downstream_execution_id, "downstream_execution_id"),
    )


def _end(machine: Machine, execution_id: object, field: str) -> str:
    """A well-formed id at one end of an edge."""
    try:
        return machine.check_id(execution_id)
    except FlowFabricError as error:
        error.detail = error.detail.replace("execution_id", field, 1)
        error.fields["field"] = field
        raise


def _flow_id(flow_id: str | None) -> str:
    return ids.new_uuid7s(1)[0] if flow_id is None else check_uuid(flow_id)


def _retention(value: int | None) -> int | None:
    if value is None:
        return None
    return check_integer(value, field="retention_ms", least=0, most=limits.DURATION_MS_MAX)


def _optional(value: str | None, field: str) -> str | None:
    if value is None or value == "":
        return None
    return check_text(value, field=field, max_bytes=limits.NAME_BYTES)
