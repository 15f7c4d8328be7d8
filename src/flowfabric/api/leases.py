"""What a worker asks for: claim, renew, report, finish."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.refusals import BY_FENCE, BY_HANDLE, FRAMED, JOURNALED
from flowfabric.api.words import FailureClassGiven
from flowfabric.errors import ClaimIdReused, InvalidCapabilities, PayloadTooLarge
from flowfabric.model.attempt import FailureClass
from flowfabric.model.execution import Fence
from flowfabric.model.failure import FailureOrigin
from flowfabric.model.handle import Handle
from flowfabric.model.journal import NewEntry
from flowfabric.model.log_lines import LogBatch
from flowfabric.model.results import (
    Cancelled,
    Claimed,
    Completed,
    Delayed,
    GivenBack,
    LeaseRenewal,
    Progressed,
    RetryScheduled,
    TerminalFailed,
)
from flowfabric.model.stream import NewFrame


@operation("claim", Kind.WAIT, Scope.WORKER, errors=(InvalidCapabilities, ClaimIdReused))
class Claim(Request[list[Claimed]], frozen=True, kw_only=True):
    """Up to `limit` executions over several lanes in one transaction, best first.

    Waits up to `wait_ms` when there is none, and then answers an empty list. Only work that
    this worker can run is looked at. Lanes get their parts by weight, and the tenants of
    `namespaces` equal parts of each lane.

    `claim_id`: for callers whose answers may be lost. A claim that is repeated with its id is
    answered what is left of the same leases; after an empty answer it is like new.
    """

    lanes: Sequence[str]
    worker_id: str
    worker_instance_id: str
    capabilities: Sequence[str] = ()
    kinds: Sequence[str] | None = None
    limit: int = 1
    lease_ttl_ms: int | None = None
    namespace: str | None = None
    namespaces: Sequence[str] | None = None
    wait_ms: int = 0
    claim_id: str | None = None


@operation("give_back_claim", Kind.WRITE, Scope.WORKER)
class GiveBackClaim(Request[GivenBack], frozen=True, kw_only=True):
    """Nobody got the answer to a claim with an id: its leases go back, and nothing is counted.

    Once the claim was repeated its worker has the leases, and none goes back.
    """

    worker_instance_id: str
    claim_id: str


@operation("renew", Kind.WRITE, Scope.WORKER, errors=BY_HANDLE)
class Renew(Request[LeaseRenewal], frozen=True, kw_only=True):
    """Extend the lease by its own length.

    `next_key`: of the step that runs, and `next_key_ms` for how long; people see it in
    explanations.
    """

    handle: Handle
    next_key: str | None = None
    next_key_ms: int = 0


@operation("renew_lease", Kind.WRITE, Scope.WORKER, errors=BY_FENCE)
class RenewLease(Request[LeaseRenewal], frozen=True, kw_only=True):
    """Extend a lease named by its fence."""

    execution_id: str
    fence: Fence | None  # required: without one it is refused
    lease_ttl_ms: int


@operation("progress", Kind.WRITE, Scope.WORKER, errors=BY_HANDLE)
class Progress(Request[Progressed], frozen=True, kw_only=True):
    """How far the work is: 0 to 100, and a line of text; what is absent stays."""

    handle: Handle
    percent: int | None = None
    message: str | None = None


@operation("delay", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, *JOURNALED))
class Delay(Request[Delayed], frozen=True, kw_only=True):
    """Park the attempt until an instant; the same attempt is claimed again then.

    `entries`: added to the journal in the same transaction, as by `checkpoint`.
    """

    handle: Handle
    delay_until: int
    entries: Sequence[NewEntry] = ()


@operation("complete", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, *FRAMED, *JOURNALED))
class Complete(Request[Completed], frozen=True, kw_only=True):
    """The work succeeded. Repeating the call with the same handle answers the same.

    `frames`, `logs` and `entries`: appended to the stream and the log of the attempt and to the
    journal before its end, in the same transaction.
    """

    handle: Handle
    result: bytes | None = None
    result_encoding: str | None = None
    frames: Sequence[NewFrame] = ()
    logs: LogBatch | None = None
    entries: Sequence[NewEntry] = ()


@operation("complete_execution", Kind.WRITE, Scope.OPERATE, errors=(*BY_FENCE, PayloadTooLarge))
class CompleteExecution(UnsafeRequest[Completed], frozen=True, kw_only=True):
    """Complete by fence, or without one as `source="operator_override"`."""

    execution_id: str
    source: str
    fence: Fence | None = None
    result_payload: bytes | None = None
    result_encoding: str | None = None


@operation("fail", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, *FRAMED, *JOURNALED))
class Fail(Request[RetryScheduled | TerminalFailed], frozen=True, kw_only=True):
    """The attempt failed; the policy decides whether another follows.

    `frames`, `logs` and `entries`: as in `complete`. `origin`: the class and the innermost own
    function, by which failures are alike; without it the shape of `reason` says so.
    """

    handle: Handle
    reason: str
    failure_class: FailureClassGiven = FailureClass.TRANSIENT
    category: str | None = None
    retry_after_ms: int | None = None
    origin: FailureOrigin | None = None
    frames: Sequence[NewFrame] = ()
    logs: LogBatch | None = None
    entries: Sequence[NewEntry] = ()


@operation("fail_execution", Kind.WRITE, Scope.OPERATE, errors=BY_FENCE)
class FailExecution(UnsafeRequest[RetryScheduled | TerminalFailed], frozen=True, kw_only=True):
    """Fail by fence, or without one as `source="operator_override"`."""

    execution_id: str
    source: str
    failure_reason: str
    fence: Fence | None = None
    failure_class: FailureClassGiven = FailureClass.TRANSIENT
    failure_category: str | None = None
    retry_after_ms: int | None = None


@operation("cancel", Kind.WRITE, Scope.WORKER, errors=BY_HANDLE)
class Cancel(Request[Cancelled], frozen=True, kw_only=True):
    """The owner gives up for good."""

    handle: Handle
    reason: str
