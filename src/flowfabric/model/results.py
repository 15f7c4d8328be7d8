"""Replies of operations: small frozen structs named after the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowfabric.model.attempt import AttemptType
from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.execution import Execution
from flowfabric.model.handle import Handle
from flowfabric.model.record import Record
from flowfabric.model.route import LaneState
from flowfabric.model.schedule import RunOf
from flowfabric.model.state import BlockingReason, PublicState, StateVector
from flowfabric.model.successor import Origin, SuccessorInfo
from flowfabric.model.trace import Trace

# --- creating ----------------------------------------------------------------------------------


class Created(Record, frozen=True, tag=True):
    """A new execution was recorded."""

    execution_id: str
    public_state: PublicState
    batch_index: int | None = None  # 0 where it begins a batch
    replaced_id: str | None = None  # the one that it replaced, which was cancelled


class Duplicate(Record, frozen=True, tag=True):
    """The idempotency key names an existing execution."""

    execution_id: str
    batch_index: int | None = None


class Existing(Record, frozen=True, tag=True):
    """Another execution has the unique key: it stands for this submit."""

    execution_id: str


class Debounced(Record, frozen=True, tag=True):
    """An execution that has not started got these arguments for its own, and starts later."""

    execution_id: str
    starts_at: int


class Batched(Record, frozen=True, tag=True):
    """The items joined a waiting execution; the first of them has this index there."""

    execution_id: str
    batch_index: int


CreateResult = Created | Duplicate | Existing | Debounced | Batched

# --- owning ------------------------------------------------------------------------------------


class Claimed(Record, frozen=True, tag=True):
    """A lease was obtained, with the data the worker needs to start."""

    execution_id: str
    lease_id: str
    lease_epoch: int
    attempt_index: int
    attempt_id: str
    attempt_type: AttemptType
    lease_expires_at: int
    handle: Handle
    execution_kind: str
    lane_id: str
    namespace: str
    priority: int
    created_at: int
    deadline_at: int | None
    tags: Mapping[str, str]
    payload: bytes = b""
    payload_encoding: str | None = None
    idempotency_key: str | None = None
    forked_from: str | None = None  # the execution whose journal it began with
    trace: Trace | None = None  # in which it was submitted
    flow_id: str | None = None

    def __repr__(self) -> str:
        return f"Claimed({self.execution_id}, attempt={self.attempt_index})"


class LeaseRenewal(Record, frozen=True, tag=True):
    """The lease was extended."""

    expires_at_ms: int
    lease_epoch: int


class Progressed(Record, frozen=True, tag=True):
    """The progress was recorded."""

    execution_id: str


class Completed(Record, frozen=True, tag=True):
    """The execution succeeded."""

    execution_id: str
    public_state: PublicState
    completed_at: int


class RetryScheduled(Record, frozen=True, tag=True):
    """The attempt failed; the next one starts at `delay_until`."""

    delay_until: int
    next_attempt_index: int


class TerminalFailed(Record, frozen=True, tag=True):
    """The attempt failed and there is no further one."""

    public_state: PublicState = PublicState.FAILED


FailResult = RetryScheduled | TerminalFailed


class Delayed(Record, frozen=True, tag=True):
    """The attempt is paused and continues at `delay_until`."""

    execution_id: str
    delay_until: int


class Undone(Record, frozen=True, tag=True):
    """Everything that was registered is being undone, by these executions, one after the other."""

    flow_id: str | None  # None: nothing was registered
    execution_ids: tuple[str, ...]


# --- grants and reclaim ------------------------------------------------------------------------


class GrantIssued(Record, frozen=True, tag=True):
    """One worker may claim the execution until the grant expires."""

    execution_id: str
    partition_key: int
    grant_key: str
    expires_at_ms: int
    lane_id: str


class NoWork(Record, frozen=True, tag=True):
    """No execution waits that this worker could run."""


class NotReclaimable(Record, frozen=True, tag=True):
    """The execution's lease is not lost, or the worker does not fit."""

    execution_id: str
    detail: str


class ReclaimCapExceeded(Record, frozen=True, tag=True):
    """The execution lost its lease too often; it has failed."""

    execution_id: str
    reclaim_count: int
    max_reclaim_count: int


class GrantNotFound(Record, frozen=True, tag=True):
    """No live reclaim grant of this worker exists."""

    execution_id: str


ReclaimGrantResult = GrantIssued | NotReclaimable | ReclaimCapExceeded
ReclaimResult = Claimed | NotReclaimable | ReclaimCapExceeded | GrantNotFound

# --- operating ---------------------------------------------------------------------------------


class Cancelled(Record, frozen=True, tag=True):
    """The execution is cancelled."""

    execution_id: str
    public_state: PublicState


class PriorityChanged(Record, frozen=True, tag=True):
    """The priority is changed."""

    execution_id: str
    old_priority: int
    new_priority: int


class Replayed(Record, frozen=True, tag=True):
    """The finished execution will run again."""

    execution_id: str
    public_state: PublicState
    replay_count: int


class Revoked(Record, frozen=True, tag=True):
    """The lease was revoked."""

    execution_id: str
    lease_epoch: int


class AlreadySatisfied(Record, frozen=True, tag=True):
    """There was nothing to do, and why."""

    reason: str
    execution_id: str


class Blocked(Record, frozen=True, tag=True):
    """The execution cannot be claimed until it is released."""

    execution_id: str
    reason: BlockingReason


class Unblocked(Record, frozen=True, tag=True):
    """The execution waits again, or is delayed again."""

    execution_id: str
    public_state: PublicState


class Rejected(Record, frozen=True, tag=True):
    """The block did not apply: the execution was not waiting."""

    message: str


class LaneChanged(Record, frozen=True, tag=True):
    """The lane's status is as requested."""

    lane_id: str
    lane_state: LaneState
    previous: LaneState


# --- things that happen by themselves ----------------------------------------------------------


class Moved(Record, frozen=True, tag=True):
    """The outcome of one execution's due transition; `unchanged` when it was not due after all."""

    execution_id: str
    what: str


# --- workers -----------------------------------------------------------------------------------


class Registered(Record, frozen=True, tag=True):
    """The worker is new."""

    next_expiry_ms: int


class Refreshed(Record, frozen=True, tag=True):
    """The worker was known and is alive. `is_draining`: an operator wants it to end."""

    next_expiry_ms: int
    is_draining: bool = False


class NotRegistered(Record, frozen=True, tag=True):
    """The worker is unknown or expired: register again."""


class Marked(Record, frozen=True, tag=True):
    """The worker was removed from the registry."""

    revoked_leases: int = 0


class DrainAsked(Record, frozen=True, tag=True):
    """The worker is told to claim no more and to end."""


class GivenBack(Record, frozen=True, tag=True):
    """Leases whose claim was not answered wait again; so many."""

    count: int


# --- reading -----------------------------------------------------------------------------------


class AttemptRef(Record, frozen=True):
    """Which attempt is current."""

    attempt_id: str
    attempt_index: int


class LeaseSummary(Record, frozen=True):
    """The current lease without its secret."""

    lease_epoch: int
    worker_id: str
    worker_instance_id: str
    expires_at: int
    acquired_at: int
    last_heartbeat_at: int | None
    attempt_index: int


class ExecutionSnapshot(Record, frozen=True):
    """An execution as `describe_execution` shows it."""

    execution_id: str
    namespace: str
    lane_id: str
    execution_kind: str
    public_state: PublicState
    state: StateVector
    blocking_reason: BlockingReason
    blocking_detail: str
    priority: int
    required_capabilities: tuple[str, ...]
    created_at: int
    last_transition_at: int
    last_mutation_at: int
    eligible_at: int
    total_attempt_count: int
    retry_count: int
    replay_count: int
    reclaim_count: int
    tags: Mapping[str, str]
    flow_id: str | None = None
    current_attempt: AttemptRef | None = None
    current_lease: LeaseSummary | None = None
    started_at: int | None = None
    completed_at: int | None = None
    deadline_at: int | None = None
    purge_at: int | None = None
    failure_reason: str | None = None
    failure_category: str | None = None
    cancellation_reason: str | None = None
    cancelled_by: str | None = None
    progress_pct: int | None = None
    progress_message: str | None = None
    bounds: Bounds = UNBOUNDED
    blocked_until: int | None = None
    journal_index: int = 0
    chapter_index: int = 0
    forked_from: str | None = None
    serial_key: str | None = None
    unique_key: str | None = None
    origin: Origin | None = None  # the end that it follows, as a hook does
    successors: tuple[SuccessorInfo, ...] = ()  # only `describe_execution` tells them
    fair_key: str | None = None
    retried_from: str | None = None  # the ended one of which it is a retry with another input


class Outcome(Record, frozen=True):
    """How an execution ended, and the result if it succeeded."""

    ended: ExecutionSnapshot
    result: bytes | None


class ExecutionContext(Record, frozen=True):
    """The input of a handler and its labels."""

    input_payload: bytes
    payload_encoding: str | None
    execution_kind: str
    tags: Mapping[str, str]


class AttemptInfo(Record, frozen=True):
    """One attempt in an execution's history, ended or not."""

    attempt_index: int
    attempt_id: str
    attempt_type: AttemptType
    outcome: str
    lease_epoch: int
    worker_id: str | None
    worker_instance_id: str | None
    started_at: int
    ended_at: int | None
    failure_reason: str | None
    failure_category: str | None


class ExpiredLease(Record, frozen=True):
    """A lease past its expiry."""

    execution_id: str
    lease_epoch: int
    worker_id: str
    worker_instance_id: str
    expires_at_ms: int
    attempt_index: int


class LaneSummary(Record, frozen=True):
    """A lane, its status and how much is on it."""

    lane_id: str
    lane_state: LaneState
    reason: str
    registered_at: int
    counts: Mapping[str, int]
    weight: int = 1
    aging_ms: int = 0
    bounds: Bounds = UNBOUNDED
    tenant_weights: Mapping[str, int] = {}
    fair_weights: Mapping[str, int] = {}


class LaneConfigured(Record, frozen=True):
    """The settings by which a lane shares, ages and bounds its work from now on."""

    lane_id: str
    weight: int
    aging_ms: int
    bounds: Bounds
    tenant_weights: Mapping[str, int] = {}
    fair_weights: Mapping[str, int] = {}


class WorkerFit(Record, frozen=True):
    """Whether one live worker could run an execution, and what it lacks."""

    worker_id: str
    worker_instance_id: str
    fits: bool
    lacks: str = ""


class LimitInfo(Record, frozen=True):
    """One budget or quota an execution is bounded by, and how full it is."""

    kind: str  # budget or quota
    limit_id: str
    keeps_back: bool
    usage: str
    clears_at: int | None  # when it has room again without any action, as far as known


class WaitLine(Record, frozen=True):
    """One part of the condition of a suspended execution, and how much of it is met."""

    waitpoint_keys: tuple[str, ...]
    signal_name: str | None  # None: any
    what: str  # signal, signals, waitpoints, different sources, operator or timeout
    have: int
    need: int


class UpstreamInfo(Record, frozen=True):
    """One execution that another one waits for."""

    execution_id: str
    name: str
    public_state: PublicState
    staged_edge_id: str | None = None  # the edge to it is staged, not applied


class Explanation(Record, frozen=True):
    """Why an execution is not running (or that it is), in parts a program can use."""

    execution_id: str
    public_state: PublicState
    since: int
    waiting_for: str
    summary: str
    due_at: int | None
    missing_capabilities: tuple[str, ...]
    could_run: tuple[WorkerFit, ...]
    hints: tuple[str, ...]
    limits: tuple[LimitInfo, ...] = ()
    waits: tuple[WaitLine, ...] = ()
    at_timeout: str | None = None  # the effect of the timeout of a suspended execution at due_at
    upstreams: tuple[UpstreamInfo, ...] = ()  # upstreams that must end before it may run
    step: str | None = None  # the step that its handler runs, as far as that is recorded
    step_since: int | None = None
    line_position: int | None = None  # in the line of its serial key, whose head is the first
    line_head: str | None = None
    origin: Origin | None = None  # the end that it follows, as a hook does
    successors: tuple[SuccessorInfo, ...] = ()  # what follows its own end
    schedule: RunOf | None = None  # the schedule and the tick that have started it
    fair_key: str | None = None  # by which it shares its lane
    fair_ahead: int | None = None  # how many of its queue are before it while it waits, if counted


class Reconciled(Record, frozen=True):
    """The outcome of an audit of indexes against records."""

    processed: int
    errors: int
    problems: tuple[str, ...] = ()


class BackendCapabilities(Record, frozen=True):
    """Which store this is and which operations it supports."""

    family: str
    version: str
    schema_version: int
    supports: Mapping[str, bool]


class Prepared(Record, frozen=True):
    """The outcome of `prepare`."""

    applied: tuple[str, ...]


def snapshot_of(execution: Execution) -> ExecutionSnapshot:
    """The public form of a record: everything but secrets."""
    lease = None
    if execution.is_leased:
        lease = LeaseSummary(
            lease_epoch=execution.lease_epoch,
            worker_id=execution.worker_id or "",
            worker_instance_id=execution.worker_instance_id or "",
            expires_at=execution.lease_expires_at or 0,
            acquired_at=execution.lease_acquired_at or 0,
            last_heartbeat_at=execution.lease_renewed_at,
            attempt_index=execution.attempt_index or 0,
        )
    attempt = None
    if execution.attempt_id is not None and execution.attempt_index is not None:
        attempt = AttemptRef(execution.attempt_id, execution.attempt_index)
    same: dict[str, Any] = {name: getattr(execution, name) for name in _SAME_FIELDS}
    return ExecutionSnapshot(
        **same,
        blocking_reason=execution.state.blocking_reason,
        required_capabilities=execution.route.required_capabilities,
        current_attempt=attempt,
        current_lease=lease,
        origin=execution.ties.origin,
        retried_from=execution.ties.retried_from,
    )


_OTHER_FIELDS = (
    "blocking_reason",
    "required_capabilities",
    "current_attempt",
    "current_lease",
    "origin",
    "retried_from",
    "successors",
)
_SAME_FIELDS = tuple(
    name for name in ExecutionSnapshot.__struct_fields__ if name not in _OTHER_FIELDS
)
