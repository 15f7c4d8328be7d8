"""Budgets limit what executions may spend; see docs/guides/limits.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.api.refusals import BY_HANDLE
from flowfabric.api.words import (
    EnforcementModeGiven,
    HardActionGiven,
    ScopeTypeGiven,
    SoftActionGiven,
)
from flowfabric.errors import (
    IdempotencyConflict,
    InvalidBudgetScope,
    InvalidCursor,
    InvalidInput,
    LimitConflict,
    NotFound,
    RevisionMismatch,
)
from flowfabric.model.budget import (
    AMOUNT_MAX,
    AskFirst,
    BudgetAlreadySatisfied,
    BudgetCreated,
    BudgetReset,
    BudgetStatus,
    BudgetUpdated,
    EnforcementMode,
    HardAction,
    HardBreach,
    HoldReleased,
    KindSpent,
    Reserved,
    ScopeType,
    SoftAction,
    Spent,
    UsageAndLimits,
    UsageOutcome,
)
from flowfabric.model.checks import check_integer
from flowfabric.model.handle import Handle
from flowfabric.model.limit_checks import check_amounts
from flowfabric.model.record import Record

# --- policies ------------------------------------------------------------------------------------


@operation(
    "create_budget", Kind.WRITE, Scope.OPERATE, errors=(NotFound, InvalidBudgetScope, LimitConflict)
)
class CreateBudget(
    UnsafeRequest[BudgetCreated | BudgetAlreadySatisfied], frozen=True, kw_only=True
):
    """Put a policy in force; the three lists stand side by side, 0 is no limit.

    The same again is BudgetAlreadySatisfied, other content under the same id a LimitConflict.
    `namespace`: whose it is, which is who may see and change it over a server; None: of all.
    """

    budget_id: str
    namespace: str | None = None
    dimensions: Sequence[str] = ()
    hard_limits: Sequence[int] = ()
    soft_limits: Sequence[int] = ()
    scope_type: ScopeTypeGiven = ScopeType.FREE
    scope_id: str = ""
    enforcement_mode: EnforcementModeGiven = EnforcementMode.STRICT
    on_hard_limit: HardActionGiven = HardAction.BLOCK
    on_soft_limit: SoftActionGiven = SoftAction.WARN
    reset_interval_ms: int = 0


@operation("update_budget", Kind.WRITE, Scope.OPERATE, errors=(NotFound, RevisionMismatch))
class UpdateBudget(UnsafeRequest[BudgetUpdated], frozen=True, kw_only=True):
    """Raise or lower limits and change what they do; what is not named stays.

    `expected_revision`: of the budget as it was read; another one by now is a RevisionMismatch.
    """

    budget_id: str
    hard_limits: Mapping[str, int] | None = None
    soft_limits: Mapping[str, int] | None = None
    enforcement_mode: EnforcementModeGiven | None = None
    on_hard_limit: HardActionGiven | None = None
    on_soft_limit: SoftActionGiven | None = None
    reset_interval_ms: int | None = None
    expected_revision: int | None = None


@operation("reset_budget", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class ResetBudget(UnsafeRequest[BudgetReset], frozen=True, kw_only=True):
    """Usage to zero; breach counts are lifetime totals and stay."""

    budget_id: str


# --- spending ------------------------------------------------------------------------------------


class Usage(Record, frozen=True, kw_only=True):
    """What a worker used. Every part counts, each under its own name.

    >>> Usage(input_tokens=120, custom={"cost_micros": 900}).amounts()
    {'cost_micros': 900, 'input_tokens': 120}
    """

    input_tokens: int = 0
    output_tokens: int = 0
    wall_ms: int = 0
    custom: Mapping[str, int] = {}
    dedup_key: str | None = None

    def amounts(self) -> dict[str, int]:
        """One map of dimension to amount; what was not used is left out."""
        amounts = check_amounts(self.custom, field="custom")
        for name in ("input_tokens", "output_tokens", "wall_ms"):
            value = check_integer(getattr(self, name), field=name, least=0, most=AMOUNT_MAX)
            if value and name in amounts:
                raise InvalidInput(f"custom.{name}: given twice", field=f"custom.{name}")
            if value:
                amounts[name] = value
        if len(amounts) > limits.DIMENSIONS_MAX:
            return check_amounts(amounts, field="usage")
        return dict(sorted(amounts.items()))


@operation("report_usage", Kind.WRITE, Scope.WORKER, errors=BY_HANDLE)
class ReportUsage(Request[UsageOutcome], frozen=True, kw_only=True):
    """What the owner of a lease used. Repeating a key returns the first outcome.

    Usage of a budget without a policy counts, and a policy made later sees it; with
    `must_exist` it is refused with NotFound.
    """

    handle: Handle
    budget_id: str
    usage: Usage
    dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT
    must_exist: bool = False


@operation("report_usage_admin", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class ReportUsageAdmin(UnsafeRequest[UsageOutcome], frozen=True, kw_only=True):
    """A report from outside any execution; `must_exist` as in `report_usage`."""

    budget_id: str
    dimensions: Sequence[str]
    deltas: Sequence[int]
    dedup_key: str | None = None
    dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT
    must_exist: bool = False


@operation("record_spend", Kind.WRITE, Scope.OPERATE)
class RecordSpend(Request[UsageOutcome], frozen=True, kw_only=True):
    """A spend that `release_budget` can give back; a repeated key is AlreadyApplied."""

    budget_id: str
    execution_id: str
    deltas: Mapping[str, int]
    idempotency_key: str | None = None
    dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT


@operation("release_budget", Kind.WRITE, Scope.OPERATE)
class ReleaseBudget(Request[None], frozen=True, kw_only=True):
    """Give back exactly what an execution spent, once."""

    budget_id: str
    execution_id: str


@operation("reserve_budget", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, IdempotencyConflict))
class ReserveBudget(Request[Reserved | HardBreach | AskFirst], frozen=True, kw_only=True):
    """Hold amounts against the hard limits before they are spent.

    AskFirst of a budget that asks: nothing is held; go on with `ask_budget`.

    The hold comes back by itself when it is settled, released, when its time is over, and when
    the lease ends for whatever reason. Asking twice with one `hold_id` holds once. NotFound for
    a budget that does not exist.
    """

    handle: Handle
    budget_id: str
    amounts: Mapping[str, int]
    hold_id: str | None = None
    ttl_ms: int = limits.HOLD_TTL_MS_DEFAULT


@operation("settle_budget", Kind.WRITE, Scope.WORKER, errors=BY_HANDLE)
class SettleBudget(Request[UsageOutcome], frozen=True, kw_only=True):
    """Replace a hold by what was really spent; it joins the execution's ledger."""

    handle: Handle
    budget_id: str
    hold_id: str
    amounts: Mapping[str, int]


@operation("release_hold", Kind.WRITE, Scope.WORKER, errors=BY_HANDLE)
class ReleaseHold(Request[HoldReleased], frozen=True, kw_only=True):
    """Give a hold back unspent."""

    handle: Handle
    budget_id: str
    hold_id: str


# --- reading -------------------------------------------------------------------------------------


@operation("get_budget_status", Kind.READ, Scope.READ, errors=(NotFound,))
class GetBudgetStatus(Request[BudgetStatus], frozen=True, kw_only=True):
    """Policy, usage and counters of one budget, all of one instant."""

    budget_id: str


@operation("list_budgets", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListBudgets(Request[Page[BudgetStatus]], frozen=True, kw_only=True):
    """Budgets by id; usage without a policy is not listed.

    One whose rows cannot be read is left out; `doctor` names it.
    """

    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("read_budget_usage_and_limits", Kind.READ, Scope.READ)
class ReadBudgetUsageAndLimits(Request[UsageAndLimits], frozen=True, kw_only=True):
    """Limits and usage; empty where nothing is known."""

    budget_id: str


@operation("list_spend", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListSpend(Request[Page[KindSpent]], frozen=True, kw_only=True):
    """What all executions of a tenant have spent, by kind, budget and dimension.

    Those that are purged by now are included. `execution_kind`: only this one.
    """

    namespace: str | None = None
    execution_kind: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("list_execution_spend", Kind.READ, Scope.READ, errors=(NotFound, InvalidCursor))
class ListExecutionSpend(Request[Page[Spent]], frozen=True, kw_only=True):
    """What one execution has spent, by budget and dimension, in all periods of the budgets.

    That is what its workers reported and settled, and what was recorded for it. What is
    reserved is not spent yet.
    """

    execution_id: str
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("list_flow_spend", Kind.READ, Scope.READ, errors=(NotFound, InvalidCursor))
class ListFlowSpend(Request[Page[Spent]], frozen=True, kw_only=True):
    """What the members of a flow have spent, by budget and dimension.

    A member that had spent before it joined brings that along when it spends again.
    """

    flow_id: str
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT
