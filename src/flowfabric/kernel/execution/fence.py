"""The one fence: only the live owner writes."""

from __future__ import annotations

import hmac
from typing import Final, Protocol

from flowfabric.errors import (
    ExecutionNotActive,
    FenceRequired,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    StaleLease,
)
from flowfabric.kernel.decision import Refused
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.state import LifecyclePhase, OwnershipState

_ACTIVE: Final = LifecyclePhase.ACTIVE
_LEASE_REVOKED: Final = OwnershipState.LEASE_REVOKED


class Leased(Protocol):
    """A record of a lease."""

    @property
    def lease_id(self) -> str | None:
        """The lease's secret name."""
        ...

    @property
    def lease_epoch(self) -> int:
        """Its number among the leases of the execution."""
        ...

    @property
    def attempt_id(self) -> str | None:
        """The attempt that ran under it."""
        ...


OPERATOR_OVERRIDE = "operator_override"
LEASE_HOLDER = "lease_holder"


def not_found(execution_id: str) -> Refused:
    """No such execution."""
    return Refused(NotFound, f"execution {execution_id}", {"entity": "execution"})


def not_active(execution: Execution) -> Refused:
    """Not running; with the fields that show a caller whether its own earlier call did that."""
    fields: dict[str, object] = {
        "terminal_outcome": execution.state.terminal_outcome.value,
        "lease_epoch": execution.lease_epoch,
        "lifecycle_phase": execution.state.lifecycle_phase.value,
        "attempt_id": execution.attempt_id,
        "public_state": execution.public_state.value,
    }
    detail = f"execution {execution.execution_id} is {execution.public_state.value}"
    return Refused(ExecutionNotActive, detail, fields)


def refuse_unless_owner(
    execution: Execution | None, execution_id: str, fence: Fence, now: int
) -> Refused | None:
    """The refusal of a worker's call, or None when it comes from the live owner."""
    if execution is None:
        return not_found(execution_id)
    if execution.state.lifecycle_phase is not _ACTIVE:
        return not_active(execution)
    if execution.state.ownership_state is _LEASE_REVOKED:
        return Refused(LeaseRevoked, execution.blocking_detail)
    epoch = fence.lease_epoch
    if execution.lease_epoch != epoch and not _lapsed_since(execution, epoch):
        return Refused(StaleLease, f"epoch {epoch} is not {execution.lease_epoch}")
    if not same_secrets(execution, fence):
        return Refused(StaleLease, "the lease id or attempt id is not the current one")
    if not execution.is_leased or (execution.lease_expires_at or 0) <= now:
        return Refused(LeaseExpired, f"expired at {execution.lease_expires_at}")
    return None


def refuse_unfenced(
    execution: Execution | None, execution_id: str, source: str, now: int
) -> Refused | None:
    """A call without a fence: only an explicit operator may, and only while a lease is live."""
    if source != OPERATOR_OVERRIDE:
        return Refused(FenceRequired, f"source: {source or 'missing'}", {"field": "fence"})
    if execution is None:
        return not_found(execution_id)
    own = Fence(execution.lease_id or "", execution.lease_epoch, execution.attempt_id or "")
    return refuse_unless_owner(execution, execution_id, own, now)


def refuse_writer(
    execution: Execution | None, execution_id: str, fence: Fence | None, source: str, now: int
) -> Refused | None:
    """The fence if there is one, else the operator's right."""
    if fence is None:
        return refuse_unfenced(execution, execution_id, source, now)
    return refuse_unless_owner(execution, execution_id, fence, now)


def _lapsed_since(execution: Execution, lease_epoch: int) -> bool:
    """Expiry raises the epoch by one: the same lease, noticed as expired."""
    return (
        execution.state.ownership_state is OwnershipState.LEASE_EXPIRED_RECLAIMABLE
        and execution.lease_epoch == lease_epoch + 1
    )


def same_secrets(recorded: Leased, fence: Fence) -> bool:
    """Whether lease id and attempt id are the recorded ones, compared in constant time."""
    known = f"{recorded.lease_id}\n{recorded.attempt_id}"
    presented = f"{fence.lease_id}\n{fence.attempt_id}"
    return hmac.compare_digest(known.encode(), presented.encode())


def same_lease(recorded: Leased, fence: Fence) -> bool:
    """Whether a row was written under this very lease."""
    return recorded.lease_epoch == fence.lease_epoch and same_secrets(recorded, fence)


def released_by(execution: Execution, fence: Fence | None) -> bool:
    """Whether this fence ended the lease the execution shows: its owner repeats a call."""
    return (
        fence is not None
        and execution.lease_epoch == fence.lease_epoch + 1
        and same_secrets(execution, fence)
    )


def loss_of(execution: Execution | None, lease_epoch: int, now: int) -> str | None:
    """The code of the error that the owner of a lease meets; none while it is the owner."""
    if execution is None:
        return NotFound.code
    if execution.state.lifecycle_phase is not _ACTIVE:
        return ExecutionNotActive.code
    if execution.state.ownership_state is _LEASE_REVOKED:
        return LeaseRevoked.code
    if execution.lease_epoch != lease_epoch and not _lapsed_since(execution, lease_epoch):
        return StaleLease.code
    if not execution.is_leased or (execution.lease_expires_at or 0) <= now:
        return LeaseExpired.code
    return None
