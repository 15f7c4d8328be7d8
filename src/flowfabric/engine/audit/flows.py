"""The audit of flows behind `ff doctor`: counters against rows, and members that wait for
nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from flowfabric.engine.unit.corrupt import readable
from flowfabric.errors import Corruption
from flowfabric.kernel.flow.flow import ended_state
from flowfabric.kernel.flow.join import as_met, is_open, is_unneeded, judged, keeps_back
from flowfabric.limits import PAGE_MAX
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    COUNTER_OF_OUTCOME,
    EdgeRow,
    EdgeState,
    FlowRow,
    GroupState,
    MemberRow,
    TaskKind,
    TaskRow,
)
from flowfabric.model.state import BlockingReason
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import EDGES, FLOW_TASKS, FLOWS, MEMBERS, AnyTable, Key

FLOWS_AT_ONCE = 50
OVERDUE_MS = 60_000  # by then the loops of any engine would have done it
FORGOTTEN_MS = 600_000  # by then a program that builds a graph has made its next step
Finding = tuple[str, str]  # the row, and its defect


async def audit_flows(reader: Reader) -> list[Finding]:
    """Wrong counters, members that nothing will move, rows that belong to no flow.

    Rows that cannot be decoded are reported elsewhere.
    """
    await reader.catalog()  # also reads the clock
    problems: list[Finding] = []
    after: Key | None = None
    while page := await _page(reader, FLOWS, after, FLOWS_AT_ONCE):
        try:
            graphs = await _graphs(reader, page)
        except Corruption:  # one by one: flows with rows that cannot be decoded are left out
            graphs = [graph for flow in page for graph in await _graph(reader, flow)]
        for graph in graphs:
            problems += graph.problems(reader.now)
        after = FLOWS.key_of(page[-1])
    for table in (MEMBERS, EDGES, FLOW_TASKS):
        problems += await _orphans(reader, table)
    return problems


async def _page(reader: Reader, table: AnyTable, after: Key | None, limit: int) -> list[Any]:
    search: Search[Any] = Search(by_key(table), after=after, limit=limit, skips_corrupt=True)
    return await reader.search(search)


async def _graph(reader: Reader, flow: FlowRow) -> list[_Graph]:
    try:
        return await _graphs(reader, [flow])
    except Corruption:
        return []


async def strays(reader: Reader, executions: Iterable[Execution]) -> list[Finding]:
    """Executions that name a flow in which they have no row."""
    said = [
        (each.flow_id, each.execution_id)
        for each in executions
        if each.flow_id is not None and each.purge_at is None
    ]
    known, spoiled = await readable(reader.peek_rows, MEMBERS, said)
    lost = [key for key in said if key not in known and key not in spoiled]
    return [(key[1], f"is no member of its flow {key[0]}") for key in lost]


async def _orphans(reader: Reader, table: AnyTable) -> list[Finding]:
    problems: list[Finding] = []
    after: Key | None = None
    while page := await _page(reader, table, after, PAGE_MAX):
        named = sorted({(row.flow_id,) for row in page})
        known, spoiled = await readable(reader.peek_rows, FLOWS, named)
        lost = (row for row in page if (row.flow_id,) not in {**known, **spoiled})
        problems += [(table.name, f"{table.key_of(row)} belongs to no flow") for row in lost]
        after = table.key_of(page[-1])
    return problems


async def _graphs(reader: Reader, flows: list[FlowRow]) -> list[_Graph]:
    keys = [(flow.flow_id,) for flow in flows]
    members = await reader.peek_rows(MEMBERS, keys)
    edges = await reader.peek_rows(EDGES, keys)
    tasks = await reader.peek_rows(FLOW_TASKS, keys)
    found = await reader.get(sorted({key[1] for key in members}))
    executions = {key: each for key, each in found.items() if isinstance(each, Execution)}
    return [
        _Graph(
            flow,
            _of(flow, members.values()),
            _of(flow, edges.values()),
            _of(flow, tasks.values()),
            executions,
        )
        for flow in flows
    ]


def _of(flow: FlowRow, rows: Iterable[Any]) -> list[Any]:
    return [row for row in rows if row.flow_id == flow.flow_id]


class _Graph:
    """One flow with all its rows."""

    def __init__(
        self,
        flow: FlowRow,
        members: list[MemberRow],
        edges: list[EdgeRow],
        tasks: list[TaskRow],
        executions: dict[str, Execution],
    ) -> None:
        self.flow = flow
        self.edges = edges
        self.tasks = tasks
        self.deferred = {(each.kind, each.execution_id) for each in tasks}
        self.inbound: defaultdict[str, list[EdgeRow]] = defaultdict(list)
        for edge in edges:
            self.inbound[edge.downstream_execution_id].append(edge)
        self.members = as_met({each.execution_id: each for each in members}, edges)
        self.executions = {key: executions[key] for key in self.members if key in executions}

    def problems(self, now: int) -> list[Finding]:
        """The defects; a flow with a purge under way is incomplete and is skipped."""
        if self.flow.due_at is not None and self.flow.due_at <= now:
            return []
        children = Counter(
            each.parent_id
            for key, each in self.members.items()
            if key in self.executions and not self.executions[key].is_terminal
        )
        found = [*self._counts(), *self._state(), *self._edges(), *self._tasks(now)]
        for key, member in self.members.items():
            words = self._group(member)
            if member.open_children != children[key]:
                words.append(f"counts {member.open_children} open children, has {children[key]}")
            execution = self.executions.get(key)
            if execution is None:
                words.append("there is no such execution")
            else:
                words += self._waits(member, execution)
                words += self._forgotten(member, execution, now)
            found += [(f"member {key}", what) for what in words]
        return found

    def _counts(self) -> list[Finding]:
        flow = self.flow
        ended = Counter(
            COUNTER_OF_OUTCOME[each.state.terminal_outcome]
            for each in self.executions.values()
            if each.is_terminal
        )
        rows = {
            "node_count": len(self.members),
            "edge_count": len(self.edges),
            "child_count": sum(each.parent_id is not None for each in self.members.values()),
            "unneeded_count": sum(map(is_unneeded, self.executions.values())),
            **{name: ended[name] for name in COUNTER_OF_OUTCOME.values()},
        }
        return [
            (f"flow {flow.flow_id}", f"{name} is {getattr(flow, name)}, the rows say {number}")
            for name, number in rows.items()
            if getattr(flow, name) != number
        ]

    def _state(self) -> list[Finding]:
        flow = self.flow
        over = flow.node_count > 0 and flow.ended_count == flow.node_count
        wrong = flow.public_flow_state is not ended_state(flow) if over else _is_ended(flow)
        if wrong or (over and flow.finished_at is None):
            left = flow.node_count - flow.ended_count
            what = f"is {flow.public_flow_state.value} with {left} members left"
            return [(f"flow {flow.flow_id}", what)]
        return []

    def _edges(self) -> list[Finding]:
        found = []
        for edge in self.edges:
            name = f"edge {edge.edge_id}"
            ends = (edge.upstream_execution_id, edge.downstream_execution_id)
            strange = [end for end in ends if end not in self.members]
            found += [(name, f"{end} is not a member of its flow") for end in strange]
            upstream = self.executions.get(edge.upstream_execution_id)
            if upstream is None or not upstream.is_terminal:
                continue
            is_deferred = (TaskKind.CASCADE, upstream.execution_id) in self.deferred
            if is_open(edge, upstream.replay_count) and not is_deferred:
                found.append((name, "its upstream has ended and no task will count it"))
        return found

    def _tasks(self, now: int) -> list[Finding]:
        late = [each for each in self.tasks if each.due_at < now - OVERDUE_MS]
        strange = [each for each in self.tasks if each.execution_id not in self.members]
        return [
            *((f"task {each.kind} {each.execution_id}", f"due at {each.due_at}") for each in late),
            *((f"task {each.kind} {each.execution_id}", "of no member") for each in strange),
        ]

    def _group(self, member: MemberRow) -> list[str]:
        states = Counter(edge.edge_state for edge in self.inbound[member.execution_id])
        staged = states.pop(EdgeState.PENDING, 0)
        rows = {
            "staged": (member.staged, staged),
            "total": (member.total, states.total()),
            "succeeded": (member.succeeded, states[EdgeState.SATISFIED]),
            "failed and skipped": (member.failed + member.skipped, states[EdgeState.IMPOSSIBLE]),
        }
        words = [
            f"its group counts {said} {name}, the edges say {number}"
            for name, (said, number) in rows.items()
            if said != number
        ]
        pending = member.total > 0 and member.group_state is GroupState.PENDING
        met = judged(member) is GroupState.SATISFIED
        if pending and (met or member.resolved >= member.size):
            words.append("its group is pending, though its edges have decided it")
        return words

    def _waits(self, member: MemberRow, execution: Execution) -> list[str]:
        """A live member waits for a dependency, and runs only when its group lets it."""
        key, words = member.execution_id, []
        if execution.flow_id != member.flow_id:
            words.append(f"the execution says it belongs to {execution.flow_id}")
        if not execution.is_runnable:
            return words
        undecided = member.total > 0 and member.group_state is GroupState.PENDING
        if undecided and not execution.has_open_group:
            words.append("is free to run, though its group is pending")
        woken = (TaskKind.WAKE_PARENT, key) in self.deferred
        if execution.has_open_group and not keeps_back(member) and not woken:
            words.append("waits for others to end, and there are none")
        paused = execution.state.blocking_reason is BlockingReason.PAUSED_BY_FLOW_CANCEL
        if paused and (TaskKind.CANCEL_MEMBER, key) not in self.deferred:
            words.append("is paused by the cancel of its flow, and no task will cancel it")
        return words

    def _forgotten(self, member: MemberRow, execution: Execution, now: int) -> list[str]:
        """Members that wait only for edges that were staged long ago and never applied."""
        edges = self.inbound[member.execution_id]
        staged = [edge for edge in edges if edge.edge_state is EdgeState.PENDING]
        if not execution.has_open_group or not staged or member.resolved < member.total:
            return []
        late = [edge for edge in staged if edge.created_at < now - FORGOTTEN_MS]
        return [
            f"waits for edge {edge.edge_id} from {edge.upstream_execution_id}, which was staged"
            " and never applied: apply or withdraw it"
            for edge in late
        ]


def _is_ended(flow: FlowRow) -> bool:
    """Whether a flow's counters say that all its members have ended."""
    if flow.node_count == 0:
        return False  # a flow cancelled while it was empty is over
    return flow.finished_at is not None or flow.public_flow_state.value in ("completed", "failed")
