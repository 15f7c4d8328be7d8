"""Flows: executions that depend on each other, the edges between them and the groups they join.

A flow's row is the lock of its graph: a transaction that changes edges, groups or counts has locked
it. Each member has one row, which holds the group of its inbound edges as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_integer
from flowfabric.model.columns import Instant
from flowfabric.model.record import Record, convert, to_plain
from flowfabric.model.state import PUBLIC_OF_OUTCOME, PublicState, TerminalOutcome
from flowfabric.model.successor import FlowHooks

SIBLING_SATISFIED = "sibling_quorum_satisfied"  # why a loser was cancelled: its join was met
SUCCESS_ONLY = "success_only"  # the only kind of dependency there is
FLOW_CANCELLED = "flow_cancelled"  # the reason of a cancel that gives none
THRESHOLD_MAX = 2**31 - 1


class FlowState(StrEnum):
    """The state of a flow. Open, running and blocked are derived on reading."""

    OPEN = "open"
    RUNNING = "running"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether its graph is closed."""
        return self in (FlowState.COMPLETED, FlowState.FAILED, FlowState.CANCELLED)


class FlowStatus(StrEnum):
    """The state shown in a listing."""

    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EdgeState(StrEnum):
    """The state of one dependency."""

    PENDING = "pending"  # staged: it does not block its child yet, but its group waits for it
    APPLIED = "applied"
    SATISFIED = "satisfied"
    IMPOSSIBLE = "impossible"


class GroupState(StrEnum):
    """The state of all dependencies of one member together."""

    PENDING = "pending"
    SATISFIED = "satisfied"
    IMPOSSIBLE = "impossible"


class OnSatisfied(StrEnum):
    """What happens to the remaining upstreams when a group is decided."""

    CANCEL_REMAINING = "cancel_remaining"
    LET_RUN = "let_run"


class CancellationPolicy(StrEnum):
    """Which members a cancelled flow cancels."""

    CANCEL_ALL = "cancel_all"
    CANCEL_PENDING = "cancel_pending"
    FLOW_ONLY = "cancel_flow_only"


class AllSucceeded(Record, frozen=True, tag="all_of", tag_field="kind"):
    """Every upstream must succeed."""


class AllDone(Record, frozen=True, tag="all_done", tag_field="kind"):
    """Every upstream must end, in whatever way."""


class AnySucceeded(Record, frozen=True, tag="any_of", tag_field="kind"):
    """One success is enough."""

    on_satisfied: OnSatisfied
    only_if_unshared: bool = False  # spare siblings that other members still wait for


class Quorum(Record, frozen=True, tag="quorum", tag_field="kind"):
    """The given number of successes is enough."""

    k: int
    on_satisfied: OnSatisfied
    only_if_unshared: bool = False

    def __post_init__(self) -> None:
        check_integer(self.k, field="policy.k", least=1, most=THRESHOLD_MAX)


EdgePolicy = AllSucceeded | AllDone | AnySucceeded | Quorum
ALL_SUCCEEDED = AllSucceeded()


class FlowRow(Record, frozen=True):
    """One flow, with the exact number of members that ended in each way."""

    flow_id: str
    namespace: str
    flow_kind: str
    public_flow_state: FlowState  # open or terminal
    created_at: Instant
    last_mutation_at: Instant
    graph_revision: int = 0
    node_count: int = 0
    edge_count: int = 0
    completed_count: int = 0
    failed_count: int = 0
    cancelled_count: int = 0
    expired_count: int = 0
    skipped_count: int = 0
    unneeded_count: int = 0  # of the cancelled: a group that was satisfied did not need them
    child_count: int = 0  # members that another member spawned
    retention_ms: int | None = None  # None: the engine's; the longest of its members' counts
    finished_at: Instant | None = None
    cancelled_at: Instant | None = None
    cancel_reason: str | None = None
    cancellation_policy: CancellationPolicy | None = None
    due_at: Instant | None = None  # when it is purged as a whole
    tags: Mapping[str, str] = {}
    hooks: FlowHooks | None = None  # what follows its end

    @property
    def ended_count(self) -> int:
        """How many members have ended."""
        return (
            self.completed_count
            + self.failed_count
            + self.cancelled_count
            + self.expired_count
            + self.skipped_count
        )


class MemberRow(Record, frozen=True):
    """One member of a flow and the group of its inbound edges."""

    flow_id: str
    execution_id: str
    node_name: str = ""
    rank: int = 0  # every edge leads from a lower to a higher rank
    parent_id: str | None = None  # the execution that spawned it
    open_children: int = 0  # the number of open members it spawned
    policy: EdgePolicy | None = None  # None: never set, which means all_of
    staged: int = 0  # edges that were staged and not applied yet
    total: int = 0  # edges that were applied
    passing: int = 0  # edges, staged or applied, that pass their upstream's result on
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    group_state: GroupState = GroupState.PENDING
    generation: int = 0  # rises when a replay reopens the group
    satisfied_at: Instant | None = None  # when it was decided

    @property
    def size(self) -> int:
        """How many edges its group has, staged ones included: it is not complete without them."""
        return self.total + self.staged

    @property
    def resolved(self) -> int:
        """How many edges have been resolved."""
        return self.succeeded + self.failed + self.skipped

    @property
    def unresolved(self) -> int:
        """How many edges its group still waits for, staged ones included."""
        return self.size - self.resolved

    @property
    def joins(self) -> EdgePolicy:
        """The policy by which it waits."""
        return ALL_SUCCEEDED if self.policy is None else self.policy


class EdgeRow(Record, frozen=True):
    """One dependency between two members."""

    flow_id: str
    edge_id: str
    upstream_execution_id: str
    downstream_execution_id: str
    dependency_kind: str
    edge_state: EdgeState
    created_at: Instant
    data_passing_ref: str | None = None
    input_name: str | None = None  # the name under which the result arrives
    applied_at: Instant | None = None
    resolved_at: Instant | None = None
    resolved_generation: int | None = None  # the generation of the upstream that resolved it
    is_sole: int = 0  # 1: its downstream waits for this success alone, and gets no input from it

    @property
    def decides_alone(self) -> bool:
        """Whether its upstream's success alone satisfies the downstream's group."""
        return self.is_sole == 1


class EdgeAhead(Record, frozen=True):
    """The part of an edge that a cascade reads: a wide cascade reads thousands."""

    flow_id: str
    edge_id: str
    upstream_execution_id: str
    downstream_execution_id: str
    edge_state: EdgeState
    resolved_at: Instant | None = None
    resolved_generation: int | None = None
    is_sole: int = 0

    @property
    def decides_alone(self) -> bool:
        """Whether its upstream's success alone satisfies the downstream's group."""
        return self.is_sole == 1


class TaskKind(StrEnum):
    """Deferred flow work: the part a transaction could not finish."""

    CASCADE = "cascade"  # resolve the outgoing edges of an execution that ended
    CANCEL_SIBLINGS = "cancel_siblings"  # of this execution's group
    CANCEL_CHILDREN = "cancel_children"  # of this parent
    CANCEL_MEMBER = "cancel_member"
    WAKE_PARENT = "wake_parent"  # all its children have ended


class TaskRow(Record, frozen=True):
    """One deferred task; it survives any crash and is done by the next pass of the loop."""

    flow_id: str
    kind: TaskKind
    execution_id: str
    reason: str
    tries: int
    due_at: Instant


class FlowEventType(StrEnum):
    """Changes of a flow as a whole."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REOPENED = "reopened"


class FlowEvent(Record, frozen=True):
    """One change of a flow's authoritative state."""

    flow_id: str
    event_type: FlowEventType
    namespace: str
    tags: Mapping[str, str]
    occurred_at: Instant


COUNTER_OF_OUTCOME = {
    TerminalOutcome.SUCCESS: "completed_count",
    TerminalOutcome.FAILED: "failed_count",
    TerminalOutcome.CANCELLED: "cancelled_count",
    TerminalOutcome.EXPIRED: "expired_count",
    TerminalOutcome.SKIPPED: "skipped_count",
}


def final_counts(flow: FlowRow) -> dict[PublicState, int]:
    """How many members ended in each state, without the states in which none did."""
    counts = {
        PUBLIC_OF_OUTCOME[outcome]: getattr(flow, name)
        for outcome, name in COUNTER_OF_OUTCOME.items()
    }
    return {state: number for state, number in counts.items() if number}


def status_of(state: FlowState) -> FlowStatus:
    """The state shown in a listing."""
    return FlowStatus(state.value) if state.is_terminal else FlowStatus.ACTIVE


def check_edge_policy(value: object, *, field: str = "policy") -> EdgePolicy:
    """One of the policies; anything else is refused."""
    if not isinstance(value, AllSucceeded | AllDone | AnySucceeded | Quorum):
        known = "AllSucceeded, AllDone, AnySucceeded or Quorum"
        raise InvalidInput(f"{field}: expected {known}, got {type(value).__name__}", field=field)
    return convert(to_plain(value, field=field), EdgePolicy, field=field)  # type: ignore[arg-type]
