"""Budgets: what may be spent, what spending does, and when a budget is closed to new work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowfabric.errors import BudgetScopeMismatch, InvalidInput, NotFound
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.model.ask import AskRow, LimitKind
from flowfabric.model.budget import (
    AMOUNT_MAX,
    AskFirst,
    BudgetPolicy,
    BudgetRow,
    EnforcementMode,
    HardAction,
    HardBreach,
    PendingWork,
    ScopeType,
    SoftAction,
    SoftBreach,
    UsageRow,
)
from flowfabric.model.event import BudgetEvent, BudgetEventType
from flowfabric.model.record import Record, replace

# A budget hammered at its limit is one event in each minute of the clock, not thousands.
BREACH_EVENT_PERIOD_MS = 60_000


AskKey = tuple[LimitKind, str]  # which limit of which dimension


class Budget(Record, frozen=True):
    """A budget's row and its usage by dimension; of one that asks, also its last questions."""

    row: BudgetRow
    usage: Mapping[str, UsageRow]
    asks: Mapping[AskKey, AskRow] = {}

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


def asks_people(policy: BudgetPolicy | None) -> bool:
    """Whether a limit of the budget is a question."""
    return policy is not None and (
        policy.on_hard_limit is HardAction.ASK or policy.on_soft_limit is SoftAction.ASK
    )


def limit_that_asks(policy: BudgetPolicy | None, kind: LimitKind, dimension: str) -> int:
    """The limit about which people are asked; 0 where there is none."""
    if policy is None or not is_strict(policy):
        return 0
    if kind is LimitKind.HARD:
        asks, limits = policy.on_hard_limit is HardAction.ASK, policy.hard_limits
    else:
        asks, limits = policy.on_soft_limit is SoftAction.ASK, policy.soft_limits
    return limits.get(dimension, 0) if asks else 0


def no_room(
    budget: Budget, amounts: Mapping[str, int], allowances: Mapping[AskKey, int]
) -> HardBreach | AskFirst | None:
    """What keeps these amounts from being reserved. `allowances`: what the execution may reserve
    beyond limits. A limit that only refuses comes before a question that could not help."""
    policy = budget.row.policy
    if policy is None or not is_strict(policy):
        return None
    if (breach := _passed(budget, LimitKind.HARD, amounts, allowances)) is not None:
        if policy.on_hard_limit is HardAction.ASK:
            return AskFirst(breach.dimension, breach.current_usage, breach.hard_limit)
        return breach
    if policy.on_soft_limit is not SoftAction.ASK:
        return None
    if (breach := _passed(budget, LimitKind.SOFT, amounts, allowances)) is not None:
        return AskFirst(breach.dimension, breach.current_usage, breach.hard_limit, is_soft=True)
    return None


def _passed(
    budget: Budget,
    kind: LimitKind,
    amounts: Mapping[str, int],
    allowances: Mapping[AskKey, int],
) -> HardBreach | None:
    """The first dimension by name that these amounts would carry over its limit. An allowance
    covers its part of them, whatever others have used."""
    policy = budget.row.policy
    if policy is None:
        return None
    limits = policy.hard_limits if kind is LimitKind.HARD else policy.soft_limits
    for dimension in sorted(amounts):
        limit, current = limits.get(dimension, 0), budget.committed(dimension)
        if not 0 < limit < current + amounts[dimension]:
            continue
        allowed = allowances.get((kind, dimension), 0)
        if not allowed or amounts[dimension] - allowed > max(0, limit - current):
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
        row = UsageRow(budget.row.budget_id, dimension, 0, 0, at.now) if old is None else old
        usage[dimension] = replace(
            row,
            used=max(0, row.used + used.get(dimension, 0)),
            held=max(0, row.held + held.get(dimension, 0)),
            updated_at=at.now,
        )
    return replace(budget, usage=usage)


def count_hard_breach(
    budget: Budget, breach: HardBreach, at: Moment
) -> tuple[Budget, tuple[BudgetEvent, ...]]:
    """Breach counters are lifetime totals; pending work is cancelled where the policy says so."""
    row, policy = budget.row, budget.row.policy
    last = row.last_breach_at
    events: tuple[BudgetEvent, ...] = ()
    if last is None or last // BREACH_EVENT_PERIOD_MS != at.now // BREACH_EVENT_PERIOD_MS:
        events = (
            budget_event(
                row.budget_id,
                BudgetEventType.HARD_BREACH,
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
) -> tuple[Budget, tuple[BudgetEvent, ...]]:
    """Counted each time; an event is written for each limit passed, not again above it."""
    row, policy = after.row, after.row.policy
    counted = replace(row, soft_breach_count=row.soft_breach_count + 1, updated_at=at.now)
    if policy is None or policy.on_soft_limit is SoftAction.IGNORE:
        return replace(after, row=counted), ()
    events = tuple(
        budget_event(
            row.budget_id,
            BudgetEventType.SOFT_BREACH,
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
    budget_id: str, event_type: BudgetEventType, now: int, **details: object
) -> BudgetEvent:
    """What happened to a budget, for subscribers."""
    return BudgetEvent(budget_id, event_type, details, "", now)


def no_budget(budget_id: str) -> Refused:
    """No such budget."""
    detail = f"budget {budget_id}: there is none of that name; create it, or mend the name"
    return Refused(NotFound, detail, {"entity": "budget", "budget_id": budget_id})


def refuse_unknown(budget: Budget) -> Refused | None:
    """Usage may be counted before a policy is made; what relies on a limit needs one."""
    return no_budget(budget.row.budget_id) if budget.row.policy is None else None


def refuse_scopes(
    policies: Mapping[str, BudgetPolicy], places: Mapping[ScopeType, str]
) -> Refused | None:
    """A budget that is for one lane, tenant, flow or execution is spent from there alone."""
    for name, policy in policies.items():
        if policy.scope_id != places.get(policy.scope_type, policy.scope_id):
            detail = f"budget_ids: {name} is for {policy.scope_type.value} {policy.scope_id}"
            return Refused(BudgetScopeMismatch, detail, {"field": "budget_ids"})
    return None
