"""One typed method per operation, written by tools/backend_methods.py from requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

from flowfabric import limits
from flowfabric.api.budgets import (
    CreateBudget,
    GetBudgetStatus,
    ListBudgets,
    ReadBudgetUsageAndLimits,
    RecordSpend,
    ReleaseBudget,
    ReleaseHold,
    ReportUsage,
    ReportUsageAdmin,
    ReserveBudget,
    ResetBudget,
    SettleBudget,
    UpdateBudget,
    Usage,
)
from flowfabric.api.leases import (
    Cancel,
    Claim,
    Complete,
    CompleteExecution,
    Delay,
    Fail,
    FailExecution,
    Progress,
    Renew,
    RenewLease,
)
from flowfabric.api.operation import Request
from flowfabric.api.quotas import (
    CheckAdmission,
    CreateQuotaPolicy,
    GetQuotaStatus,
    ListQuotaPolicies,
    ReadQuotaPolicyLimits,
    ReleaseAdmission,
    UpdateQuotaPolicy,
)
from flowfabric.api.words import (
    EnforcementModeGiven,
    FailureClassGiven,
    HardActionGiven,
    ScopeTypeGiven,
    SoftActionGiven,
)
from flowfabric.model.attempt import FailureClass
from flowfabric.model.budget import (
    BudgetCreated,
    BudgetReset,
    BudgetStatus,
    BudgetUpdated,
    EnforcementMode,
    HardAction,
    HardBreach,
    HoldReleased,
    Reserved,
    ScopeType,
    SoftAction,
    UsageAndLimits,
    UsageOutcome,
)
from flowfabric.model.execution import Fence
from flowfabric.model.handle import Handle
from flowfabric.model.quota import (
    AdmissionOutcome,
    QuotaCreated,
    QuotaPolicy,
    QuotaStatus,
    QuotaUpdated,
    Released,
)
from flowfabric.model.results import (
    AlreadySatisfied,
    Cancelled,
    Claimed,
    Completed,
    Delayed,
    LeaseRenewal,
    Progressed,
    RetryScheduled,
    TerminalFailed,
)

R = TypeVar("R")


class Methods(ABC):
    """Every operation under its name: each method makes a request and asks for it."""

    @abstractmethod
    async def call(self, request: Request[R]) -> R:
        """The answer to one request; a refusal is raised."""

    # --- leases ---------------------------------------------------------------------------------

    async def claim(
        self,
        *,
        lanes: Sequence[str],
        worker_id: str,
        worker_instance_id: str,
        capabilities: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
        limit: int = 1,
        lease_ttl_ms: int | None = None,
        namespace: str | None = None,
        namespaces: Sequence[str] | None = None,
        max_wait_ms: int = 0,
    ) -> list[Claimed]:
        """Up to `limit` executions over several lanes in one transaction, best first.

        Waits up to `max_wait_ms` when there is none. Only work this worker can run is looked at.
        Lanes get their parts by weight, and the tenants of `namespaces` equal parts of each lane.
        """
        return await self.call(
            Claim(
                lanes=lanes,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                capabilities=capabilities,
                kinds=kinds,
                limit=limit,
                lease_ttl_ms=lease_ttl_ms,
                namespace=namespace,
                namespaces=namespaces,
                max_wait_ms=max_wait_ms,
            )
        )

    async def renew(self, handle: Handle) -> LeaseRenewal:
        """Extend the lease by its own length."""
        return await self.call(Renew(handle=handle))

    async def renew_lease(
        self, *, execution_id: str, fence: Fence | None, lease_ttl_ms: int
    ) -> LeaseRenewal:
        """Extend a lease named by its fence."""
        return await self.call(
            RenewLease(execution_id=execution_id, fence=fence, lease_ttl_ms=lease_ttl_ms)
        )

    async def progress(
        self, handle: Handle, *, percent: int | None = None, message: str | None = None
    ) -> Progressed:
        """How far the work is: 0 to 100, and a line of text; what is absent stays."""
        return await self.call(Progress(handle=handle, percent=percent, message=message))

    async def delay(self, handle: Handle, *, delay_until: int) -> Delayed:
        """Park the attempt until an instant; the same attempt is claimed again then."""
        return await self.call(Delay(handle=handle, delay_until=delay_until))

    async def complete(
        self, handle: Handle, *, result: bytes | None = None, result_encoding: str | None = None
    ) -> Completed:
        """The work succeeded. Repeating the call with the same handle answers the same."""
        return await self.call(
            Complete(handle=handle, result=result, result_encoding=result_encoding)
        )

    async def complete_execution(
        self,
        *,
        execution_id: str,
        source: str,
        fence: Fence | None = None,
        result_payload: bytes | None = None,
        result_encoding: str | None = None,
    ) -> Completed:
        """Complete by fence, or without one as `source="operator_override"`."""
        return await self.call(
            CompleteExecution(
                execution_id=execution_id,
                source=source,
                fence=fence,
                result_payload=result_payload,
                result_encoding=result_encoding,
            )
        )

    async def fail(
        self,
        handle: Handle,
        *,
        reason: str,
        failure_class: FailureClassGiven = FailureClass.TRANSIENT,
        category: str | None = None,
        retry_after_ms: int | None = None,
    ) -> RetryScheduled | TerminalFailed:
        """The attempt failed; the policy decides whether another follows."""
        return await self.call(
            Fail(
                handle=handle,
                reason=reason,
                failure_class=failure_class,
                category=category,
                retry_after_ms=retry_after_ms,
            )
        )

    async def fail_execution(
        self,
        *,
        execution_id: str,
        source: str,
        failure_reason: str,
        fence: Fence | None = None,
        failure_class: FailureClassGiven = FailureClass.TRANSIENT,
        failure_category: str | None = None,
        retry_after_ms: int | None = None,
    ) -> RetryScheduled | TerminalFailed:
        """Fail by fence, or without one as `source="operator_override"`."""
        return await self.call(
            FailExecution(
                execution_id=execution_id,
                source=source,
                failure_reason=failure_reason,
                fence=fence,
                failure_class=failure_class,
                failure_category=failure_category,
                retry_after_ms=retry_after_ms,
            )
        )

    async def cancel(self, handle: Handle, *, reason: str) -> Cancelled:
        """The owner gives up for good."""
        return await self.call(Cancel(handle=handle, reason=reason))

    # --- budgets --------------------------------------------------------------------------------

    async def create_budget(
        self,
        *,
        budget_id: str,
        dimensions: Sequence[str] = (),
        hard_limits: Sequence[int] = (),
        soft_limits: Sequence[int] = (),
        scope_type: ScopeTypeGiven = ScopeType.FREE,
        scope_id: str = "",
        enforcement_mode: EnforcementModeGiven = EnforcementMode.STRICT,
        on_hard_limit: HardActionGiven = HardAction.BLOCK,
        on_soft_limit: SoftActionGiven = SoftAction.WARN,
        reset_interval_ms: int = 0,
    ) -> BudgetCreated | AlreadySatisfied:
        """Put a policy in force; the three lists stand side by side, 0 is no limit.

        The same again is AlreadySatisfied, other content under the same id a LimitConflict.
        """
        return await self.call(
            CreateBudget(
                budget_id=budget_id,
                dimensions=dimensions,
                hard_limits=hard_limits,
                soft_limits=soft_limits,
                scope_type=scope_type,
                scope_id=scope_id,
                enforcement_mode=enforcement_mode,
                on_hard_limit=on_hard_limit,
                on_soft_limit=on_soft_limit,
                reset_interval_ms=reset_interval_ms,
            )
        )

    async def update_budget(
        self,
        *,
        budget_id: str,
        hard_limits: Mapping[str, int] | None = None,
        soft_limits: Mapping[str, int] | None = None,
        enforcement_mode: EnforcementModeGiven | None = None,
        on_hard_limit: HardActionGiven | None = None,
        on_soft_limit: SoftActionGiven | None = None,
        reset_interval_ms: int | None = None,
    ) -> BudgetUpdated:
        """Raise or lower limits and change what they do; what is not named stays."""
        return await self.call(
            UpdateBudget(
                budget_id=budget_id,
                hard_limits=hard_limits,
                soft_limits=soft_limits,
                enforcement_mode=enforcement_mode,
                on_hard_limit=on_hard_limit,
                on_soft_limit=on_soft_limit,
                reset_interval_ms=reset_interval_ms,
            )
        )

    async def reset_budget(self, *, budget_id: str) -> BudgetReset:
        """Usage to zero; breach counts are lifetime totals and stay."""
        return await self.call(ResetBudget(budget_id=budget_id))

    async def report_usage(
        self,
        handle: Handle,
        *,
        budget_id: str,
        usage: Usage,
        dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
        must_exist: bool = False,
    ) -> UsageOutcome:
        """What the owner of a lease used. Repeating a key returns the first outcome.

        Usage of a budget without a policy counts, and a policy made later sees it; with
        `must_exist` it is refused with NotFound.
        """
        return await self.call(
            ReportUsage(
                handle=handle,
                budget_id=budget_id,
                usage=usage,
                dedup_ttl_ms=dedup_ttl_ms,
                must_exist=must_exist,
            )
        )

    async def report_usage_admin(
        self,
        *,
        budget_id: str,
        dimensions: Sequence[str],
        deltas: Sequence[int],
        dedup_key: str | None = None,
        dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
        must_exist: bool = False,
    ) -> UsageOutcome:
        """A report from outside any execution; `must_exist` as in `report_usage`."""
        return await self.call(
            ReportUsageAdmin(
                budget_id=budget_id,
                dimensions=dimensions,
                deltas=deltas,
                dedup_key=dedup_key,
                dedup_ttl_ms=dedup_ttl_ms,
                must_exist=must_exist,
            )
        )

    async def record_spend(
        self,
        *,
        budget_id: str,
        execution_id: str,
        deltas: Mapping[str, int],
        idempotency_key: str | None = None,
        dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
    ) -> UsageOutcome:
        """A spend that `release_budget` can give back; a repeated key is AlreadyApplied."""
        return await self.call(
            RecordSpend(
                budget_id=budget_id,
                execution_id=execution_id,
                deltas=deltas,
                idempotency_key=idempotency_key,
                dedup_ttl_ms=dedup_ttl_ms,
            )
        )

    async def release_budget(self, *, budget_id: str, execution_id: str) -> None:
        """Give back exactly what an execution spent, once."""
        return await self.call(ReleaseBudget(budget_id=budget_id, execution_id=execution_id))

    async def reserve_budget(
        self,
        handle: Handle,
        *,
        budget_id: str,
        amounts: Mapping[str, int],
        hold_id: str | None = None,
        ttl_ms: int = limits.HOLD_TTL_MS_DEFAULT,
    ) -> Reserved | HardBreach:
        """Hold amounts against the hard limits before they are spent.

        The hold comes back by itself when it is settled, released, when its time is over, and when
        the lease ends for whatever reason. Asking twice with one `hold_id` holds once. NotFound for
        a budget that does not exist.
        """
        return await self.call(
            ReserveBudget(
                handle=handle, budget_id=budget_id, amounts=amounts, hold_id=hold_id, ttl_ms=ttl_ms
            )
        )

    async def settle_budget(
        self, handle: Handle, *, budget_id: str, hold_id: str, amounts: Mapping[str, int]
    ) -> UsageOutcome:
        """Replace a hold by what was really spent; it joins the execution's ledger."""
        return await self.call(
            SettleBudget(handle=handle, budget_id=budget_id, hold_id=hold_id, amounts=amounts)
        )

    async def release_hold(self, handle: Handle, *, budget_id: str, hold_id: str) -> HoldReleased:
        """Give a hold back unspent."""
        return await self.call(ReleaseHold(handle=handle, budget_id=budget_id, hold_id=hold_id))

    async def get_budget_status(self, *, budget_id: str) -> BudgetStatus:
        """Policy, usage and counters of one budget, all of one instant."""
        return await self.call(GetBudgetStatus(budget_id=budget_id))

    async def list_budgets(
        self, *, after: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> list[BudgetStatus]:
        """Budgets by id, those after `after`; usage without a policy is not listed.

        One whose rows cannot be read is left out; `doctor` names it.
        """
        return await self.call(ListBudgets(after=after, limit=limit))

    async def read_budget_usage_and_limits(self, *, budget_id: str) -> UsageAndLimits:
        """Limits and usage; empty where nothing is known."""
        return await self.call(ReadBudgetUsageAndLimits(budget_id=budget_id))

    # --- quotas ---------------------------------------------------------------------------------

    async def create_quota_policy(
        self,
        *,
        quota_policy_id: str,
        window_seconds: int = 60,
        max_requests_per_window: int = 0,
        max_concurrent: int = 0,
        jitter_ms: int = 0,
    ) -> QuotaCreated | AlreadySatisfied:
        """Put a policy in force; 0 is no limit. Each concurrency key is counted by itself."""
        return await self.call(
            CreateQuotaPolicy(
                quota_policy_id=quota_policy_id,
                window_seconds=window_seconds,
                max_requests_per_window=max_requests_per_window,
                max_concurrent=max_concurrent,
                jitter_ms=jitter_ms,
            )
        )

    async def update_quota_policy(
        self,
        *,
        quota_policy_id: str,
        window_seconds: int | None = None,
        max_requests_per_window: int | None = None,
        max_concurrent: int | None = None,
        jitter_ms: int | None = None,
    ) -> QuotaUpdated:
        """Change limits; what is not named stays. Whoever waits for room learns of it at once."""
        return await self.call(
            UpdateQuotaPolicy(
                quota_policy_id=quota_policy_id,
                window_seconds=window_seconds,
                max_requests_per_window=max_requests_per_window,
                max_concurrent=max_concurrent,
                jitter_ms=jitter_ms,
            )
        )

    async def check_admission(
        self,
        *,
        quota_policy_id: str,
        execution_id: str,
        dimension: str = "",
        reservation_ms: int | None = None,
    ) -> AdmissionOutcome:
        """Ask for a place for an execution, as an external scheduler does before it grants.

        The place is reserved until the execution runs, is released, or `reservation_ms` are over
        (default: the policy's window). Once it runs, its end frees the place.
        """
        return await self.call(
            CheckAdmission(
                quota_policy_id=quota_policy_id,
                execution_id=execution_id,
                dimension=dimension,
                reservation_ms=reservation_ms,
            )
        )

    async def release_admission(
        self, *, quota_policy_id: str, execution_id: str, dimension: str = ""
    ) -> Released:
        """Give back the place reserved for an execution; its start stays counted in the window.

        Twice is harmless. PlaceInUse when the execution runs: its lease's end frees the place.
        """
        return await self.call(
            ReleaseAdmission(
                quota_policy_id=quota_policy_id, execution_id=execution_id, dimension=dimension
            )
        )

    async def read_quota_policy_limits(self, *, quota_policy_id: str) -> QuotaPolicy | None:
        """The policy, or none."""
        return await self.call(ReadQuotaPolicyLimits(quota_policy_id=quota_policy_id))

    async def get_quota_status(self, *, quota_policy_id: str) -> QuotaStatus:
        """The policy and how much of it each key uses."""
        return await self.call(GetQuotaStatus(quota_policy_id=quota_policy_id))

    async def list_quota_policies(
        self, *, after: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> list[QuotaPolicy]:
        """Policies by id, those after `after`; one that cannot be read is left out."""
        return await self.call(ListQuotaPolicies(after=after, limit=limit))
