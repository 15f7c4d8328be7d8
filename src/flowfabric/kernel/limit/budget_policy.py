"""Budget policies: put in force, changed, reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowfabric.errors import InvalidInput, LimitConflict, RevisionMismatch
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import AnyEvent, Decision, Moment, Refused, refuse
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.limit.attachment import attach
from flowfabric.kernel.limit.budget import Budget, budget_event, no_budget, with_due
from flowfabric.limits import DIMENSIONS_MAX
from flowfabric.model.budget import (
    AttachmentRow,
    BudgetAlreadySatisfied,
    BudgetCreated,
    BudgetPolicy,
    BudgetReset,
    BudgetRow,
    BudgetUpdated,
    ScopeRow,
    ScopeType,
    UsageRow,
)
from flowfabric.model.event import BudgetEvent, BudgetEventType, OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record, replace, to_plain

_ON_CREATION = (ScopeType.LANE, ScopeType.NAMESPACE, ScopeType.FLOW)  # what is created there spends


class CreateBudget(Command[BudgetCreated | BudgetAlreadySatisfied], frozen=True, kw_only=True):
    """Put a policy in force."""

    budget_id: str
    policy: BudgetPolicy
    namespace: str | None = None

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
    expected_revision: int | None = None

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


def create_budget(
    execution: Execution | None, budget: Budget, command: CreateBudget, at: Moment
) -> Decision[BudgetCreated | BudgetAlreadySatisfied]:
    """Idempotent; usage reported before the policy existed counts.

    A budget for a lane, a namespace, a flow or one execution applies there from now on.
    """
    row, policy = budget.row, command.policy
    if policy.scope_type is ScopeType.EXECUTION and execution is None:
        return Decision(not_found(policy.scope_id))
    is_same_owner = row.policy is None or row.namespace == command.namespace
    if row.policy == policy and is_same_owner:
        name = row.budget_id
        return Decision(BudgetAlreadySatisfied(name))
    if row.policy is not None:
        what = "another policy" if is_same_owner else "another owner"
        detail = f"budget {row.budget_id} exists with {what}"
        return refuse(LimitConflict, detail, field="budget_id")
    interval = policy.reset_interval_ms
    made = replace(
        row,
        policy=policy,
        namespace=command.namespace,
        created_at=at.now,
        updated_at=at.now,
        next_reset_at=at.now + interval if interval else None,
    )
    details = {"after": to_plain(policy)}
    event = _audit(row.budget_id, OperatorEventType.BUDGET_CREATED, at, details)
    saves: tuple[Record, ...] = (replace(budget, row=with_due(made, at.now)),)
    if policy.scope_type in _ON_CREATION:
        saves = (*saves, ScopeRow(policy.scope_type, policy.scope_id, row.budget_id))
    after = None
    if execution is not None and not execution.is_terminal:
        after = attach(execution, row.budget_id)
        saves = (*saves, AttachmentRow(row.budget_id, execution.execution_id))
    return Decision(BudgetCreated(row.budget_id), after, None, (event,), saves)


def update_budget(budget: Budget, command: UpdateBudget, at: Moment) -> Decision[BudgetUpdated]:
    """Limits are merged by dimension; 0 lifts one. What waits for room goes on at once."""
    row = budget.row
    if row.policy is None:
        return Decision(no_budget(row.budget_id))
    if refusal := other_revision(row.revision, command.expected_revision):
        return Decision(refusal)
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
        return Decision(refusal)
    next_reset = row.next_reset_at
    if policy.reset_interval_ms != old.reset_interval_ms:
        start = row.last_reset_at if row.last_reset_at is not None else row.created_at
        next_reset = next_after(start, policy.reset_interval_ms, at.now)
    changed = replace(renewed(row, policy, at), next_reset_at=next_reset)
    details = {"before": to_plain(old), "after": to_plain(policy)}
    event = _audit(row.budget_id, OperatorEventType.BUDGET_UPDATED, at, details)
    events: tuple[AnyEvent, ...] = (event, *moved_limits(row.budget_id, old, policy, at))
    ready = replace(budget, row=with_due(changed, at.now))
    return Decision(BudgetUpdated(row.budget_id, changed.revision), events=events, saves=(ready,))


def renewed(row: BudgetRow, policy: BudgetPolicy, at: Moment) -> BudgetRow:
    """The row with another policy: whoever has read the one before is told so."""
    return replace(row, policy=policy, updated_at=at.now, revision=row.revision + 1)


def other_revision(current: int, expected: int | None) -> Refused | None:
    """Refuse a change of something that was changed since it was read."""
    if expected is None or expected == current:
        return None
    detail = f"expected_revision: it is {current} by now, not {expected}"
    return Refused(RevisionMismatch, detail, {"revision": current})


def _audit(
    budget_id: str, event_type: OperatorEventType, at: Moment, details: Mapping[str, Any]
) -> OperatorEvent:
    return OperatorEvent(budget_id, event_type, details, "", {}, at.now)


def moved_limits(
    budget_id: str, old: BudgetPolicy, new: BudgetPolicy, at: Moment
) -> tuple[BudgetEvent, ...]:
    """Hard limits that moved; 0 is none."""
    events = []
    for dimension, after in new.hard_limits.items():
        before = old.hard_limits.get(dimension, 0)
        if before != after:
            is_raised = not after or (before and after > before)
            kind = BudgetEventType.RAISED if is_raised else BudgetEventType.LOWERED
            details = {"dimension": dimension, "before": before, "after": after}
            events.append(budget_event(budget_id, kind, at.now, **details))
    return tuple(events)


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


def reset_budget(budget: Budget, command: ResetBudget, at: Moment) -> Decision[BudgetReset]:
    """Usage to zero in a new generation; reservations and lifetime breach counts stay."""
    row = budget.row
    if row.policy is None:
        return Decision(no_budget(row.budget_id))
    due = row.next_reset_at
    if command.only_if_due and (due is None or due > at.now):
        return Decision(BudgetReset(due or 0))
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
    usage = {name: _emptied(row.policy, each, at) for name, each in budget.usage.items()}
    spent = {name: each.used for name, each in budget.usage.items() if each.used}
    events: tuple[AnyEvent, ...] = (
        budget_event(row.budget_id, BudgetEventType.RESET, at.now, spent=spent),
    )
    if not command.only_if_due:
        details = {"spent": spent}
        audit = _audit(row.budget_id, OperatorEventType.BUDGET_RESET, at, details)
        events = (audit, *events)
    ready = replace(budget, row=with_due(fresh, at.now), usage=usage)
    return Decision(BudgetReset(next_reset or 0), events=events, saves=(ready,))


def _emptied(policy: BudgetPolicy, usage: UsageRow, at: Moment) -> UsageRow:
    """A dimension at the start of a period. Of its allowances remains what covers reservations."""
    if not (usage.used or usage.allowed or usage.soft_allowed):
        return usage
    hard = max(0, usage.held - policy.hard_limits.get(usage.dimension, 0))
    soft = max(0, usage.held - policy.soft_limits.get(usage.dimension, 0))
    return replace(
        usage,
        used=0,
        used_before=usage.total,
        updated_at=at.now,
        allowed=min(usage.allowed, hard),
        soft_allowed=min(usage.soft_allowed, soft),
    )
