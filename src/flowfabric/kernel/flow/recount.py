"""The counters of a flow against its rows, and what would be left undone for ever.

Doctor reports all of it; `repair.py` sets right what the rows prove.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from flowfabric.kernel.flow.flow import ended_state
from flowfabric.kernel.flow.join import (
    as_met,
    cancels_siblings,
    is_open,
    is_unneeded,
    judged,
    keeps_back,
    sibling_reason,
    spares_shared,
)
from flowfabric.kernel.repair import told
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
from flowfabric.model.record import Record
from flowfabric.model.repair import Correction
from flowfabric.model.state import BlockingReason, TerminalOutcome

OVERDUE_MS = 60_000  # by then the loops of any engine would have done it
FORGOTTEN_MS = 600_000  # by then a program that builds a graph has made its next step
_PENDING = GroupState.PENDING


class Finding(Record, frozen=True):
    """A defect: the row, what is wrong, and the correction where the rows prove one."""

    subject: str
    detail: str
    correction: Correction | None = None


class Missing(Record, frozen=True):
    """Deferred work that should be there and is not."""

    kind: TaskKind
    execution_id: str
    reason: str
    finding: Finding


class GraphRows:
    """One flow with all its rows, members as they stand."""

    def __init__(
        self,
        flow: FlowRow,
        members: Iterable[MemberRow],
        edges: Iterable[EdgeRow],
        tasks: Iterable[TaskRow],
        executions: Mapping[str, Execution],
    ) -> None:
        self.flow = flow
        self.edges = list(edges)
        self.tasks = list(tasks)
        self.deferred = {(each.kind, each.execution_id) for each in self.tasks}
        self.inbound: defaultdict[str, list[EdgeRow]] = defaultdict(list)
        for edge in self.edges:
            self.inbound[edge.downstream_execution_id].append(edge)
        self.members = as_met({each.execution_id: each for each in members}, self.edges)
        self.executions = {key: executions[key] for key in self.members if key in executions}

    def is_going(self, now: int) -> bool:
        """Whether its purge is under way: then it is incomplete, and nothing is wrong."""
        return self.flow.due_at is not None and self.flow.due_at <= now

    # --- what the rows say ---------------------------------------------------------------------

    @cached_property
    def counts(self) -> dict[str, int]:
        """The flow's counters."""
        ended = Counter(
            COUNTER_OF_OUTCOME[each.state.terminal_outcome]
            for each in self.executions.values()
            if each.is_terminal
        )
        return {
            "node_count": len(self.members),
            "edge_count": len(self.edges),
            "child_count": sum(each.parent_id is not None for each in self.members.values()),
            "unneeded_count": sum(map(is_unneeded, self.executions.values())),
            **{name: ended[name] for name in COUNTER_OF_OUTCOME.values()},
        }

    @cached_property
    def open_children(self) -> Counter[str | None]:
        """The open children of each parent."""
        return Counter(
            each.parent_id
            for key, each in self.members.items()
            if key in self.executions and not self.executions[key].is_terminal
        )

    def group_of(self, member: MemberRow) -> dict[str, int]:
        """The counters of a member's group. Which of the lost upstreams were skipped is only looked
        up where their number is wrong."""
        edges = self.inbound[member.execution_id]
        states = Counter(edge.edge_state for edge in edges)
        staged, lost = states.pop(EdgeState.PENDING, 0), states[EdgeState.IMPOSSIBLE]
        skipped = member.skipped
        if member.failed + skipped != lost:
            skipped = sum(
                edge.edge_state is EdgeState.IMPOSSIBLE and self._is_skipped(edge) for edge in edges
            )
        return {
            "staged": staged,
            "total": states.total(),
            "succeeded": states[EdgeState.SATISFIED],
            "failed": lost - skipped,
            "skipped": skipped,
            "open_children": self.open_children[member.execution_id],
        }

    def _is_skipped(self, edge: EdgeRow) -> bool:
        upstream = self.executions.get(edge.upstream_execution_id)
        return upstream is not None and upstream.state.terminal_outcome is TerminalOutcome.SKIPPED

    def live_siblings(self, member: MemberRow) -> list[str]:
        """What still runs for a member's group."""
        return [
            edge.upstream_execution_id
            for edge in self.inbound[member.execution_id]
            if edge.edge_state is EdgeState.APPLIED
            and (upstream := self.executions.get(edge.upstream_execution_id)) is not None
            and not upstream.is_terminal
        ]


# --- findings ------------------------------------------------------------------------------------


def findings(rows: GraphRows, now: int) -> list[Finding]:
    """The defects of a flow."""
    if rows.is_going(now):
        return []
    found = [*of_counts(rows), *_of_state(rows), *_of_edges(rows), *_of_tasks(rows, now)]
    found += [each.finding for each in missing_work(rows)]
    for key, member in rows.members.items():
        found += _of_group(rows, member)
        execution = rows.executions.get(key)
        if execution is None:
            found.append(Finding(f"member {key}", "there is no such execution"))
        else:
            found += _of_wait(rows, member, execution)
            found += _of_forgotten(rows, member, execution, now)
    return found


def _correct(subject: str, counter: str, before: int | str, after: int | str) -> Finding:
    correction = Correction(subject, counter, before, after)
    return Finding(subject, told(correction), correction)


def of_counts(rows: GraphRows) -> list[Finding]:
    """The flow's own counters that differ."""
    flow = rows.flow
    return [
        _correct(f"flow {flow.flow_id}", name, getattr(flow, name), number)
        for name, number in rows.counts.items()
        if getattr(flow, name) != number
    ]


def _of_state(rows: GraphRows) -> list[Finding]:
    """The state must follow from the counters as they are."""
    flow = rows.flow
    over = flow.node_count > 0 and flow.ended_count == flow.node_count
    wrong = flow.public_flow_state is not ended_state(flow) if over else _is_ended(flow)
    if wrong or (over and flow.finished_at is None):
        left = flow.node_count - flow.ended_count
        what = f"is {flow.public_flow_state.value} with {left} members left"
        return [Finding(f"flow {flow.flow_id}", what)]
    return []


def _is_ended(flow: FlowRow) -> bool:
    """Whether a flow says that all its members have ended."""
    if flow.node_count == 0:
        return False  # a flow cancelled while it was empty is over
    return flow.finished_at is not None or flow.public_flow_state.value in ("completed", "failed")


def _of_edges(rows: GraphRows) -> list[Finding]:
    return [
        Finding(f"edge {edge.edge_id}", f"{end} is not a member of its flow")
        for edge in rows.edges
        for end in (edge.upstream_execution_id, edge.downstream_execution_id)
        if end not in rows.members
    ]


def _of_tasks(rows: GraphRows, now: int) -> list[Finding]:
    late = [each for each in rows.tasks if each.due_at < now - OVERDUE_MS]
    strange = [each for each in rows.tasks if each.execution_id not in rows.members]
    return [
        *(
            Finding(f"task {each.kind} {each.execution_id}", f"due at {each.due_at}")
            for each in late
        ),
        *(Finding(f"task {each.kind} {each.execution_id}", "of no member") for each in strange),
    ]


def _of_group(rows: GraphRows, member: MemberRow) -> list[Finding]:
    subject = f"member {member.execution_id}"
    found = [
        _correct(subject, name, getattr(member, name), number)
        for name, number in rows.group_of(member).items()
        if getattr(member, name) != number
    ]
    if is_undecided(member):
        stands = judged(member)
        correction = Correction(subject, "group_state", _PENDING.value, stands.value)
        what = "its group is pending, though its edges have decided it"
        found.append(Finding(subject, what, correction))
    return found


def is_undecided(member: MemberRow) -> bool:
    """Whether a group's counters have decided it, and the group does not say so."""
    pending = member.total > 0 and member.group_state is _PENDING
    met = judged(member) is GroupState.SATISFIED
    return pending and (met or member.resolved >= member.size)


def _of_wait(rows: GraphRows, member: MemberRow, execution: Execution) -> list[Finding]:
    """A live member waits for a dependency, and runs only when its group lets it."""
    subject, found = f"member {member.execution_id}", []
    if execution.flow_id != member.flow_id:
        found.append(Finding(subject, f"the execution says it belongs to {execution.flow_id}"))
    if not execution.is_runnable:
        return found
    undecided = member.total > 0 and member.group_state is _PENDING
    if undecided and not execution.has_open_group:
        found.append(Finding(subject, "is free to run, though its group is pending"))
    if waits_in_vain(rows, member, execution):
        correction = None
        if judged(member) is _PENDING and member.total:
            word = member.group_state.value
            correction = Correction(subject, "group_state", word, _PENDING.value)
        what = "waits for others to end, and there are none"
        found.append(Finding(subject, what, correction))
    return found


def waits_in_vain(rows: GraphRows, member: MemberRow, execution: Execution) -> bool:
    """Whether a member waits for a group that lets it go, or for no group at all."""
    woken = (TaskKind.WAKE_PARENT, member.execution_id) in rows.deferred
    waits = execution.is_runnable and execution.has_open_group
    return waits and not keeps_back(member) and not woken


def _of_forgotten(
    rows: GraphRows, member: MemberRow, execution: Execution, now: int
) -> list[Finding]:
    """Members that wait only for edges that were staged long ago and never applied."""
    edges = rows.inbound[member.execution_id]
    staged = [edge for edge in edges if edge.edge_state is EdgeState.PENDING]
    if not execution.has_open_group or not staged or member.resolved < member.total:
        return []
    return [
        Finding(
            f"member {member.execution_id}",
            f"waits for edge {edge.edge_id} from {edge.upstream_execution_id}, which was staged"
            " and never applied: apply or withdraw it",
        )
        for edge in staged
        if edge.created_at < now - FORGOTTEN_MS
    ]


# --- deferred work that is missing ---------------------------------------------------------------


def missing_work(rows: GraphRows) -> list[Missing]:
    """Work that no transaction will do, because nothing has deferred it."""
    return [*_missing_cascades(rows), *_missing_cancels(rows), *_missing_siblings(rows)]


def _missing(kind: TaskKind, execution_id: str, reason: str, subject: str, what: str) -> Missing:
    correction = Correction(f"member {execution_id}", f"deferred {kind.value}", 0, 1)
    return Missing(kind, execution_id, reason, Finding(subject, what, correction))


def _missing_cascades(rows: GraphRows) -> Iterator[Missing]:
    for edge in rows.edges:
        upstream = rows.executions.get(edge.upstream_execution_id)
        if upstream is None or not upstream.is_terminal:
            continue
        key = upstream.execution_id
        if is_open(edge, upstream.replay_count) and (TaskKind.CASCADE, key) not in rows.deferred:
            what = "its upstream has ended and no task will count it"
            yield _missing(TaskKind.CASCADE, key, "", f"edge {edge.edge_id}", what)


def _missing_cancels(rows: GraphRows) -> Iterator[Missing]:
    """A member that its flow's cancel keeps from starting waits for its own cancel."""
    for key, execution in rows.executions.items():
        paused = execution.state.blocking_reason is BlockingReason.PAUSED_BY_FLOW_CANCEL
        barred = execution.is_runnable and paused
        if barred and (TaskKind.CANCEL_MEMBER, key) not in rows.deferred:
            what = "is paused by the cancel of its flow, and no task will cancel it"
            reason = execution.blocking_detail
            yield _missing(TaskKind.CANCEL_MEMBER, key, reason, f"member {key}", what)


def _missing_siblings(rows: GraphRows) -> Iterator[Missing]:
    """Upstreams that still run for a decided group. Where shared ones are spared they may have been
    spared: whether others needed them at the time is unknown."""
    for key, member in rows.members.items():
        decided = member.group_state is not _PENDING and cancels_siblings(member)
        is_deferred = (TaskKind.CANCEL_SIBLINGS, key) in rows.deferred
        if not decided or is_deferred or spares_shared(member) or not rows.live_siblings(member):
            continue
        what = "its group is decided, and no task will cancel what still runs for it"
        reason = sibling_reason(member)
        yield _missing(TaskKind.CANCEL_SIBLINGS, key, reason, f"member {key}", what)
