"""What suspends and resumes work: waits, waitpoints and signals."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.api.refusals import BY_FENCE, BY_HANDLE, JOURNALED, SIGNALLED, WAITING
from flowfabric.api.words import (
    BlockingReasonGiven,
    ReasonCodeGiven,
    RequestedByGiven,
    TimeoutBehaviorGiven,
    TokenGiven,
)
from flowfabric.errors import (
    ExecutionNotSuspended,
    FlowFabricError,
    HandleFromOtherBackend,
    InvalidCursor,
    InvalidToken,
    KeyringEmpty,
    NotFound,
    WaitCycle,
    WaitpointAlreadyExists,
    WaitpointInUse,
)
from flowfabric.model.execution import Fence
from flowfabric.model.handle import Handle
from flowfabric.model.journal import NewEntry
from flowfabric.model.record import Record
from flowfabric.model.results import Moved, WaitLine
from flowfabric.model.suspension import (
    AlreadyMet,
    Contribution,
    ReasonCode,
    RequestedBy,
    ResumeCondition,
    Resumed,
    ResumeInfo,
    ResumeSignal,
    SignalAccepted,
    SignalDuplicate,
    Suspended,
    SuspendedInfo,
    SuspensionInfo,
    Token,
    WaitpointDetails,
    WaitpointInfo,
    WaitpointRow,
    WaitpointShown,
)
from flowfabric.model.watch import Watching
from flowfabric.model.words import TimeoutBehavior

# --- what requests hold --------------------------------------------------------------------------


class Fresh(Record, frozen=True, tag=True):
    """A new waitpoint; its key is how the condition refers to it."""

    waitpoint_key: str
    payload_type: str | None = None  # a JSON schema that signals must fit


class UsePending(Record, frozen=True, tag=True):
    """A waitpoint made by `create_waitpoint`."""

    waitpoint_id: str
    waitpoint_key: str


class StayPending(Record, frozen=True, tag=True):
    """The same, but it stays pending when this wait is over: its signals count for this one and
    for the next."""

    waitpoint_id: str
    waitpoint_key: str


class SuspendRequest(Record, frozen=True, kw_only=True):
    """What to wait for, and what happens if it does not come."""

    resume_condition: ResumeCondition
    # none: one new waitpoint per key referred to
    waitpoints: tuple[Fresh | UsePending | StayPending, ...] = ()
    reason_code: ReasonCodeGiven = ReasonCode.WAITING_FOR_SIGNAL
    requested_by: RequestedByGiven = RequestedBy.WORKER
    timeout_at: int | None = None
    timeout_behavior: TimeoutBehaviorGiven = TimeoutBehavior.FAIL
    resume_delay_ms: int = 0
    continuation_metadata_pointer: str | None = None
    idempotency_key: str | None = None


class Signal(Record, frozen=True, kw_only=True):
    """One signal to deliver.

    >>> Signal(
    ...     execution_id="{fp:7}:…", waitpoint_id="…", token="k1:…", signal_name="approved"
    ... )  # doctest: +SKIP
    """

    execution_id: str
    waitpoint_id: str
    signal_name: str
    token: TokenGiven | None = None  # none only for `deliver_trusted_signal`
    signal_category: str = ""
    source_type: str = ""
    source_identity: str = ""
    payload: bytes | None = None
    payload_encoding: str = "json"
    correlation_id: str = ""
    idempotency_key: str | None = None
    dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT
    resume_delay_ms: int = 0
    created_at: int | None = None
    signal_id: str | None = None

    def __repr__(self) -> str:
        return f"Signal({self.signal_name!r} to {self.waitpoint_id})"


# --- what is answered ----------------------------------------------------------------------------


class WaitInfo(Record, frozen=True):
    """One suspended execution: what it waits for, since when, until when."""

    execution_id: str
    execution_kind: str
    lane_id: str
    namespace: str
    suspension_id: str
    reason: ReasonCode
    since: int
    timeout_at: int | None
    at_timeout: TimeoutBehavior
    waits_for: str
    have: int
    need: int
    lines: tuple[WaitLine, ...]
    signals: tuple[Contribution, ...]  # those that count
    progress_message: str | None = None  # what it said last


# --- suspend and resume --------------------------------------------------------------------------


@operation(
    "suspend",
    Kind.WRITE,
    Scope.WORKER,
    positional=("handle", "request"),
    errors=(*BY_HANDLE, *WAITING, *JOURNALED),
)
class Suspend(Request[Suspended | AlreadyMet], frozen=True, kw_only=True):
    """Release the lease and wait for signals.

    AlreadyMet when signals that came early meet the condition: the lease stays. `entries`:
    added to the journal in the same transaction; the last one refers to the suspension.
    """

    handle: Handle
    request: SuspendRequest
    entries: Sequence[NewEntry] = ()


@operation(
    "suspend_by_triple",
    Kind.WRITE,
    Scope.WORKER,
    errors=(*BY_FENCE, *WAITING),
)
class SuspendByTriple(Request[Suspended | AlreadyMet], frozen=True, kw_only=True):
    """As `suspend`, by the lease's fence."""

    execution_id: str
    fence: Fence
    request: SuspendRequest


@operation(
    "create_waitpoint",
    Kind.WRITE,
    Scope.WORKER,
    errors=(*BY_HANDLE, *JOURNALED, KeyringEmpty, WaitpointAlreadyExists),
)
class CreateWaitpoint(Request[WaitpointDetails], frozen=True, kw_only=True):
    """An address with its token, before the suspension: early signals are kept for it.

    `entries`: added to the journal in the same transaction; the last one refers to the
    waitpoint, which then outlives its attempt: the next one finds it.
    """

    handle: Handle
    waitpoint_key: str
    expires_in_ms: int
    payload_type: str | None = None
    entries: Sequence[NewEntry] = ()


@operation(
    "watch_executions",
    Kind.WRITE,
    Scope.WORKER,
    errors=(*BY_HANDLE, KeyringEmpty, WaitCycle),
)
class WatchExecutions(Request[Watching], frozen=True, kw_only=True):
    """Have a signal when one of some executions has ended, or all have.

    The reply names those that have not ended, and a pending waitpoint to wait on. It names no
    waitpoint where all have ended, or without `needs_all` one has: that is to be looked at
    first. An execution watches for one wait at a time.
    """

    handle: Handle
    execution_ids: Sequence[str]
    needs_all: bool = True


@operation("resume_execution", Kind.WRITE, Scope.OPERATE, errors=(NotFound, ExecutionNotSuspended))
class ResumeExecution(UnsafeRequest[Resumed], frozen=True, kw_only=True):
    """End the wait whatever its condition says."""

    execution_id: str
    resume_delay_ms: int = 0


@operation("expire_suspension", Kind.WRITE, Scope.OPERATE)
class ExpireSuspension(Request[Moved], frozen=True, kw_only=True):
    """Apply the suspension's timeout, if it is due."""

    execution_id: str


@operation("close_waitpoint", Kind.WRITE, Scope.OPERATE, errors=(NotFound, WaitpointInUse))
class CloseWaitpoint(Request[WaitpointInfo], frozen=True, kw_only=True):
    """Take no more signals on a waitpoint that is not waited on yet; twice is harmless."""

    execution_id: str
    waitpoint_id: str
    reason: str = "proactive_close"


# --- signals -------------------------------------------------------------------------------------


@operation("deliver_signal", Kind.WRITE, Scope.APPROVE, positional=("signal",), errors=SIGNALLED)
class DeliverSignal(Request[SignalAccepted | SignalDuplicate], frozen=True, kw_only=True):
    """Deliver one signal; a repeated idempotency key answers what the first one did."""

    signal: Signal


@operation(
    "deliver_trusted_signal",
    Kind.WRITE,
    Scope.OPERATE,
    positional=("signal",),
    errors=(NotFound, *SIGNALLED),
)
class DeliverTrustedSignal(Request[SignalAccepted | SignalDuplicate], frozen=True, kw_only=True):
    """The same for a program of this installation, which may signal without a token: keys may
    have been rotated since the wait began."""

    signal: Signal


@operation("deliver_signals", Kind.WRITE, Scope.APPROVE, positional=("signals",), errors=SIGNALLED)
class DeliverSignals(
    Request[list[SignalAccepted | SignalDuplicate | FlowFabricError]], frozen=True, kw_only=True
):
    """Many signals in few commits; each is answered with its outcome or its error."""

    signals: Sequence[Signal]


@operation("deliver_approval_signal", Kind.WRITE, Scope.APPROVE, errors=(NotFound, *SIGNALLED))
class DeliverApprovalSignal(Request[SignalAccepted | SignalDuplicate], frozen=True, kw_only=True):
    """An operator of this installation signals without ever seeing the token.

    `source_type`: the kind of name that `actor` is, where it is not an operator's.
    """

    execution_id: str
    waitpoint_id: str
    signal_name: str
    idempotency_suffix: str
    lane_id: str | None = None
    actor: str = "operator"
    comment: bytes | None = None
    signal_dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT
    source_type: str | None = None


# --- reading -------------------------------------------------------------------------------------


@operation("observe_signals", Kind.READ, Scope.WORKER, errors=(HandleFromOtherBackend,))
class ObserveSignals(Request[tuple[ResumeSignal, ...]], frozen=True, kw_only=True):
    """The signals that ended the last wait of this attempt; none for a fresh one."""

    handle: Handle


@operation("resume_info", Kind.READ, Scope.WORKER, errors=(HandleFromOtherBackend,))
class ReadResumeInfo(Request[ResumeInfo | None], frozen=True, kw_only=True):
    """What ended the last wait of this attempt; nothing for a fresh one."""

    handle: Handle


@operation("read_signals", Kind.READ, Scope.WORKER, errors=(HandleFromOtherBackend,))
class ReadSignals(Request[dict[str, tuple[ResumeSignal, ...]]], frozen=True, kw_only=True):
    """The signals at waitpoints of this execution, by waitpoint, in the order they came."""

    handle: Handle
    waitpoint_ids: Sequence[str]


@operation("list_pending_waitpoints", Kind.READ, Scope.READ, errors=(NotFound, InvalidCursor))
class ListPendingWaitpoints(Request[Page[WaitpointInfo]], frozen=True, kw_only=True):
    """Waitpoints of an execution that may still be signalled, by id; no tokens."""

    execution_id: str
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("list_suspensions", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListSuspensions(Request[Page[SuspensionInfo]], frozen=True, kw_only=True):
    """Every episode of an execution, oldest first."""

    execution_id: str
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("read_waitpoint_token", Kind.WRITE, Scope.ADMIN, errors=(KeyringEmpty,))
class ReadWaitpointToken(UnsafeRequest[Token | None], frozen=True, kw_only=True):
    """A waitpoint's token, for an operator; none when it is closed or unknown.

    It is signed with the current key. After a rotation it is another one than that which was
    handed out first; both are good, each as long as its key. Each read is in the audit trail.
    `recipient`: a personal token, with which only signals of this source can be sent.
    """

    execution_id: str
    waitpoint_id: str
    recipient: str | None = None


@operation("show_waitpoint", Kind.READ, Scope.APPROVE, errors=(InvalidToken,))
class ShowWaitpoint(Request[WaitpointShown], frozen=True, kw_only=True):
    """What the holder of a waitpoint's token may see of it; nothing is changed."""

    execution_id: str
    waitpoint_id: str
    token: TokenGiven


@operation("list_suspended", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListSuspended(Request[Page[SuspendedInfo]], frozen=True, kw_only=True):
    """Suspended executions, newest first."""

    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("describe_waits", Kind.READ, Scope.READ, also=(Scope.APPROVE,))
class DescribeWaits(Request[dict[str, WaitInfo]], frozen=True, kw_only=True):
    """The open waits of those that are suspended."""

    execution_ids: Sequence[str]


@operation("list_waits", Kind.READ, Scope.READ, errors=(InvalidCursor,), also=(Scope.APPROVE,))
class ListWaits(Request[Page[WaitInfo]], frozen=True, kw_only=True):
    """Suspended executions and what they wait for, newest first unless `oldest_first`.

    `reason`: only those that wait for this, as `waiting_for_approval`.
    """

    namespace: str | None = None
    lane_id: str | None = None
    execution_kind: str | None = None
    reason: BlockingReasonGiven | None = None
    oldest_first: bool = False
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("find_waitpoint", Kind.READ, Scope.READ, also=(Scope.APPROVE,))
class FindWaitpoint(Request[WaitpointRow | None], frozen=True, kw_only=True):
    """The waitpoint a key stands for: one that is waited on, a pending one, else the last."""

    execution_id: str
    waitpoint_key: str
