"""Commands about budgets and quotas."""

from __future__ import annotations

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.limit import (
    budget_policy,
    ledger,
    quota,
    quota_policy,
    reservation,
    spending,
)
from flowfabric.model.budget import (
    AskFirst,
    BudgetAlreadySatisfied,
    BudgetCreated,
    BudgetReset,
    BudgetUpdated,
    HardBreach,
    HoldReleased,
    Reserved,
    ScopeType,
    UsageOutcome,
)
from flowfabric.model.quota import (
    AdmissionOutcome,
    AdmissionReleased,
    QuotaAlreadySatisfied,
    QuotaCreated,
    QuotaUpdated,
)

# --- budgets -------------------------------------------------------------------------------------


@handles(budget_policy.CreateBudget)
async def create_budget(
    unit: Unit, command: budget_policy.CreateBudget
) -> BudgetCreated | BudgetAlreadySatisfied | Refused:
    """For a lane, a namespace, a flow, one execution, or what names it."""
    budget, scope = unit.limits.budgets.get(command.budget_id), command.policy.scope_type
    if isinstance(budget, Refused):
        return budget
    of = command.policy.scope_id if scope is ScopeType.EXECUTION else None
    execution = unit.view.execution(of)
    decision = budget_policy.create_budget(execution, budget, command, unit.view.at)
    return unit.view.apply(execution, decision, command)


@handles(budget_policy.UpdateBudget)
async def update_budget(unit: Unit, command: budget_policy.UpdateBudget) -> BudgetUpdated | Refused:
    """Its limits."""
    budget = unit.limits.budgets.get(command.budget_id)
    if isinstance(budget, Refused):
        return budget
    decision = budget_policy.update_budget(budget, command, unit.view.at)
    return unit.view.apply(None, decision, command)


@handles(budget_policy.ResetBudget)
async def reset_budget(unit: Unit, command: budget_policy.ResetBudget) -> BudgetReset | Refused:
    """Its usage."""
    budget = unit.limits.budgets.get(command.budget_id)
    if isinstance(budget, Refused):
        return budget
    decision = budget_policy.reset_budget(budget, command, unit.view.at)
    return unit.view.apply(None, decision, command)


# --- spending ------------------------------------------------------------------------------------


@handles(spending.ReportUsage)
async def report_usage(unit: Unit, command: spending.ReportUsage) -> UsageOutcome | Refused:
    """By a worker, or from outside."""
    budgets, execution = unit.limits.budgets, unit.view.execution(command.execution_id)
    budget, seen = budgets.get(command.budget_id), budgets.seen(command.seen_under)
    if isinstance(budget, Refused):
        return budget
    of = command.execution_id
    account = None if of is None else budgets.account(command.budget_id, of)
    decision = spending.report_usage(execution, budget, seen, account, command, unit.view.at)
    return unit.view.apply(execution, decision, command)


@handles(spending.RecordSpend)
async def record_spend(unit: Unit, command: spending.RecordSpend) -> UsageOutcome | Refused:
    """For an execution that may be long gone."""
    budgets = unit.limits.budgets
    budget, seen = budgets.get(command.budget_id), budgets.seen(command.seen_under)
    if isinstance(budget, Refused):
        return budget
    account = budgets.account(command.budget_id, command.execution_id)
    decision = spending.record_spend(budget, seen, account, command, unit.view.at)
    return unit.view.apply(None, decision, command)


@handles(spending.ReleaseBudget)
async def release_budget(unit: Unit, command: spending.ReleaseBudget) -> Refused | None:
    """What an execution has spent."""
    budgets = unit.limits.budgets
    budget = budgets.get(command.budget_id)
    if isinstance(budget, Refused):
        return budget
    account = budgets.account(command.budget_id, command.execution_id)
    spends = budgets.seen_with(command.spends)
    decision = ledger.release_budget(budget, account, spends, unit.view.at)
    return unit.view.apply(None, decision, command)


# --- reservations --------------------------------------------------------------------------------


@handles(reservation.Reserve)
async def reserve(
    unit: Unit, command: reservation.Reserve
) -> Reserved | HardBreach | AskFirst | Refused:
    """By the owner of the lease."""
    budgets, execution = unit.limits.budgets, unit.view.execution(command.execution_id)
    budget, hold = budgets.get(command.budget_id), budgets.hold(command.hold_key)
    if isinstance(budget, Refused):
        return budget
    settled = budgets.seen(command.seen_under)
    allowances = budgets.free_allowances(command.execution_id, command.budget_id, command.hold_id)
    decision = reservation.reserve(
        execution, budget, hold, settled, command, unit.view.at, allowances
    )
    return unit.view.apply(execution, decision, command)


@handles(reservation.Settle)
async def settle(unit: Unit, command: reservation.Settle) -> UsageOutcome | Refused:
    """By the owner of the lease."""
    return settle_now(unit, command)


def settle_now(unit: Unit, command: reservation.Settle) -> UsageOutcome | Refused:
    """Alone, or with an entry of the journal."""
    budgets, execution = unit.limits.budgets, unit.view.execution(command.execution_id)
    budget, hold = budgets.get(command.budget_id), budgets.hold(command.hold_key)
    if isinstance(budget, Refused):
        return budget
    account = budgets.account(command.budget_id, command.execution_id)
    seen = budgets.seen(command.seen_under)
    allowances = budgets.allowances(command.execution_id, command.budget_id)
    decision = reservation.settle(
        execution, budget, hold, account, seen, command, unit.view.at, allowances
    )
    return unit.view.apply(execution, decision, command)


@handles(reservation.ReleaseHold)
async def release_hold(unit: Unit, command: reservation.ReleaseHold) -> HoldReleased | Refused:
    """By the owner of the lease."""
    budgets, execution = unit.limits.budgets, unit.view.execution(command.execution_id)
    budget, hold = budgets.get(command.budget_id), budgets.hold(command.hold_key)
    if isinstance(budget, Refused):
        return budget
    decision = reservation.release_hold(execution, budget, hold, command, unit.view.at)
    return unit.view.apply(execution, decision, command)


# --- quotas --------------------------------------------------------------------------------------


@handles(quota_policy.CreateQuota)
async def create_quota(
    unit: Unit, command: quota_policy.CreateQuota
) -> QuotaCreated | QuotaAlreadySatisfied | Refused:
    """Its limits."""
    policy = unit.limits.gates.policy(command.quota_policy_id)
    decision = quota_policy.create_quota(policy, command, unit.view.at)
    return unit.view.apply(None, decision, command)


@handles(quota_policy.UpdateQuota)
async def update_quota(unit: Unit, command: quota_policy.UpdateQuota) -> QuotaUpdated | Refused:
    """Its limits."""
    policy = unit.limits.gates.policy(command.quota_policy_id)
    decision = quota_policy.update_quota(policy, command, unit.view.at)
    return unit.view.apply(None, decision, command)


@handles(quota.CheckAdmission)
async def check_admission(unit: Unit, command: quota.CheckAdmission) -> AdmissionOutcome | Refused:
    """By an external scheduler."""
    gates, execution = unit.limits.gates, unit.view.execution(command.execution_id)
    gate, held = gates.get(command.gate), gates.admission(command.gate, command.execution_id)
    decision = quota.check_admission(execution, gate, held, command, unit.view.at)
    return unit.view.apply(execution, decision, command)


@handles(quota.ReleaseAdmission)
async def release_admission(
    unit: Unit, command: quota.ReleaseAdmission
) -> AdmissionReleased | Refused:
    """By an external scheduler."""
    gates, execution = unit.limits.gates, unit.view.execution(command.execution_id)
    gate, held = gates.get(command.gate), gates.admission(command.gate, command.execution_id)
    decision = quota.release_admission(execution, gate, held, command)
    return unit.view.apply(execution, decision, command)
