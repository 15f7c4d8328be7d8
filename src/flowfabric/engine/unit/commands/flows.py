"""Commands about flows: each handler fetches what the rule asks for, and takes its decision."""

from __future__ import annotations

from flowfabric.engine.unit.commands import journal
from flowfabric.engine.unit.flows.graph import Graph, refuse_corrupt
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.cancel import stop
from flowfabric.kernel.execution.fence import refuse_unless_owner
from flowfabric.kernel.flow.cancel import (
    FLOW_CANCEL,
    AckCancelMember,
    CancelFlow,
    Cancelling,
    FlowCancelReply,
    cancel_flow,
    cancel_later,
    cancelled_before,
    repeats_cancel,
    stays_deferred,
)
from flowfabric.kernel.flow.children import (
    SpawnChildren,
    born_into_family,
    family_of,
    known_children,
    spawn,
    spawned_before,
)
from flowfabric.kernel.flow.dependent import WaitChildren, wait_children
from flowfabric.kernel.flow.flow import (
    AddMember,
    CreateFlow,
    SetFlowTag,
    add_member,
    create_flow,
    flow_not_found,
    set_flow_tag,
)
from flowfabric.kernel.flow.graph import (
    ApplyEdge,
    SetGroupPolicy,
    StageEdge,
    WithdrawEdge,
    apply_edge,
    refuse_cycle,
    refuse_stage,
    set_policy,
    stage_edge,
    withdraw_edge,
)
from flowfabric.kernel.flow.rank import Rise, rise, risen
from flowfabric.kernel.flow.resolve import (
    CascadeFrom,
    ResolveEdge,
    answered_resolved,
    answered_unresolved,
)
from flowfabric.kernel.flow.submit import (
    SubmitFlow,
    key_of,
    rows_of,
    submit_flow,
    submitted_before,
)
from flowfabric.kernel.journal.checkpoint import with_answers
from flowfabric.kernel.wait.watch import refuse_wait_cycle
from flowfabric.model.execution import Execution
from flowfabric.model.flow import FlowRow, MemberRow, TaskKind
from flowfabric.model.flow_results import (
    Added,
    AlreadyMember,
    AlreadyTerminal,
    AlreadyWithdrawn,
    Applied,
    CancellationScheduled,
    CascadeOutcome,
    ChildrenAwaited,
    DependencyAlreadyApplied,
    DependencyResolved,
    FlowAlreadySatisfied,
    FlowCreated,
    FlowDuplicate,
    FlowSubmitted,
    PolicyAlreadySet,
    PolicySet,
    Spawned,
    Staged,
    Withdrawn,
)
from flowfabric.model.journal import EntryKind
from flowfabric.model.record import replace
from flowfabric.stores.base import Corrupt
from flowfabric.stores.tables import KEYS

# --- whole graphs --------------------------------------------------------------------------------


@handles(CreateFlow)
async def create(unit: Unit, command: CreateFlow) -> FlowCreated | FlowAlreadySatisfied | Refused:
    """An empty flow."""
    graph = unit.flows.graph
    return graph.apply(create_flow(graph.flow(command.flow_id), command, graph.at))


@handles(SubmitFlow)
async def submit(unit: Unit, command: SubmitFlow) -> FlowSubmitted | FlowDuplicate | Refused:
    """A flow with all its members and edges."""
    graph, view = unit.flows.graph, unit.view
    known = view.rows.get(KEYS, (command.flow.namespace, command.idempotency_key or ""))
    if (before := submitted_before(known, command, view.at)) is not None:
        return before
    created = [view.preview(node.create) for node in command.nodes]
    reply = graph.apply(submit_flow(graph.flow(command.flow_id), created, command, view.at))
    if isinstance(reply, Refused):
        return reply
    for node, decision in zip(command.nodes, created, strict=True):
        view.take_created(node.create, decision)
    graph.add(*rows_of(command, view.at))
    if (key := key_of(command, view.at)) is not None:
        view.rows.put(KEYS, key)
    return reply


# --- one by one ----------------------------------------------------------------------------------


@handles(AddMember)
async def add(unit: Unit, command: AddMember) -> Added | AlreadyMember | Refused:
    """An execution becomes a member."""
    graph = unit.flows.graph
    execution = graph.execution(command.execution_id)
    decision = add_member(graph.flow(command.flow_id), execution, command, graph.at)
    return graph.apply(decision, execution if isinstance(execution, Execution) else None)


@handles(StageEdge)
async def stage(unit: Unit, command: StageEdge) -> Staged | Refused:
    """A dependency is announced."""
    graph, flow_id = unit.flows.graph, command.flow_id
    keys = [(flow_id, command.upstream_execution_id), (flow_id, command.downstream_execution_id)]
    rows = await graph.load_members(keys)
    upstream, downstream = map(rows.get, keys)
    flow, known = graph.flow(flow_id), await graph.edges.get(flow_id, command.edge_id)
    if refusal := refuse_stage(flow, known, (upstream, downstream), command):
        return refusal
    assert flow is not None and upstream is not None and downstream is not None  # noqa: S101, PT018 - refused above
    ranks = await _raise_ranks(graph, upstream, downstream)
    if refusal := refuse_cycle(ranks, command):
        return refusal
    edges = []
    if downstream.size == 1:
        edges = await graph.edges.leading_to([downstream.execution_id])
    return graph.apply(stage_edge(flow, downstream, ranks, edges, command, graph.at))


async def _raise_ranks(graph: Graph, upstream: MemberRow, downstream: MemberRow) -> Rise:
    """Keep ranks topological: the rule names the members to raise, level by level."""
    ranks = rise(upstream, downstream)
    while ranks.level and not ranks.closes_cycle:
        edges = await graph.edges.leaving(sorted(ranks.level), None)  # a replay opens any again
        ids = {*ranks.level, *(edge.downstream_execution_id for edge in edges)}
        rows = await graph.load_members((downstream.flow_id, key) for key in ids)
        ranks = risen(ranks, {key[1]: row for key, row in rows.items()}, edges)
    return ranks


@handles(ApplyEdge)
async def apply(unit: Unit, command: ApplyEdge) -> Applied | DependencyAlreadyApplied | Refused:
    """A staged dependency takes effect; if its upstream has ended, it is resolved at once."""
    flows, graph, flow_id = unit.flows, unit.flows.graph, command.flow_id
    upstream = graph.execution(command.upstream_execution_id)
    child = graph.execution(command.downstream_execution_id)
    edge = await graph.edges.get(flow_id, command.edge_id)
    member = await graph.load_member(flow_id, command.downstream_execution_id)
    flow = graph.flow(flow_id)
    decision = apply_edge(flow, edge, member, (upstream, child), command, graph.at)
    reply = graph.apply(decision, child if isinstance(child, Execution) else None)
    if not isinstance(reply, Applied) or isinstance(upstream, Refused) or not upstream.is_terminal:
        return reply
    applied = await graph.edges.get(flow_id, command.edge_id)
    await flows.joins.resolve([applied] if applied else [], {upstream.execution_id: upstream})
    await flows.deferred.record()
    after = graph.member(flow_id, command.downstream_execution_id)
    return reply if after is None else Applied(after.unresolved)


@handles(WithdrawEdge)
async def withdraw(unit: Unit, command: WithdrawEdge) -> Withdrawn | AlreadyWithdrawn | Refused:
    """A staged dependency is taken back; what is left of its group may decide it."""
    flows, graph, flow_id = unit.flows, unit.flows.graph, command.flow_id
    child_id = command.downstream_execution_id
    edge = await graph.edges.get(flow_id, command.edge_id)
    member = await graph.load_member(flow_id, child_id)
    flow, child = graph.flow(flow_id), graph.execution(child_id)
    reply = graph.apply(withdraw_edge(flow, edge, member, child, command, graph.at))
    after = graph.member(flow_id, child_id)
    if not isinstance(reply, Withdrawn) or after is None:
        return reply
    after = await flows.joins.decide_by_counters(after)
    await flows.deferred.record()
    return replace(reply, group_state=after.group_state)


@handles(SetGroupPolicy)
async def set_group_policy(
    unit: Unit, command: SetGroupPolicy
) -> PolicySet | PolicyAlreadySet | Refused:
    """How a member's dependencies join."""
    graph = unit.flows.graph
    member = await graph.load_member(command.flow_id, command.execution_id)
    return graph.apply(set_policy(graph.flow(command.flow_id), member, command))


@handles(SetFlowTag)
async def set_tag(unit: Unit, command: SetFlowTag) -> Refused | None:
    """Label a flow."""
    graph = unit.flows.graph
    decision = set_flow_tag(graph.flow(command.flow_id), command, graph.at)
    return graph.apply(decision, command=command)


# --- resolving by hand ---------------------------------------------------------------------------


@handles(ResolveEdge)
async def resolve(unit: Unit, command: ResolveEdge) -> DependencyResolved | Refused:
    """Count an upstream's end for one edge."""
    flows, graph, flow_id = unit.flows, unit.flows.graph, command.flow_id
    child_id = command.downstream_execution_id
    edge = await graph.edges.get(flow_id, command.edge_id)
    upstream = graph.execution(command.upstream_execution_id)
    if (answer := answered_unresolved(edge, upstream, command)) is not None:
        return answer
    assert edge is not None and isinstance(upstream, Execution)  # noqa: S101, PT018 - answered above
    before = await graph.load_member(flow_id, child_id)
    await flows.joins.resolve([edge], {upstream.execution_id: upstream})
    await flows.deferred.record()
    child = unit.view.executions.get(child_id)
    return answered_resolved(
        before,
        graph.member(flow_id, child_id),
        child if isinstance(child, Execution) else None,
        is_handed=child_id in unit.view.changes.payloads,
    )


@handles(CascadeFrom)
async def cascade_from(unit: Unit, command: CascadeFrom) -> CascadeOutcome | Refused:
    """Resolve everything that follows from the end of one execution."""
    joins, cascade = unit.flows.joins, unit.flows.cascade
    execution = unit.flows.graph.execution(command.execution_id)
    if isinstance(execution, Refused):
        return execution
    if not execution.is_terminal or execution.flow_id is None:
        return CascadeOutcome(0, 0, True)
    resolved, moved = joins.resolved, joins.moved
    is_whole = await cascade.resolve_from([execution])
    await cascade.follow_up()
    return CascadeOutcome(joins.resolved - resolved, joins.moved - moved, is_whole)


# --- cancelling ----------------------------------------------------------------------------------


@handles(CancelFlow)
async def cancel(unit: Unit, command: CancelFlow) -> FlowCancelReply | Refused:
    """Stop a flow: its members at once, or later where they are many or its caller does it."""
    graph = unit.flows.graph
    flow = graph.flow(command.flow_id)
    if flow is None:
        return flow_not_found(command.flow_id)
    ids = await graph.member_ids(flow.flow_id)
    cancelling = None
    if not repeats_cancel(flow, command.policy):
        cancelling = cancel_flow(flow, ids, await graph.locks.require(ids), command, graph.at)
    if cancelling is None:
        return await _cancel_again(unit, flow, tuple(ids), command)
    reply = graph.apply(cancelling.header, command=command)
    if cancelling.is_deferred:
        _defer_cancels(unit, cancelling, command)
    else:
        for execution in cancelling.members:
            decision = stop(execution, command.reason, FLOW_CANCEL, graph.at)
            unit.view.apply(execution, decision)
    await unit.flows.deferred.record()
    return reply


def _defer_cancels(unit: Unit, cancelling: Cancelling, command: CancelFlow) -> None:
    """Cancel members later; those that have not begun are kept from it until then."""
    kind, pause = TaskKind.CANCEL_MEMBER, command.grace_ms or 0
    for execution in cancelling.members:
        key, reason = execution.execution_id, command.reason
        if (barred := cancel_later(execution, reason, unit.view.at)) is not None:
            unit.view.apply(execution, barred)
        unit.flows.deferred.add(command.flow_id, kind, key, reason, after_ms=pause)


async def _cancel_again(
    unit: Unit, flow: FlowRow, ids: tuple[str, ...], command: CancelFlow
) -> CancellationScheduled | AlreadyTerminal | Refused:
    deferred = await unit.flows.deferred.cancels_of(flow.flow_id)
    return unit.flows.graph.apply(cancelled_before(flow, ids, deferred, command, unit.view.at))


@handles(AckCancelMember)
async def acknowledge(unit: Unit, command: AckCancelMember) -> Refused | None:
    """A caller has cancelled a member by hand."""
    execution = unit.view.executions.get(command.execution_id)
    if isinstance(execution, Corrupt):  # whether it has ended is unknown
        return refuse_corrupt(execution)
    if not stays_deferred(execution):
        key = (command.flow_id, TaskKind.CANCEL_MEMBER, command.execution_id)
        await unit.flows.deferred.forget([key])
    return None


# --- children ------------------------------------------------------------------------------------


@handles(SpawnChildren)
async def spawn_children(unit: Unit, command: SpawnChildren) -> Spawned | Refused:
    """The owner of an execution wants others done, as its children."""
    graph, view = unit.flows.graph, unit.view
    parent = graph.execution(command.execution_id)
    if isinstance(parent, Refused):
        return parent
    flow_id = family_of(parent)
    children = born_into_family(parent, command)
    created = [view.preview(each) for each in children]
    refusal = refuse_unless_owner(parent, command.execution_id, command.fence, view.at.now)
    if refusal is not None:
        known = known_children(parent, children, created)
        rows = await graph.load_members((flow_id, each) for each in known)
        its_rows = [rows.get((flow_id, each)) for each in known]
        return spawned_before(parent, known, its_rows) or refusal
    row = await graph.load_member(flow_id, parent.execution_id)
    decision = spawn(parent, graph.flow(flow_id), row, created, command, view.at)
    if command.entries is not None and not isinstance(decision.reply, Refused):
        ids = decision.reply.execution_ids
        filled = with_answers(command.entries, EntryKind.SPAWN, ids)
        recorded = journal.taken(unit, filled, await journal.decided(unit, filled))
        if isinstance(recorded, Refused):
            return recorded
        if recorded.outcomes:  # which has changed the parent, or even ended it
            parent = graph.execution(command.execution_id)
            if isinstance(parent, Refused):
                return parent
            decision = spawn(parent, graph.flow(flow_id), row, created, command, view.at)
    reply = graph.apply(decision, parent)
    if not isinstance(reply, Refused):
        for child, new in zip(children, created, strict=True):
            view.take_created(child, new)
    return reply


@handles(WaitChildren)
async def wait(unit: Unit, command: WaitChildren) -> ChildrenAwaited | Refused:
    """The owner lets go until its children have ended."""
    graph = unit.flows.graph
    execution = graph.execution(command.execution_id)
    if isinstance(execution, Refused):
        return execution
    row = None
    if execution.flow_id is not None:
        row = await graph.load_member(execution.flow_id, execution.execution_id)
    open_children = 0 if row is None else row.open_children
    if open_children and (execution.is_watched or execution.ties.serial_key is not None):
        path = await unit.watches.cycle_with_child(execution)
        if path is not None:
            return refuse_wait_cycle(path)
    decision = wait_children(execution, open_children, command, graph.at)
    return unit.view.apply(execution, decision, command)
