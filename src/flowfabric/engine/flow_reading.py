"""Reads of flows, members and edges."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.hints import flow_topic, wait_event
from flowfabric.clock import monotonic
from flowfabric.engine.core import EngineCore
from flowfabric.errors import InvalidInput, NotFound, WaitTimeout
from flowfabric.kernel.edge_group import as_met, judged, perhaps_met, satisfaction_of
from flowfabric.kernel.explain_flows import DependencyLook
from flowfabric.model.checks import (
    check_execution_id,
    check_flag,
    check_integer,
    check_tag_key,
    check_uuid,
)
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    ALL_OF,
    COUNTER_OF_OUTCOME,
    EdgeRow,
    EdgeState,
    FlowRow,
    FlowState,
    FlowStatus,
    GroupState,
    MemberRow,
    status_of,
)
from flowfabric.model.flow_results import (
    EdgeGroupSnapshot,
    EdgeSnapshot,
    EligibilityStatus,
    FlowListing,
    FlowPage,
    FlowSnapshot,
    FlowSummary,
    MemberInfo,
)
from flowfabric.model.limit_checks import check_word
from flowfabric.model.results import UpstreamInfo
from flowfabric.model.state import PUBLIC_OF_OUTCOME, PublicState
from flowfabric.stores.base import Reader
from flowfabric.stores.tables import EDGES, EDGES_AHEAD, FLOWS, MEMBERS, Key

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


class FlowReading(EngineCore):
    """What there is to see of flows."""

    async def describe_flow(self, *, flow_id: str) -> FlowSnapshot | None:
        """A flow with its counts and the groups of its members, or nothing."""
        flow = check_uuid(flow_id)

        async def work(reader: Reader) -> FlowSnapshot | None:
            row = await _flow(reader, flow)
            if row is None:
                return None
            members = await _members(reader, (flow,))
            groups = [_group(members[key]) for key in sorted(members) if members[key].total]
            return _snapshot(row, await _counts(reader, flow), groups)

        return await self.read(work)

    async def project_flow_summary(self, *, flow_id: str) -> FlowSummary:
        """Exact numbers of members by state."""
        flow = check_uuid(flow_id)

        async def work(reader: Reader) -> FlowSummary:
            row = await _require(reader, flow)
            counts = await _counts(reader, flow)
            return FlowSummary(flow, _live_state(row, counts), row.node_count, counts)

        return await self.read(work)

    async def list_flows(
        self,
        *,
        namespace: str | None = None,
        status: FlowStatus | str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
        newest_first: bool = False,
    ) -> FlowPage:
        """Flows by id, which is by creation; the cursor is the last id seen.

        One whose row cannot be read is left out, as in `list_executions`; `doctor` names it.
        """
        check_integer(limit, field="limit", least=0, most=limits.PAGE_MAX)
        check_flag(newest_first, field="newest_first")
        equal: dict[str, str] = {}
        if namespace is not None:
            equal["namespace"] = self.namespace(namespace)
        if status is not None:
            word = check_word(status, FlowStatus, field="status")
            equal["public_flow_state"] = _STATE_OF_STATUS[word].value
        after = None if cursor is None else (check_uuid(cursor, field="cursor"),)
        rows = await self.read(
            lambda reader: reader.page_rows(
                FLOWS, equal, after, limit + 1, newest_first=newest_first
            )
        )
        shown = rows[:limit]
        more = shown[-1].flow_id if shown and len(rows) > limit else None
        return FlowPage(tuple(map(_listing, shown)), more)

    async def list_flow_members(self, *, flow_id: str) -> tuple[MemberInfo, ...]:
        """Every member with its state, in the order of the graph."""
        flow = check_uuid(flow_id)

        async def work(reader: Reader) -> tuple[MemberInfo, ...]:
            await _require(reader, flow)
            rows = await reader.peek_rows(MEMBERS, [(flow,)])
            found = await reader.get([key[1] for key in rows])
            members = sorted(rows.values(), key=lambda each: (each.rank, each.execution_id))
            return tuple(
                _member(row, execution)
                for row in members
                if isinstance(execution := found.get(row.execution_id), Execution)
            )

        return await self.read(work)

    async def list_edges(
        self, *, flow_id: str, from_node: str | None = None, to_node: str | None = None
    ) -> tuple[EdgeSnapshot, ...]:
        """The edges that leave one member, or lead to one; without either, all of the flow."""
        flow = check_uuid(flow_id)
        if from_node is not None and to_node is not None:
            raise InvalidInput("to_node: give one of from_node and to_node", field="to_node")
        named = "from_node" if from_node is not None else "to_node"
        end = from_node if from_node is not None else to_node
        column = "upstream_execution_id" if from_node is not None else "downstream_execution_id"
        if end is not None:
            check_execution_id(end, partitions=self.store.partitions, field=named)

        async def work(reader: Reader) -> tuple[EdgeSnapshot, ...]:
            if end is None:
                rows = list((await reader.peek_rows(EDGES, [(flow,)])).values())
            else:
                rows = await reader.rows_by(EDGES, column, [end])
            chosen = [each for each in rows if each.flow_id == flow]
            return await _edges(reader, sorted(chosen, key=EDGES.key_of))

        return await self.read(work)

    async def describe_edge(self, *, flow_id: str, edge_id: str) -> EdgeSnapshot | None:
        """One edge with its live state, or nothing."""
        key = (check_uuid(flow_id), check_uuid(edge_id, field="edge_id"))

        async def work(reader: Reader) -> EdgeSnapshot | None:
            found = await _edges(reader, list((await reader.peek_rows(EDGES, [key])).values()))
            return found[0] if found else None

        return await self.read(work)

    async def resolve_execution_flow_id(self, *, execution_id: str) -> str | None:
        """The flow an execution belongs to, if any."""
        execution = await self._member_of(execution_id)
        return None if execution is None else execution.flow_id

    async def get_flow_tag(self, *, flow_id: str, key: str) -> str | None:
        """One tag, or nothing."""
        flow, name = check_uuid(flow_id), check_tag_key(key)
        row = await self.read(lambda reader: _flow(reader, flow))
        return None if row is None else row.tags.get(name)

    async def evaluate_flow_eligibility(self, *, execution_id: str) -> EligibilityStatus:
        """Whether its dependencies let an execution run, judged by its group."""
        execution = await self._member_of(execution_id)
        if execution is None:
            return EligibilityStatus("not_found")
        if not execution.is_runnable:  # what is owned or has ended is not runnable either
            return EligibilityStatus("not_runnable")
        return EligibilityStatus(await self._judge(execution))

    async def _judge(self, execution: Execution) -> str:
        if execution.flow_id is None:
            return "eligible"
        key = (execution.flow_id, execution.execution_id)
        row = (await self.read(lambda reader: _members(reader, key))).get(key)
        if row is None or (not row.total and not row.open_children):
            return "eligible"
        stands = row.group_state
        if row.total and stands is GroupState.PENDING:
            stands = judged(row)
        if stands is GroupState.IMPOSSIBLE:
            return "impossible"
        waits = execution.open_group or (row.total and stands is GroupState.PENDING)
        return "blocked_by_dependencies" if waits else "eligible"

    async def wait_for_flow(self, *, flow_id: str, timeout_ms: int | None = None) -> FlowSnapshot:
        """The flow once all its members have ended; WaitTimeout when that takes too long."""
        flow = check_uuid(flow_id)
        if timeout_ms is not None:
            check_integer(timeout_ms, field="timeout_ms", least=0, most=limits.DURATION_MS_MAX)
        until = None if timeout_ms is None else monotonic() + timeout_ms / 1000
        with self.wakeups.listening((flow_topic(flow),)) as woken:
            while True:
                row = await self.read(lambda reader: _require(reader, flow))
                if row.finished_at is not None:
                    return _snapshot(row, _final_counts(row), [])
                pause = self.config.poll_interval_ms / 1000
                if until is not None:
                    pause = min(pause, until - monotonic())
                    if pause <= 0:
                        left = row.node_count - row.ended_count
                        detail = f"flow {flow} has {left} members left after {timeout_ms} ms"
                        raise WaitTimeout(detail, public_flow_state=row.public_flow_state.value)
                await wait_event(woken, pause)

    async def _member_of(self, execution_id: str) -> Execution | None:
        key = self.check_id(execution_id)
        found = (await self.read(lambda reader: reader.get((key,)))).get(key)
        return found if isinstance(found, Execution) else None


async def look_at_dependencies(execution: Execution, reader: Reader) -> DependencyLook | None:
    """Whom a member waits for; nothing for one that others do not keep back."""
    if execution.flow_id is None or not execution.open_group:
        return None
    flow_id, key = execution.flow_id, execution.execution_id
    member = (await _members(reader, (flow_id, key))).get((flow_id, key))
    if member is None:
        return None
    are_children = bool(member.open_children)
    staged: dict[str, str | None] = {}
    if are_children:
        rows = await reader.rows_by(MEMBERS, "parent_id", [key])
        ids = [each.execution_id for each in rows]
    else:
        staged = await _open_edges(reader, member)
        ids = list(staged)
    found = await reader.get(ids) if ids else {}
    named = await reader.peek_rows(MEMBERS, [(flow_id, each) for each in ids]) if ids else {}
    upstreams = [
        UpstreamInfo(
            each,
            named[flow_id, each].node_name or each,
            upstream.public_state,
            staged.get(each),
        )
        for each in ids
        if isinstance(upstream := found.get(each), Execution) and (flow_id, each) in named
    ]
    if are_children:
        upstreams = [each for each in upstreams if not each.public_state.is_terminal]
    return DependencyLook(member, tuple(upstreams), are_children)


async def _open_edges(reader: Reader, member: MemberRow) -> dict[str, str | None]:
    """The upstreams a member waits for; of edges that are only staged with their ids."""
    found: dict[str, str | None] = {}
    for state in (EdgeState.APPLIED, EdgeState.PENDING) if member.staged else (EdgeState.APPLIED,):
        only = ("edge_state", state.value)
        for edge in await reader.rows_by(
            EDGES, "downstream_execution_id", [member.execution_id], only=only
        ):
            is_staged = state is EdgeState.PENDING
            found.setdefault(edge.upstream_execution_id, edge.edge_id if is_staged else None)
    return found


async def _flow(reader: Reader, flow_id: str) -> FlowRow | None:
    return (await reader.peek_rows(FLOWS, [(flow_id,)])).get((flow_id,))


async def _require(reader: Reader, flow_id: str) -> FlowRow:
    row = await _flow(reader, flow_id)
    if row is None:
        raise NotFound(f"flow {flow_id}", entity="flow", flow_id=flow_id)
    return row


async def _members(reader: Reader, key: Key) -> dict[Key, MemberRow]:
    """Members as they stand, also those whose sole edge says it for them."""
    rows = await reader.peek_rows(MEMBERS, [key])
    asked, only = perhaps_met(rows.values()), ("edge_state", EdgeState.SATISFIED.value)
    if not asked:
        return rows
    edges = await reader.rows_by(EDGES_AHEAD, "downstream_execution_id", asked, only=only)
    return as_met(rows, edges)


async def _counts(reader: Reader, flow_id: str) -> dict[PublicState, int]:
    return {PublicState(state): n for state, n in await reader.count_members(flow_id)}


def _final_counts(flow: FlowRow) -> dict[PublicState, int]:
    """A flow that is over knows how its members ended."""
    counts = {
        PUBLIC_OF_OUTCOME[outcome]: getattr(flow, name)
        for outcome, name in COUNTER_OF_OUTCOME.items()
    }
    return {state: number for state, number in counts.items() if number}


def _live_state(flow: FlowRow, counts: dict[PublicState, int]) -> FlowState:
    """Open, running or blocked are what its members do just now."""
    if flow.public_flow_state is not FlowState.OPEN:
        return flow.public_flow_state
    if counts.get(PublicState.ACTIVE):
        return FlowState.RUNNING
    if any(counts.get(state) for state in _BLOCKED):
        return FlowState.BLOCKED
    return FlowState.OPEN


def _snapshot(
    flow: FlowRow, counts: dict[PublicState, int], groups: list[EdgeGroupSnapshot]
) -> FlowSnapshot:
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
    )


def _group(member: MemberRow) -> EdgeGroupSnapshot:
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


async def _edges(reader: Reader, edges: Sequence[EdgeRow]) -> tuple[EdgeSnapshot, ...]:
    """Edges with what their groups ask of them."""
    keys = sorted({(each.flow_id, each.downstream_execution_id) for each in edges})
    members = await reader.peek_rows(MEMBERS, keys) if keys else {}
    return tuple(
        _edge(each, members.get((each.flow_id, each.downstream_execution_id))) for each in edges
    )


def _edge(edge: EdgeRow, member: MemberRow | None) -> EdgeSnapshot:
    return EdgeSnapshot(
        edge.edge_id,
        edge.flow_id,
        edge.upstream_execution_id,
        edge.downstream_execution_id,
        edge.dependency_kind,
        satisfaction_of(ALL_OF if member is None else member.joins),
        edge.data_passing_ref,
        edge.input_name,
        edge.edge_state,
        edge.created_at,
        edge.resolved_at,
    )
