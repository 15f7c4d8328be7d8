"""Reclaim: work with a lost owner is run again, as often as the policy allows."""

from __future__ import annotations

from typing import TypeVar

from flowfabric import limits
from flowfabric.errors import GrantAlreadyExists
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, refuse
from flowfabric.kernel.execution.claim import NewIds, take
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.grant import GrantRequest, grant_reply
from flowfabric.kernel.execution.routing import missing_capabilities
from flowfabric.kernel.execution.transition import ended_attempt, finish, let_go
from flowfabric.model.attempt import Attempt, AttemptOutcome, AttemptType
from flowfabric.model.event import LeaseEventType
from flowfabric.model.execution import Execution, GrantKind
from flowfabric.model.record import replace
from flowfabric.model.results import (
    GrantNotFound,
    Moved,
    NotReclaimable,
    ReclaimCapExceeded,
    ReclaimGrantResult,
    ReclaimResult,
)
from flowfabric.model.state import AttemptState, OwnershipState, TerminalOutcome, waiting

R = TypeVar("R")

MAX_RECLAIMS_EXCEEDED = "max_reclaims_exceeded"
_LOST = (OwnershipState.LEASE_EXPIRED_RECLAIMABLE, OwnershipState.LEASE_REVOKED)


class RequeueLost(ExecutionCommand[Moved], frozen=True, kw_only=True):
    """The grace period of a lost lease is over: put the work back."""


class IssueReclaimGrant(GrantRequest[ReclaimGrantResult], frozen=True, kw_only=True):
    """Its lease was lost; the worker may take it over."""


class ReclaimExecution(ExecutionCommand[ReclaimResult], frozen=True, kw_only=True):
    """The chosen worker takes over with a new attempt."""

    worker_id: str
    worker_instance_id: str
    lease_ttl_ms: int
    backend: str
    ids: NewIds
    max_reclaim_count: int | None = None

    def needs(self, need: Needs) -> None:
        """The execution, and the status of its lane."""
        need.executions.add(self.execution_id)
        need.catalog = True


def reclaim_cap(execution: Execution, asked: int | None = None) -> int:
    """How many lost leases are allowed: the call's number, else the policy's, else 1000."""
    if asked is not None:
        return asked
    policy = execution.policy.max_reclaim_count
    return limits.RECLAIM_COUNT_DEFAULT if policy is None else policy


def requeue_lost(execution: Execution | None, command: RequeueLost, at: Moment) -> Decision[Moved]:
    """End the interrupted attempt and let the next worker start a new one."""
    if (
        execution is None
        or execution.reclaim_at is None
        or execution.reclaim_at > at.now
        or execution.state.ownership_state not in _LOST
    ):
        return Decision(Moved(command.execution_id, "unchanged"))
    is_counted = not _stood_still_here(execution, at)
    if is_counted and execution.reclaim_count >= reclaim_cap(execution):
        return _give_up(execution, at, Moved(execution.execution_id, MAX_RECLAIMS_EXCEEDED))
    requeued = let_go(
        execution,
        waiting(AttemptState.PENDING_RETRY_ATTEMPT),
        at,
        eligible_at=at.now,
        blocking_detail="",
        reclaim_count=execution.reclaim_count + is_counted,
        next_attempt_type=AttemptType.RECLAIM,
    )
    moved = Moved(execution.execution_id, "requeued")
    return Decision(moved, requeued, _interrupted(execution, at))


def _stood_still_here(execution: Execution, at: Moment) -> bool:
    """Whether the lease expired under a worker of the very process that reclaims the work: no
    worker was lost, both stood still together. Work may stop its process each time, so even this
    has a bound."""
    return (
        execution.state.ownership_state is OwnershipState.LEASE_EXPIRED_RECLAIMABLE
        and execution.worker_instance_id in at.workers_here
        and execution.total_attempt_count < limits.RECLAIM_COUNT_DEFAULT
    )


def issue_reclaim_grant(
    execution: Execution | None, command: IssueReclaimGrant, at: Moment
) -> Decision[ReclaimGrantResult]:
    """One worker may take the lost work over, until the grant expires."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    if execution.reclaim_at is None:
        return Decision(_not_reclaimable(execution))
    if execution.reclaim_count >= reclaim_cap(execution):
        return Decision(_cap_reply(execution, reclaim_cap(execution)))
    if execution.grant is not None and execution.grant.is_live(at.now):
        return refuse(GrantAlreadyExists, f"until {execution.grant.expires_at}")
    missing = missing_capabilities(
        execution.route.required_capabilities, command.worker_capabilities
    )
    if missing:
        detail = f"capability_mismatch: {','.join(missing)}"
        return Decision(NotReclaimable(execution.execution_id, detail))
    grant = command.grant(GrantKind.RECLAIM, at.now)
    granted = replace(
        execution,
        grant=grant,
        # The work was granted to a worker: no other worker gets it before the grant has expired.
        reclaim_at=max(execution.reclaim_at, grant.expires_at + 1),
        last_mutation_at=at.now,
    )
    return Decision(grant_reply(granted, grant), granted)


def reclaim_execution(
    execution: Execution | None, command: ReclaimExecution, at: Moment
) -> Decision[ReclaimResult]:
    """Consume the grant and start a new attempt, or end the work when the cap is reached."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    if execution.reclaim_at is None:
        return Decision(_not_reclaimable(execution))
    if execution.deadline_at is not None and execution.deadline_at <= at.now:
        return Decision(NotReclaimable(execution.execution_id, "the deadline has passed"))
    cap = reclaim_cap(execution, command.max_reclaim_count)
    if execution.reclaim_count >= cap:
        return _give_up(execution, at, _cap_reply(execution, cap))
    grant = execution.grant
    mine = (
        grant is not None
        and grant.kind is GrantKind.RECLAIM
        and grant.worker_id == command.worker_id
        and grant.is_live(at.now)
    )
    if not mine:
        return Decision(GrantNotFound(execution.execution_id))
    counted = replace(
        execution,
        reclaim_count=execution.reclaim_count + 1,
        next_attempt_type=AttemptType.RECLAIM,
    )
    taken: Decision[ReclaimResult] = take(
        counted,
        worker_id=command.worker_id,
        worker_instance_id=command.worker_instance_id,
        lease_ttl_ms=command.lease_ttl_ms,
        backend=command.backend,
        ids=command.ids,
        at=at,
        reason="reclaim",
        event_type=LeaseEventType.RECLAIMED,
    )
    return replace(taken, attempt=_interrupted(execution, at))


def _interrupted(execution: Execution, at: Moment) -> Attempt:
    return ended_attempt(
        execution,
        AttemptOutcome.INTERRUPTED_RECLAIMED,
        at.now,
        failure_reason=execution.blocking_detail or "lease lost",
        failure_category="infra_crash",
    )


def _give_up(execution: Execution, at: Moment, reply: R) -> Decision[R]:
    return finish(
        execution,
        TerminalOutcome.FAILED,
        at,
        attempt_outcome=AttemptOutcome.INTERRUPTED_RECLAIMED,
        failure_reason=MAX_RECLAIMS_EXCEEDED,
        failure_category="infra_crash",
        reply=reply,
    )


def _not_reclaimable(execution: Execution) -> NotReclaimable:
    state = execution.state
    detail = f"{state.lifecycle_phase.value}/{state.ownership_state.value}"
    return NotReclaimable(execution.execution_id, detail)


def _cap_reply(execution: Execution, cap: int) -> ReclaimCapExceeded:
    return ReclaimCapExceeded(execution.execution_id, execution.reclaim_count, cap)
