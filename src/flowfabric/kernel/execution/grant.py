"""Grants: an external scheduler promises one execution to one worker for a short time.

A grant changes no eligibility. While it lives an ordinary claim skips the execution; when it
expires nothing has to be undone.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from flowfabric.errors import (
    CapabilityMismatch,
    ClaimGrantExpired,
    ExecutionNotEligible,
    ExecutionNotLeaseable,
    GrantAlreadyExists,
    InvalidClaimGrant,
    LeaseConflict,
    NotAResumedExecution,
    UseClaimResumedExecution,
)
from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused, refuse
from flowfabric.kernel.execution.claim import NewIds, take
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.routing import Offer, missing_capabilities
from flowfabric.kernel.execution.transition import operator_event
from flowfabric.model.event import CLAIM_RESUMED, OperatorEventType
from flowfabric.model.execution import Execution, Grant, GrantKind
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed, GrantIssued, NoWork
from flowfabric.model.state import LifecyclePhase, OwnershipState

OPERATOR = "operator"


R_co = TypeVar("R_co", covariant=True)


class GrantRequest(ExecutionCommand[R_co], Generic[R_co], frozen=True, kw_only=True):
    """A scheduler chose a worker for an execution."""

    worker_id: str
    worker_instance_id: str
    worker_capabilities: tuple[str, ...]
    grant_ttl_ms: int
    grant_id: str

    def needs(self, need: Needs) -> None:
        """The execution, and the status of its lane."""
        need.executions.add(self.execution_id)
        need.catalog = True

    def grant(self, kind: GrantKind, now: int) -> Grant:
        """The right itself, from now on."""
        expires_at = now + self.grant_ttl_ms
        return Grant(kind, self.grant_id, self.worker_id, self.worker_instance_id, expires_at)


class IssueClaimGrant(GrantRequest[GrantIssued], frozen=True, kw_only=True):
    """The execution waits; the worker may claim it."""


class PromiseBest(Command[GrantIssued | NoWork], frozen=True, kw_only=True):
    """A scheduler asks for the best execution a worker could run; the request names none yet."""

    offer: Offer
    request: IssueClaimGrant

    def needs(self, need: Needs) -> None:
        """The routes to match."""
        need.catalog = True


class ClaimGranted(ExecutionCommand[Claimed], frozen=True, kw_only=True):
    """The chosen worker redeems its grant; `resumed` names which of the two claims it called."""

    worker_id: str
    worker_instance_id: str
    lease_ttl_ms: int
    backend: str
    ids: NewIds
    resumed: bool

    def needs(self, need: Needs) -> None:
        """The execution, and the status of its lane."""
        need.executions.add(self.execution_id)
        need.catalog = True


class ClaimNamed(ExecutionCommand[Claimed], frozen=True, kw_only=True):
    """An operator claims one named execution, whatever its capabilities."""

    lease_ttl_ms: int
    backend: str
    ids: NewIds

    def needs(self, need: Needs) -> None:
        """The execution, and the status of its lane."""
        need.executions.add(self.execution_id)
        need.catalog = True


def grant_reply(execution: Execution, grant: Grant) -> GrantIssued:
    """The proof that the scheduler hands to the worker."""
    partition = int(execution.execution_id[4 : execution.execution_id.index("}")])
    return GrantIssued(
        execution.execution_id, partition, grant.grant_id, grant.expires_at, execution.lane_id
    )


def issue_claim_grant(
    execution: Execution | None, command: IssueClaimGrant, at: Moment
) -> Decision[GrantIssued]:
    """The right to claim, if the execution waits and the worker fits."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    if not execution.is_waiting:
        return refuse(ExecutionNotEligible, f"execution is {execution.public_state.value}")
    if execution.granted_to_other(at.now):
        return refuse(GrantAlreadyExists, f"until {execution.grant and execution.grant.expires_at}")
    missing = missing_capabilities(
        execution.route.required_capabilities, command.worker_capabilities
    )
    if missing:
        return refuse(CapabilityMismatch, ",".join(missing), missing=list(missing))
    grant = command.grant(GrantKind.CLAIM, at.now)
    granted = replace(execution, grant=grant, last_mutation_at=at.now)
    return Decision(grant_reply(granted, grant), granted)


def claim_granted(
    execution: Execution | None, command: ClaimGranted, at: Moment
) -> Decision[Claimed]:
    """Redeem a grant: a new attempt, or the interrupted one continued."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    if refusal := _refuse_redeem(execution, command, at.now):
        return Decision(refusal)
    return take(
        execution,
        worker_id=command.worker_id,
        worker_instance_id=command.worker_instance_id,
        lease_ttl_ms=command.lease_ttl_ms,
        backend=command.backend,
        ids=command.ids,
        at=at,
        reason=CLAIM_RESUMED if command.resumed else "claim",
    )


def _refuse_redeem(execution: Execution, command: ClaimGranted, now: int) -> Refused | None:
    if refusal := _refuse_lease(execution, now):
        return refusal
    if execution.is_interrupted != command.resumed:
        wrong = NotAResumedExecution if command.resumed else UseClaimResumedExecution
        return Refused(wrong)
    grant = execution.grant
    if grant is None or grant.worker_id != command.worker_id or grant.kind is not GrantKind.CLAIM:
        return Refused(InvalidClaimGrant)
    if not grant.is_live(now):
        return Refused(ClaimGrantExpired, f"at {grant.expires_at}")
    return None


def _refuse_lease(execution: Execution, now: int) -> Refused | None:
    if execution.state.ownership_state is not OwnershipState.UNOWNED:
        return Refused(LeaseConflict, "another lease exists")
    if execution.state.lifecycle_phase is not LifecyclePhase.RUNNABLE or not execution.is_waiting:
        return Refused(ExecutionNotLeaseable, f"execution is {execution.public_state.value}")
    if execution.deadline_at is not None and execution.deadline_at <= now:
        return Refused(ExecutionNotLeaseable, "the deadline has passed")
    return None


def claim_named(execution: Execution | None, command: ClaimNamed, at: Moment) -> Decision[Claimed]:
    """Grant and claim in one step for the operator; a live grant of a worker goes first."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    if refusal := _refuse_lease(execution, at.now):
        return Decision(refusal)
    if execution.granted_to_other(at.now):
        return refuse(GrantAlreadyExists)
    taken = take(
        execution,
        worker_id=OPERATOR,
        worker_instance_id=OPERATOR,
        lease_ttl_ms=command.lease_ttl_ms,
        backend=command.backend,
        ids=command.ids,
        at=at,
        reason="issue_grant_and_claim",
    )
    audit = operator_event(execution, OperatorEventType.CLAIMED, at.now)
    return replace(taken, events=(*taken.events, audit))
