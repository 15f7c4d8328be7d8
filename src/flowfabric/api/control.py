"""What an operator does to an execution: stop, move up, run again, take away, hold, mark.

Each of these but a tag is audited as an operator event in its own transaction.
"""

from __future__ import annotations

from flowfabric.api.operation import Kind, Scope, UnsafeRequest, operation
from flowfabric.api.refusals import BY_FENCE
from flowfabric.api.words import BlockingReasonGiven
from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotEligible,
    ExecutionNotTerminal,
    InvalidBlockingReason,
    InvalidTagKey,
    LaneClosed,
    MaxReplaysExhausted,
    NotFound,
    UniqueConflict,
)
from flowfabric.model.execution import Fence
from flowfabric.model.results import (
    AlreadySatisfied,
    Blocked,
    Cancelled,
    PriorityChanged,
    Rejected,
    Replayed,
    Revoked,
    Unblocked,
)
from flowfabric.model.state import BlockingReason


@operation("cancel_execution", Kind.WRITE, Scope.OPERATE, errors=BY_FENCE)
class CancelExecution(UnsafeRequest[Cancelled], frozen=True, kw_only=True):
    """Stop an execution in whatever phase; `source="operator_override"` needs no fence."""

    execution_id: str
    reason: str
    source: str
    fence: Fence | None = None


@operation("change_priority", Kind.WRITE, Scope.OPERATE, errors=(NotFound, ExecutionNotEligible))
class ChangePriority(UnsafeRequest[PriorityChanged], frozen=True, kw_only=True):
    """Move work that does not run up or down; clamped to 0..9000."""

    execution_id: str
    new_priority: int


@operation(
    "replay_execution",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(NotFound, ExecutionNotTerminal, MaxReplaysExhausted, LaneClosed, UniqueConflict),
)
class ReplayExecution(UnsafeRequest[Replayed], frozen=True, kw_only=True):
    """Run a finished execution again as a new attempt; its history stays.

    `cascade`: members of its flow that were skipped because of it live again too. One with
    a journal goes on by it: steps that are recorded are not run again. `fresh`: it starts
    from the top with an empty journal.
    """

    execution_id: str
    requested_by: str = ""
    reason: str = ""
    deadline_at: int | None = None
    cascade: bool = False
    fresh: bool = False


@operation("revoke_lease", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class RevokeLease(UnsafeRequest[Revoked | AlreadySatisfied], frozen=True, kw_only=True):
    """Take a lease away from its worker; the work is run again."""

    execution_id: str
    reason: str
    expected_lease_id: str = ""
    worker_instance_id: str = ""


@operation("hold_execution", Kind.WRITE, Scope.OPERATE, errors=(NotFound, ExecutionNotEligible))
class HoldExecution(UnsafeRequest[Blocked], frozen=True, kw_only=True):
    """Keep runnable work from being claimed until it is released."""

    execution_id: str
    reason: str = ""


@operation("release_execution", Kind.WRITE, Scope.OPERATE, errors=(NotFound, ExecutionNotEligible))
class ReleaseExecution(UnsafeRequest[Unblocked], frozen=True, kw_only=True):
    """End a hold."""

    execution_id: str


@operation(
    "block_execution_for_admission",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(NotFound, ExecutionNotActive, InvalidBlockingReason),
)
class BlockExecutionForAdmission(UnsafeRequest[Blocked | Rejected], frozen=True, kw_only=True):
    """Keep waiting work from being claimed because admission said no."""

    execution_id: str
    reason: BlockingReasonGiven
    reason_detail: str = ""


@operation(
    "unblock_execution",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(NotFound, ExecutionNotEligible, InvalidBlockingReason),
)
class UnblockExecution(UnsafeRequest[Unblocked], frozen=True, kw_only=True):
    """Lift a block; `expected_reason` guards against lifting another one."""

    execution_id: str
    expected_reason: BlockingReasonGiven | None = None


@operation(
    "block_route",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(NotFound, ExecutionNotActive, InvalidBlockingReason),
)
class BlockRoute(UnsafeRequest[Blocked | Rejected], frozen=True, kw_only=True):
    """Keep waiting work from being claimed because no worker can run it, as a scheduler finds.

    It goes on when a worker registers that can run it, or with `unblock_execution`. Rejected
    while such a worker is alive, or on a lane other than `lane_id`.
    `reason_code`: only `waiting_for_capable_worker`.
    """

    execution_id: str
    lane_id: str | None = None
    reason_code: BlockingReasonGiven = BlockingReason.WAITING_FOR_CAPABLE_WORKER
    reason_detail: str = ""


@operation("set_execution_tag", Kind.WRITE, Scope.OPERATE, errors=(NotFound, InvalidTagKey))
class SetExecutionTag(UnsafeRequest[None], frozen=True, kw_only=True):
    """Set or overwrite one tag."""

    execution_id: str
    key: str
    value: str
