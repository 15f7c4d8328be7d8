"""Grants and reclaims, for external schedulers and operators.

A grant promises one execution to one worker; redeeming it is a claim like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.model.results import (
    Claimed,
    GrantIssued,
    NoWork,
    ReclaimGrantResult,
    ReclaimResult,
)


@operation("scan_eligible_executions", Kind.READ, Scope.READ)
class ScanEligibleExecutions(Request[list[str]], frozen=True, kw_only=True):
    """Ids of waiting executions of a lane, best first; nothing changes."""

    lane_id: str
    limit: int = 100
    namespace: str | None = None


@operation("issue_claim_grant", Kind.WRITE, Scope.WORKER)
class IssueClaimGrant(Request[GrantIssued], frozen=True, kw_only=True):
    """Promise a waiting execution to a worker for a short time."""

    execution_id: str
    worker_id: str
    worker_instance_id: str
    worker_capabilities: Sequence[str] = ()
    grant_ttl_ms: int = limits.GRANT_TTL_MS_DEFAULT


@operation("claim_for_worker", Kind.WRITE, Scope.WORKER)
class ClaimForWorker(Request[GrantIssued | NoWork], frozen=True, kw_only=True):
    """Choose the best execution for a worker and promise it, in one transaction.

    `kinds`: those the worker has handlers for; without it any kind is promised.
    """

    lane_id: str
    worker_id: str
    worker_instance_id: str
    worker_capabilities: Sequence[str] = ()
    kinds: Sequence[str] | None = None
    grant_ttl_ms: int = limits.GRANT_TTL_MS_DEFAULT
    namespace: str | None = None


@operation("claim_execution", Kind.WRITE, Scope.WORKER)
class ClaimExecution(Request[Claimed], frozen=True, kw_only=True):
    """Redeem a grant with a new attempt."""

    execution_id: str
    worker_id: str
    worker_instance_id: str
    lease_ttl_ms: int | None = None


@operation("claim_resumed_execution", Kind.WRITE, Scope.WORKER)
class ClaimResumedExecution(Request[Claimed], frozen=True, kw_only=True):
    """Redeem a grant and go on with the interrupted attempt."""

    execution_id: str
    worker_id: str
    worker_instance_id: str
    lease_ttl_ms: int | None = None


@operation("claim_from_resume_grant", Kind.WRITE, Scope.WORKER)
class ClaimFromResumeGrant(Request[Claimed], frozen=True, kw_only=True):
    """Redeem the grant `claim_for_worker` gave for an interrupted attempt."""

    grant: GrantIssued
    worker_id: str
    worker_instance_id: str
    lease_ttl_ms: int | None = None


@operation("issue_grant_and_claim", Kind.WRITE, Scope.OPERATE)
class IssueGrantAndClaim(UnsafeRequest[Claimed], frozen=True, kw_only=True):
    """An operator takes one named waiting execution, in one atomic step."""

    execution_id: str
    lane_id: str
    lease_duration_ms: int


@operation("issue_reclaim_grant", Kind.WRITE, Scope.WORKER)
class IssueReclaimGrant(Request[ReclaimGrantResult], frozen=True, kw_only=True):
    """Choose the worker that takes over work whose lease was lost."""

    execution_id: str
    worker_id: str
    worker_instance_id: str
    worker_capabilities: Sequence[str] = ()
    grant_ttl_ms: int = limits.GRANT_TTL_MS_DEFAULT


@operation("reclaim_execution", Kind.WRITE, Scope.WORKER)
class ReclaimExecution(Request[ReclaimResult], frozen=True, kw_only=True):
    """Take over with a new attempt, by grant."""

    execution_id: str
    worker_id: str
    worker_instance_id: str
    lease_ttl_ms: int | None = None
    max_reclaim_count: int | None = None
