"""Quotas limit how many executions start and run at once; see docs/guides/limits.md."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.errors import (
    InvalidCursor,
    InvalidQuotaSpec,
    LimitConflict,
    NotFound,
    PlaceInUse,
    RevisionMismatch,
)
from flowfabric.model.quota import (
    AdmissionOutcome,
    AdmissionReleased,
    QuotaAlreadySatisfied,
    QuotaCreated,
    QuotaPolicy,
    QuotaStatus,
    QuotaUpdated,
)


@operation(
    "create_quota_policy", Kind.WRITE, Scope.OPERATE, errors=(InvalidQuotaSpec, LimitConflict)
)
class CreateQuotaPolicy(
    UnsafeRequest[QuotaCreated | QuotaAlreadySatisfied], frozen=True, kw_only=True
):
    """Put a policy in force; 0 is no limit. Each concurrency key is counted by itself.

    `namespace`: whose it is, which is who may see and change it over a server; None: of all.
    """

    quota_policy_id: str
    namespace: str | None = None
    window_seconds: int = 60
    max_requests_per_window: int = 0
    max_concurrent: int = 0
    jitter_ms: int = 0


@operation(
    "update_quota_policy",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(NotFound, InvalidQuotaSpec, RevisionMismatch),
)
class UpdateQuotaPolicy(UnsafeRequest[QuotaUpdated], frozen=True, kw_only=True):
    """Change limits; what is not named stays. What waits for room is looked at at once.

    `expected_revision`: of the policy as it was read; another one by now is a RevisionMismatch.
    """

    quota_policy_id: str
    window_seconds: int | None = None
    max_requests_per_window: int | None = None
    max_concurrent: int | None = None
    jitter_ms: int | None = None
    expected_revision: int | None = None


@operation("check_admission", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class CheckAdmission(Request[AdmissionOutcome], frozen=True, kw_only=True):
    """Ask for a place for an execution, as an external scheduler does before it grants.

    The place is reserved until the execution runs, is released, or `reservation_ms` are over
    (default: the policy's window). Once it runs, its end frees the place.
    """

    quota_policy_id: str
    execution_id: str
    dimension: str = ""
    reservation_ms: int | None = None


@operation("release_admission", Kind.WRITE, Scope.OPERATE, errors=(PlaceInUse,))
class ReleaseAdmission(Request[AdmissionReleased], frozen=True, kw_only=True):
    """Give back the place reserved for an execution; its start stays counted in the window.

    Twice is harmless. PlaceInUse when the execution runs: its lease's end frees the place.
    """

    quota_policy_id: str
    execution_id: str
    dimension: str = ""


@operation("read_quota_policy_limits", Kind.READ, Scope.READ)
class ReadQuotaPolicyLimits(Request[QuotaPolicy | None], frozen=True, kw_only=True):
    """The policy, or none."""

    quota_policy_id: str


@operation("get_quota_status", Kind.READ, Scope.READ, errors=(NotFound,))
class GetQuotaStatus(Request[QuotaStatus], frozen=True, kw_only=True):
    """The policy and how much of it each key uses."""

    quota_policy_id: str


@operation("list_quota_policies", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListQuotaPolicies(Request[Page[QuotaPolicy]], frozen=True, kw_only=True):
    """Policies by id; one that cannot be read is left out."""

    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT
