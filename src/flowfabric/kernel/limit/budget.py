"""Budgets: what may be spent, what spending does, and when a budget is closed to new work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flowfabric.errors import BudgetScopeMismatch, InvalidInput, LimitConflict, NotFound
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.limits import DIMENSIONS_MAX
from flowfabric.model.budget import (
    AMOUNT_MAX,
    BudgetAlreadySatisfied,
    BudgetCreated,
    BudgetPolicy,
    BudgetReset,
    BudgetRow,
    BudgetUpdated,
    EnforcementMode,
    HardAction,
    HardBreach,
    PendingWork,
    ScopeType,
    SoftAction,
    SoftBreach,
    UsageRow,
)
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.record import Record, replace

# A budget hammered at its limit is one event in each minute of the clock, not thousands.
BREACH_EVENT_PERIOD_MS = 60_000


class Budget(Record, frozen=True):
    """A budget's row and its usage by dimension."""

    row: BudgetRow
    usage: Mapping[str, UsageRow]

    def committed(self, dimension: str) -> int:
        """What is used and reserved."""
        usage = self.usage.get(dimension)
        return 0 if usage is None else usage.used + usage.held

    def used(self, dimension: str) -> int:
        """What is used."""
        usage = self.usage.get(dimension)
        return 0 if usage is None else usage.used


class Closed(Record, frozen=True):
    """Why no attached execution may start: the first full dimension by name."""

    dimension: str
    committed: int
    limit: int
    action: HardAction


class BudgetDecision(Record, frozen=True):
    """The reply to one command about a budget, and the budget as it is then."""

    reply: Any
    budget: Budget | None = None
    events: tuple[OperatorEvent, ...] = ()


class CreateBudget(Command[BudgetCreated | BudgetAlreadySatisfied], frozen=True, kw_only=True):
    """Put a policy in force."""

    budget_id: str
    policy: BudgetPolicy

    def needs(self, need: Needs) -> None:
        """The budget; the execution that it is for."""
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        if self.policy.scope_type is ScopeType.EXECUTION:
            need.executions.add(self.policy.scope_id)


class UpdateBudget(Command[BudgetUpdated], frozen=True, kw_only=True):
    """Raise or lower limits; what is absent stays."""

    budget_id: str
    hard_limits: Mapping[str, int] | None = None
    soft_limits: Mapping[str, int] | None = None
    enforcement_mode: str | None = None
    on_hard_limit: str | None = None
    on_soft_limit: str | None = None
    reset_interval_ms: int | None = None

    def needs(self, need: Needs) -> None:
        """The budget."""
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)


class ResetBudget(Command[BudgetReset], frozen=True, kw_only=True):
    """Start counting from zero; `only_if_due` for the loop, which may come too late or twice."""

    budget_id: str
    only_if_due: bool = False

    def needs(self, need: Needs) -> None:
        """The budget."""
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)


def new_budget(budget_id: str, at: Moment) -> Budget:
    """Nothing is known of it yet: it collects usage without limits."""
    return Budget(BudgetRow(budget_id, None, at.now, at.now), {})


def is_strict(policy: BudgetPolicy) -> bool:
    """Whether hard limits refuse."""
    return policy.enforcement_mode is EnforcementMode.STRICT


def hard_breach(budget: Budget, amounts: Mapping[str, int]) -> HardBreach | None:
    """The first dimension by name that these amounts would carry over its hard limit."""
    policy = budget.row.policy
    if policy is None or not is_strict(policy):
        return None
    for dimension in sorted(amounts):
        limit, current = policy.hard_limits.get(dimension, 0), budget.committed(dimension)
        if limit > 0 and current + amounts[dimension] > limit:
            return HardBreach(dimension, current, limit)
    return None


def soft_breach(budget: Budget, dimensions: Iterable[str]) -> SoftBreach | None:
    """The first of these dimensions by name whose usage is over its soft limit.

    Where hard limits are advisory, passing one is reported the same way.
    """
    policy = budget.row.policy
    if policy is None or (not policy.soft_limits and is_strict(policy)):
        return None
    for dimension in sorted(dimensions):
        used = budget.used(dimension)
        for limit in soft_limits_of(budget, dimension):
            if limit < used:
                return SoftBreach(dimension, used, limit)
    return None


def soft_limits_of(budget: Budget, dimension: str) -> list[int]:
    """The limits of a dimension that are reported and never refused."""
    policy = budget.row.policy
    if policy is None:
        return []
    soft, hard = policy.soft_limits.get(dimension, 0), policy.hard_limits.get(dimension, 0)
    limits = [soft] if is_strict(policy) else [soft, hard]
    return [limit for limit in limits if limit > 0]


def overflow(budget: Budget, amounts: Mapping[str, int]) -> Refused | None:
    """Sums stay within 64 bits on every store."""
    for dimension in sorted(amounts):
        if budget.committed(dimension) + amounts[dimension] > AMOUNT_MAX:
            return Refused(
                InvalidInput, f"{dimension}: the sum is over 2^63-1", {"field": dimension}
            )
    return None


def closed(budget: Budget) -> Closed | None:
    """Whether new work must wait: full on a hard limit, or over a soft one that blocks."""
    policy = budget.row.policy
    if policy is None or not is_strict(policy):
        return None
    full, over = _reached(budget, policy)
    if not full and not over:
        return None
    dimension = min((*full, *over))
    committed = budget.committed(dimension)
    if dimension in full:
        return Closed(dimension, committed, full[dimension], policy.on_hard_limit)
    return Closed(dimension, committed, over[dimension], HardAction.BLOCK)


def _reached(budget: Budget, policy: BudgetPolicy) -> tuple[dict[str, int], dict[str, int]]:
    """The hard limits that are full and the soft ones passed, as far as they keep work waiting."""
    full, over = {}, {}
    if policy.on_hard_limit is not HardAction.DENY:
        full = {
            dimension: limit
            for dimension, limit in policy.hard_limits.items()
            if 0 < limit <= budget.committed(dimension)
        }
    if policy.on_soft_limit is SoftAction.BLOCK:
        over = {
            dimension: limit
            for dimension, limit in policy.soft_limits.items()
            if 0 < limit < budget.committed(dimension)
        }
    return full, over


def moved(
    budget: Budget,
    at: Moment,
    *,
    used: Mapping[str, int] | None = None,
    held: Mapping[str, int] | None = None,
) -> Budget:
    """The budget after additions to what is used and held; nothing falls below zero."""
    usage = dict(budget.usage)
    used, held = used or {}, held or {}
    for dimension in sorted({*used, *held}) if held else used:
        old = usage.get(dimension)
        before = (0, 0) if old is None else (old.used, old.held)
        usage[dimension] = UsageRow(
            budget.row.budget_id,
            dimension,
            max(0, before[0] + used.get(dimension, 0)),
            max(0, before[1] + held.get(dimension, 0)),
            at.now,
        )
    return Budget(budget.row, usage)


def count_hard_breach(
    budget: Budget, breach: HardBreach, at: Moment
) -> tuple[Budget, tuple[OperatorEvent, ...]]:
    """Breach counters are lifetime totals; pending work is cancelled where the policy says so."""
    row, policy = budget.row, budget.row.policy
    last = row.last_breach_at
    events: tuple[OperatorEvent, ...] = ()
    if last is None or last // BREACH_EVENT_PERIOD_MS != at.now // BREACH_EVENT_PERIOD_MS:
        events = (
            budget_event(
                row.budget_id,
                OperatorEventType.BUDGET_HARD_BREACH,
                at.now,
                dimension=breach.dimension,
                current_usage=breach.current_usage,
                hard_limit=breach.hard_limit,
            ),
        )
    counted = replace(
        row,
        breach_count=row.breach_count + 1,
        last_breach_at=at.now,
        last_breach_dim=breach.dimension,
        updated_at=at.now,
    )
    if policy is not None and policy.on_hard_limit is HardAction.CANCEL_PENDING:
        counted = with_pending(counted, PendingWork.CANCEL, at.now)
    return replace(budget, row=counted), events


def count_soft_breach(
    before: Budget, after: Budget, dimensions: Iterable[str], at: Moment
) -> tuple[Budget, tuple[OperatorEvent, ...]]:
    """Counted each time; an event is written for each limit passed, not again above it."""
    row, policy = after.row, after.row.policy
    counted = replace(row, soft_breach_count=row.soft_breach_count + 1, updated_at=at.now)
    if policy is None or policy.on_soft_limit is SoftAction.IGNORE:
        return replace(after, row=counted), ()
    events = tuple(
        budget_event(
            row.budget_id,
            OperatorEventType.BUDGET_SOFT_BREACH,
            at.now,
            dimension=dimension,
            current_usage=after.used(dimension),
            soft_limit=limit,
        )
        for dimension in sorted(dimensions)
        for limit in soft_limits_of(after, dimension)
        if before.used(dimension) <= limit < after.used(dimension)
    )
    return replace(after, row=counted), events


def with_pending(row: BudgetRow, work: PendingWork, now: int) -> BudgetRow:
    """Remember work on attached executions, or that there is none; a cancellation goes first."""
    if row.pending is PendingWork.CANCEL and work is PendingWork.UNBLOCK:
        return row
    return with_due(replace(row, pending=work), now)


def with_due(row: BudgetRow, now: int) -> BudgetRow:
    """The row is due now while work is pending, else at its next reset."""
    return replace(row, due_at=row.next_reset_at if row.pending is PendingWork.NONE else now)


def budget_event(
    budget_id: str, event_type: OperatorEventType, now: int, **details: Any
) -> OperatorEvent:
    """What happened to a budget, for the audit trail and subscribers."""
    return OperatorEvent(budget_id, event_type, details, "", {}, now)


def no_budget(budget_id: str) -> Refused:
    """No such budget."""
    detail = f"budget {budget_id}: there is none of that name; create it, or mend the name"
    return Refused(NotFound, detail, {"entity": "budget", "budget_id": budget_id})


def refuse_unknown(budget: Budget) -> Refused | None:
    """Usage may be counted before a policy is made; what relies on a limit needs one."""
    return no_budget(budget.row.budget_id) if budget.row.policy is None else None


# --- operator ----------------------------------------------------------------------------------


def create_budget(budget: Budget, command: CreateBudget, at: Moment) -> BudgetDecision:
    """Idempotent; usage reported before the policy existed counts."""
    row, policy = budget.row, command.policy
    if row.policy is not None:
        if row.policy == policy:
            name = row.budget_id
            return BudgetDecision(BudgetAlreadySatisfied(name))
        detail = f"budget {row.budget_id} exists with another policy"
        return BudgetDecision(Refused(LimitConflict, detail, {"field": "budget_id"}))
    interval = policy.reset_interval_ms
    made = replace(
        row,
        policy=policy,
        created_at=at.now,
        updated_at=at.now,
        next_reset_at=at.now + interval if interval else None,
    )
    event = budget_event(row.budget_id, OperatorEventType.BUDGET_CREATED, at.now)
    ready = replace(budget, row=with_due(made, at.now))
    return BudgetDecision(BudgetCreated(row.budget_id), ready, (event,))


def update_budget(budget: Budget, command: UpdateBudget, at: Moment) -> BudgetDecision:
    """Limits are merged by dimension; 0 lifts one. Whoever waits for room learns of it at once."""
    row = budget.row
    if row.policy is None:
        return BudgetDecision(no_budget(row.budget_id))
    old = row.policy
    changes = {
        name: value
        for name in ("enforcement_mode", "on_hard_limit", "on_soft_limit", "reset_interval_ms")
        if (value := getattr(command, name)) is not None
    }
    policy = replace(
        old,
        hard_limits=merged(old.hard_limits, command.hard_limits),
        soft_limits=merged(old.soft_limits, command.soft_limits),
        **changes,
    )
    if refusal := _too_many(policy):
        return BudgetDecision(refusal)
    next_reset = row.next_reset_at
    if policy.reset_interval_ms != old.reset_interval_ms:
        start = row.last_reset_at if row.last_reset_at is not None else row.created_at
        next_reset = next_after(start, policy.reset_interval_ms, at.now)
    changed = replace(row, policy=policy, next_reset_at=next_reset, updated_at=at.now)
    event = budget_event(row.budget_id, OperatorEventType.BUDGET_UPDATED, at.now)
    ready = replace(budget, row=with_due(changed, at.now))
    return BudgetDecision(BudgetUpdated(row.budget_id), ready, (event,))


def merged(old: Mapping[str, int], new: Mapping[str, int] | None) -> dict[str, int]:
    """Limits by dimension with the new ones in place, sorted."""
    return dict(sorted({**old, **(new or {})}.items()))


def _too_many(policy: BudgetPolicy) -> Refused | None:
    """Limits are merged, so each call may be small and their sum not."""
    for field, named in (("hard_limits", policy.hard_limits), ("soft_limits", policy.soft_limits)):
        if len(named) > DIMENSIONS_MAX:
            detail = f"{field}: the budget would have more than {DIMENSIONS_MAX} dimensions"
            return Refused(InvalidInput, detail, {"field": field})
    return None


def next_after(start: int | None, interval_ms: int, now: int) -> int | None:
    """start + k · interval, the first after now: schedules do not drift."""
    if not interval_ms or start is None:
        return None
    periods = max(0, (now - start) // interval_ms + 1)
    return start + periods * interval_ms


def reset_budget(budget: Budget, command: ResetBudget, at: Moment) -> BudgetDecision:
    """Usage to zero in a new generation; holds and lifetime breach counts stay."""
    row = budget.row
    if row.policy is None:
        return BudgetDecision(no_budget(row.budget_id))
    due = row.next_reset_at
    if command.only_if_due and (due is None or due > at.now):
        return BudgetDecision(BudgetReset(due or 0))
    next_reset = next_after(due, row.policy.reset_interval_ms, at.now)
    fresh = replace(
        row,
        generation=row.generation + 1,
        reset_count=row.reset_count + 1,
        last_reset_at=at.now,
        last_breach_at=None,
        last_breach_dim=None,
        next_reset_at=next_reset,
        updated_at=at.now,
    )
    usage = {
        name: replace(each, used=0, updated_at=at.now) if each.used else each
        for name, each in budget.usage.items()
    }
    event = budget_event(row.budget_id, OperatorEventType.BUDGET_RESET, at.now)
    ready = Budget(with_due(fresh, at.now), usage)
    return BudgetDecision(BudgetReset(next_reset or 0), ready, (event,))


def refuse_scopes(
    policies: Mapping[str, BudgetPolicy], places: Mapping[ScopeType, str]
) -> Refused | None:
    """A budget that is for one lane, tenant, flow or execution is spent from there alone."""
    for name, policy in policies.items():
        if policy.scope_id != places.get(policy.scope_type, policy.scope_id):
            detail = f"budget_ids: {name} is for {policy.scope_type.value} {policy.scope_id}"
            return Refused(BudgetScopeMismatch, detail, {"field": "budget_ids"})
    return None
