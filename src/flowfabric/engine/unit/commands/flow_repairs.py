"""Commands that set flows right, under the lock of the flow's row."""

from __future__ import annotations

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.flow.cascade import Child
from flowfabric.kernel.flow.flow import flow_not_found
from flowfabric.kernel.flow.recount import GraphRows
from flowfabric.kernel.flow.repair import Recounted, RecountFlow, repair_flow
from flowfabric.kernel.flow.siblings import (
    DrainSiblings,
    ReconcileSiblings,
    drained,
    reconcile_siblings,
)
from flowfabric.kernel.repair import repair_events
from flowfabric.model.execution import Execution
from flowfabric.model.flow import FlowRow, GroupState, TaskKind
from flowfabric.model.repair import SiblingsDrained, SiblingsReconciled
from flowfabric.stores.tables import EDGES, FLOW_TASKS


@handles(RecountFlow)
async def recount(unit: Unit, command: RecountFlow) -> Recounted | Refused:
    """Counters first, then what follows from them."""
    flow_id, graph = command.flow_id, unit.flows.graph
    flow = graph.flow(flow_id)
    if flow is None:
        return flow_not_found(flow_id)
    repair = repair_flow(await _rows(unit, flow), unit.view.at, command.limit)
    if repair.change is not None:
        graph.take_change(repair.change)
    for member in repair.members:
        graph.put_member(member)
    await graph.locks.require(repair.decided)
    for execution_id in repair.decided:
        await _let_go(unit, flow_id, execution_id)
    for each in repair.missing:
        unit.flows.deferred.add(flow_id, each.kind, each.execution_id, each.reason)
    await unit.flows.deferred.record()
    found = repair.corrections
    events = repair_events(flow_id, found, unit.view.at, namespace=flow.namespace, tags=flow.tags)
    touched = max(len(repair.members) + len(repair.decided), len(repair.missing))
    reply = Recounted(found, is_whole=touched < command.limit)
    return unit.view.apply(None, Decision(reply, events=events), command)


async def _rows(unit: Unit, flow: FlowRow) -> GraphRows:
    graph, key = unit.flows.graph, (flow.flow_id,)
    ids = await graph.member_ids(flow.flow_id)
    members = await graph.load_members((flow.flow_id, each) for each in ids)
    edges = await unit.tx.peek_rows(EDGES, [key])
    tasks = await unit.tx.peek_rows(FLOW_TASKS, [key])
    found = await unit.tx.get(ids)
    executions = {each: row for each, row in found.items() if isinstance(row, Execution)}
    return GraphRows(flow, members.values(), edges.values(), tasks.values(), executions)


async def _let_go(unit: Unit, flow_id: str, execution_id: str) -> None:
    """A member whose group is decided, or that waits for no group, goes on as it should have."""
    joins, graph = unit.flows.joins, unit.flows.graph
    member, execution = graph.member(flow_id, execution_id), unit.view.execution(execution_id)
    if member is None or execution is None:
        return
    if member.total and member.group_state is GroupState.PENDING:
        await joins.decide_by_counters(member)
    elif execution.is_interrupted:
        await unit.flows.cascade.children.wake(flow_id, execution_id)
    else:
        await joins.decide([Child(member, execution)])


@handles(DrainSiblings)
async def drain(unit: Unit, command: DrainSiblings) -> SiblingsDrained | Refused:
    """As the loop would, but now."""
    flow, key = unit.flows.graph.flow(command.flow_id), command.execution_id
    if flow is None:
        return flow_not_found(command.flow_id)
    task = await unit.flows.deferred.find(command.flow_id, TaskKind.CANCEL_SIBLINGS, key)
    if task is None:
        return SiblingsDrained((), is_drained=True)
    cancelled = await unit.flows.perform(task)
    left = unit.view.rows.get(FLOW_TASKS, FLOW_TASKS.key_of(task))
    decision = drained(flow, task, cancelled, left is None, unit.view.at)
    return unit.view.apply(None, decision, command)


@handles(ReconcileSiblings)
async def reconcile(unit: Unit, command: ReconcileSiblings) -> SiblingsReconciled | Refused:
    """The deferred cancels against the siblings that still run."""
    flow_id, key, flows = command.flow_id, command.execution_id, unit.flows
    flow = flows.graph.flow(flow_id)
    if flow is None:
        return flow_not_found(flow_id)
    member = await flows.graph.load_member(flow_id, key)
    task = await flows.deferred.find(flow_id, TaskKind.CANCEL_SIBLINGS, key)
    siblings = [] if member is None else await flows.siblings_of(member)
    found = await unit.tx.get(siblings) if siblings else {}
    live = [
        each
        for each in siblings
        if isinstance(row := found.get(each), Execution) and not row.is_terminal
    ]
    decision = reconcile_siblings(flow, member, task, live, key, unit.view.at)
    return unit.view.apply(None, decision, command)
