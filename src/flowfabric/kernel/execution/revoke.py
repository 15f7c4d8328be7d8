"""Revoke: an operator ends a lease; the work is run again."""

from __future__ import annotations

import hmac

from flowfabric.kernel.command import ExecutionCommand
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.transition import lease_event, operator_event
from flowfabric.model.event import LeaseEventType, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.results import AlreadySatisfied, Revoked
from flowfabric.model.state import LEASE_REVOKED, OwnershipState


class RevokeLease(ExecutionCommand[Revoked | AlreadySatisfied], frozen=True, kw_only=True):
    """An operator distrusts the owner. Empty expectations are not checked."""

    reason: str
    expected_lease_id: str = ""
    worker_instance_id: str = ""


def revoke_lease(
    execution: Execution | None, command: RevokeLease, at: Moment
) -> Decision[Revoked | AlreadySatisfied]:
    """The epoch rises at once, so the old owner can no longer write."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    match execution.state.ownership_state:
        case OwnershipState.LEASE_REVOKED:
            return _satisfied(execution, "already_revoked")
        case OwnershipState.LEASE_EXPIRED_RECLAIMABLE:
            return _satisfied(execution, "already_expired")
        case OwnershipState.UNOWNED:
            return _satisfied(execution, "no_active_lease")
        case OwnershipState.LEASED:
            pass
    wanted = command.worker_instance_id
    if wanted and wanted != execution.worker_instance_id:
        return _satisfied(execution, "different_worker_instance_id")
    expected = command.expected_lease_id.encode()
    if expected and not hmac.compare_digest(expected, (execution.lease_id or "").encode()):
        return _satisfied(execution, "lease_id_mismatch")
    revoked = replace(
        execution,
        state=LEASE_REVOKED,
        blocking_detail=f"lease revoked: {command.reason}",
        lease_epoch=execution.lease_epoch + 1,
        lease_expires_at=None,
        reclaim_at=at.now + at.reclaim_grace_ms,
        last_transition_at=at.now,
        last_mutation_at=at.now,
    )
    events = (
        lease_event(execution, LeaseEventType.REVOKED, command.reason, at.now),
        operator_event(execution, OperatorEventType.LEASE_REVOKED, at.now, reason=command.reason),
    )
    return Decision(Revoked(execution.execution_id, revoked.lease_epoch), revoked, None, events)


def _satisfied(execution: Execution, reason: str) -> Decision[Revoked | AlreadySatisfied]:
    return Decision(AlreadySatisfied(reason, execution.execution_id))
