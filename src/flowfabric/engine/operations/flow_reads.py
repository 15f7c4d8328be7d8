"""Reads of flows, members and edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowfabric.api import flows as api
from flowfabric.api.hints import flow_topic, wait_event
from flowfabric.api.page import Page, at_uuid
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.flow_looks import members_as_met
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.waiting import left_s, wait_until
from flowfabric.engine.unit.successors import flow_successors_told
from flowfabric.errors import InvalidInput, NotFound, WaitTimeout
from flowfabric.kernel.flow.join import judged, satisfaction_of
from flowfabric.model.checks import (
    check_execution_id,
    check_flag,
    check_tag_key,
    check_uuid,
)
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    ALL_SUCCEEDED,
    EdgeRow,
    FlowRow,
    FlowState,
    FlowStatus,
    GroupState,
    MemberRow,
    final_counts,
    status_of,
)
from flowfabric.model.flow_results import (
    EdgeGroupSnapshot,
    EdgeSnapshot,
    EligibilityStatus,
    FlowListing,
    FlowSnapshot,
    FlowSummary,
    MemberInfo,
)
from flowfabric.model.limit_checks import check_word
from flowfabric.model.state import PublicState
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import (
    EDGES_FROM,
    EDGES_TO,
    FLOWS_IN_STATE,
    FLOWS_OF_BOTH,
    FLOWS_OF_NAMESPACE,
    Search,
    by_key,
)
from flowfabric.stores.tables import EDGES, FLOWS, MEMBERS, Key

_FLOWS = Listing("list_flows", at_uuid)
_EDGES = Listing("list_edges", at_uuid)

_BLOCKED = (
    PublicState.SUSPENDED,
    PublicState.DELAYED,
    PublicState.RATE_LIMITED,
    PublicState.WAITING_CHILDREN,
)
_STATE_OF_STATUS = {
    FlowStatus.ACTIVE: FlowState.OPEN,
    FlowStatus.COMPLETED: FlowState.COMPLETED,
    FlowStatus.FAILED: FlowState.FAILED,
    FlowStatus.CANCELLED: FlowState.CANCELLED,
}


@answers(api.DescribeFlow)
async def describe_flow(machine: Machine, request: api.DescribeFlow) -> FlowSnapshot | None:
    """One flow in full."""
    flow = check_uuid(request.flow_id)

    async def work(reader: Reader) -> FlowSnapshot | None:
        row = await _flow(reader, flow)
        if row is None:
            return None
        members = await members_as_met(reader, (flow,))
        groups = [edge_group(members[key]) for key in sorted(members) if members[key].total]
        return snapshot(row, await _counts(reader, flow), groups, machine.store.partitions)

    return await machine.read(work)


@answers(api.ProjectFlowSummary)
async def project_flow_summary(machine: Machine, request: api.ProjectFlowSummary) -> FlowSummary:
    """The counts alone."""
    flow = check_uuid(request.flow_id)

    async def work(reader: Reader) -> FlowSummary:
        row = await require_flow(reader, flow)
        counts = await _counts(reader, flow)
        return FlowSummary(flow, _live_state(row, counts), row.node_count, counts)

    return await machine.read(work)


@answers(api.ListFlows)
async def list_flows(machine: Machine, request: api.ListFlows) -> Page[FlowListing]:
    """One page; a row more is read, to know whether another page follows."""
    limit, newest_first = check_limit(request.limit), request.newest_first
    after = _FLOWS.place(request.cursor)
    check_flag(newest_first, field="newest_first")
    index = by_key(FLOWS)
    prefix: Key = ()
    if request.namespace is not None:
        index, prefix = FLOWS_OF_NAMESPACE, (machine.namespace(request.namespace),)
    if request.status is not None:
        word = check_word(request.status, FlowStatus, field="status")
        index = FLOWS_OF_BOTH if prefix else FLOWS_IN_STATE
        prefix = (*prefix, _STATE_OF_STATUS[word].value)
    search = Search(
        index,
        (prefix,),
        after=after,
        limit=limit + 1,
        is_backwards=newest_first,
        skips_corrupt=True,
    )
    rows = await machine.read(lambda reader: reader.search(search))
    return _FLOWS.page(rows, limit, place_of=FLOWS.key_of, show=_listing)


@answers(api.ListFlowMembers)
async def list_flow_members(
    machine: Machine, request: api.ListFlowMembers
) -> tuple[MemberInfo, ...]:
    """Members in the order of the graph."""
    flow = check_uuid(request.flow_id)

    async def work(reader: Reader) -> tuple[MemberInfo, ...]:
        await require_flow(reader, flow)
        rows = await reader.peek_rows(MEMBERS, [(flow,)])
        found = await reader.get([key[1] for key in rows])
        members = sorted(rows.values(), key=lambda each: (each.rank, each.execution_id))
        return tuple(
            _member(row, execution)
            for row in members
            if isinstance(execution := found.get(row.execution_id), Execution)
        )

    return await machine.read(work)


@answers(api.ListEdges)
async def list_edges(machine: Machine, request: api.ListEdges) -> Page[EdgeSnapshot]:
    """Edges of one end, or all of the flow."""
    flow, limit = check_uuid(request.flow_id), check_limit(request.limit)
    after = _EDGES.place(request.cursor)
    from_node, to_node = request.from_node, request.to_node
    if from_node is not None and to_node is not None:
        raise InvalidInput("to_node: give one of from_node and to_node", field="to_node")
    named = "from_node" if from_node is not None else "to_node"
    end = from_node if from_node is not None else to_node
    index, prefix = by_key(EDGES), flow
    if end is not None:
        check_execution_id(end, partitions=machine.store.partitions, field=named)
        index, prefix = EDGES_FROM if from_node is not None else EDGES_TO, end
    search = Search(
        index,
        ((prefix,),),
        after=after,
        limit=limit + 1,
        only=(("flow_id", flow),),
        skips_corrupt=True,
    )

    async def work(reader: Reader) -> Page[EdgeSnapshot]:
        rows = await reader.search(search)
        members = await _members_below(reader, rows)
        return _EDGES.page(
            rows,
            limit,
            place_of=lambda row: (row.edge_id,),
            show=lambda row: _edge(row, members.get(_below(row))),
        )

    return await machine.read(work)


@answers(api.DescribeEdge)
async def describe_edge(machine: Machine, request: api.DescribeEdge) -> EdgeSnapshot | None:
    """One edge."""
    key = (check_uuid(request.flow_id), check_uuid(request.edge_id, field="edge_id"))

    async def work(reader: Reader) -> EdgeSnapshot | None:
        row = (await reader.peek_rows(EDGES, [key])).get(key)
        if row is None:
            return None
        return _edge(row, (await _members_below(reader, [row])).get(_below(row)))

    return await machine.read(work)


@answers(api.ResolveExecutionFlowId)
async def resolve_execution_flow_id(
    machine: Machine, request: api.ResolveExecutionFlowId
) -> str | None:
    """The flow in the execution's record."""
    execution = await _member_of(machine, request.execution_id)
    return None if execution is None else execution.flow_id


@answers(api.GetFlowTag)
async def get_flow_tag(machine: Machine, request: api.GetFlowTag) -> str | None:
    """One tag."""
    flow, name = check_uuid(request.flow_id), check_tag_key(request.key)
    row = await machine.read(lambda reader: _flow(reader, flow))
    return None if row is None else row.tags.get(name)


@answers(api.EvaluateFlowEligibility)
async def evaluate_flow_eligibility(
    machine: Machine, request: api.EvaluateFlowEligibility
) -> EligibilityStatus:
    """Decided by its own state first, then by its group."""
    execution = await _member_of(machine, request.execution_id)
    if execution is None:
        return EligibilityStatus("not_found")
    if not execution.is_runnable:  # an owned or ended one is not runnable either
        return EligibilityStatus("not_runnable")
    return EligibilityStatus(await _judge(machine, execution))


async def _judge(machine: Machine, execution: Execution) -> str:
    if execution.flow_id is None:
        return "eligible"
    key = (execution.flow_id, execution.execution_id)
    row = (await machine.read(lambda reader: members_as_met(reader, key))).get(key)
    if row is None or (not row.total and not row.open_children):
        return "eligible"
    stands = row.group_state
    if row.total and stands is GroupState.PENDING:
        stands = judged(row)
    if stands is GroupState.IMPOSSIBLE:
        return "impossible"
    waits = execution.has_open_group or (row.total and stands is GroupState.PENDING)
    return "blocked_by_dependencies" if waits else "eligible"


@answers(api.WaitForFlow)
async def wait_for_flow(machine: Machine, request: api.WaitForFlow) -> FlowSnapshot:
    """Read, and read again after each hint, until it is over or the time is up."""
    flow, until = check_uuid(request.flow_id), wait_until(request.wait_ms)
    with machine.wakeups.listening((flow_topic(flow),)) as woken:
        while True:
            row = await machine.read(lambda reader: require_flow(reader, flow))
            if row.finished_at is not None:
                return snapshot(row, final_counts(row), [], machine.store.partitions)
            pause = min(left_s(until), machine.config.poll_interval_ms / 1000)
            if pause <= 0:
                left = row.node_count - row.ended_count
                detail = f"flow {flow} has {left} members left"
                raise WaitTimeout(detail, public_flow_state=row.public_flow_state.value)
            await wait_event(woken, pause)


async def _member_of(machine: Machine, execution_id: str) -> Execution | None:
    key = machine.check_id(execution_id)
    found = (await machine.read(lambda reader: reader.get((key,)))).get(key)
    return found if isinstance(found, Execution) else None


async def _flow(reader: Reader, flow_id: str) -> FlowRow | None:
    return (await reader.peek_rows(FLOWS, [(flow_id,)])).get((flow_id,))


async def require_flow(reader: Reader, flow_id: str) -> FlowRow:
    """The row of a flow, or a refusal."""
    row = await _flow(reader, flow_id)
    if row is None:
        raise NotFound(f"flow {flow_id}", entity="flow", flow_id=flow_id)
    return row


async def _counts(reader: Reader, flow_id: str) -> dict[PublicState, int]:
    return {PublicState(state): n for state, n in await reader.count_members(flow_id)}


def _live_state(flow: FlowRow, counts: dict[PublicState, int]) -> FlowState:
    """Open, running or blocked, derived from its members."""
    if flow.public_flow_state is not FlowState.OPEN:
        return flow.public_flow_state
    if counts.get(PublicState.ACTIVE):
        return FlowState.RUNNING
    if any(counts.get(state) for state in _BLOCKED):
        return FlowState.BLOCKED
    return FlowState.OPEN


def snapshot(
    flow: FlowRow,
    counts: dict[PublicState, int],
    groups: list[EdgeGroupSnapshot],
    partitions: int,
) -> FlowSnapshot:
    """A flow as it is shown, with the exact numbers of its members."""
    return FlowSnapshot(
        flow.flow_id,
        flow.flow_kind,
        flow.namespace,
        _live_state(flow, counts),
        flow.graph_revision,
        flow.node_count,
        flow.edge_count,
        flow.created_at,
        flow.last_mutation_at,
        flow.finished_at,
        flow.cancelled_at,
        flow.cancel_reason,
        flow.cancellation_policy,
        flow.tags,
        counts,
        tuple(groups),
        flow_successors_told(flow, partitions),
    )


def edge_group(member: MemberRow) -> EdgeGroupSnapshot:
    """The group of a member's inbound edges, as it is shown."""
    return EdgeGroupSnapshot(
        member.execution_id,
        member.node_name,
        member.joins,
        member.size,
        member.succeeded,
        member.failed,
        member.skipped,
        member.total - member.resolved,
        member.staged,
        member.group_state,
        member.satisfied_at,
    )


def _listing(flow: FlowRow) -> FlowListing:
    return FlowListing(
        flow.flow_id,
        flow.flow_kind,
        flow.namespace,
        flow.created_at,
        status_of(flow.public_flow_state),
        flow.node_count,
        flow.ended_count,
    )


def _member(row: MemberRow, execution: Execution) -> MemberInfo:
    reason = execution.failure_reason or execution.cancellation_reason or execution.blocking_detail
    return MemberInfo(
        row.execution_id,
        row.node_name,
        execution.execution_kind,
        execution.public_state,
        row.rank,
        row.parent_id,
        execution.total_attempt_count,
        reason,
    )


async def _members_below(reader: Reader, edges: Sequence[EdgeRow]) -> Mapping[Key, MemberRow]:
    """The downstreams of edges: their groups have the edges' policy."""
    keys = sorted({_below(each) for each in edges})
    return await reader.peek_rows(MEMBERS, keys) if keys else {}


def _below(edge: EdgeRow) -> Key:
    return (edge.flow_id, edge.downstream_execution_id)


def _edge(edge: EdgeRow, member: MemberRow | None) -> EdgeSnapshot:
    return EdgeSnapshot(
        edge.edge_id,
        edge.flow_id,
        edge.upstream_execution_id,
        edge.downstream_execution_id,
        edge.dependency_kind,
        satisfaction_of(ALL_SUCCEEDED if member is None else member.joins),
        edge.data_passing_ref,
        edge.input_name,
        edge.edge_state,
        edge.created_at,
        edge.resolved_at,
    )
