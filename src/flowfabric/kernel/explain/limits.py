"""How full the budgets and the quota of an execution are, in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.kernel.limit.admission import budget_key, gate_key
from flowfabric.kernel.limit.budget import Budget, asks_people, closed
from flowfabric.kernel.limit.quota import Gate
from flowfabric.model.ask import AskRow, LimitKind
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record
from flowfabric.model.results import LimitInfo


class BoundsLook(Record, frozen=True):
    """The current budgets and quota gate of one execution."""

    budgets: tuple[Budget, ...] = ()
    gate: Gate | None = None


def limits_of(execution: Execution, look: BoundsLook) -> tuple[LimitInfo, ...]:
    """One line per limit; the one it waits for is marked."""
    found = [_budget(execution, budget) for budget in look.budgets]
    if look.gate is not None:
        found.append(_quota(execution, look.gate))
    return tuple(found)


def _budget(execution: Execution, budget: Budget) -> LimitInfo:
    row = budget.row
    waits = execution.blocked_on == budget_key(row.budget_id)
    full = closed(budget)
    limits = {} if row.policy is None else row.policy.hard_limits
    usage = ", ".join(
        f"{name} {budget.committed(name)}" + (f"/{limits[name]}" if limits.get(name) else "")
        for name in sorted({*budget.usage, *limits})
    )
    clears = row.next_reset_at if full is not None else None
    return LimitInfo("budget", row.budget_id, waits, usage or "nothing used", clears)


def _waits_at(gate: Gate) -> str:
    return gate_key(gate.row.quota_policy_id, gate.row.dimension)


def _quota(execution: Execution, gate: Gate) -> LimitInfo:
    policy, row = gate.policy, gate.row
    waits = execution.blocked_on == _waits_at(gate)
    parts = []
    if policy.active_concurrency_cap:
        parts.append(f"{row.active}/{policy.active_concurrency_cap} running")
    if policy.max_requests_per_window:
        window = policy.requests_per_window_seconds
        parts.append(f"{row.in_window}/{policy.max_requests_per_window} starts in {window} s")
    usage = ", ".join(parts) or "no limit"
    return LimitInfo("quota", row.quota_policy_id, waits, usage, execution.blocked_until)


def asks_in_words(asks: Sequence[AskRow]) -> str:
    """What people are asked on behalf of an execution."""
    return "; ".join(
        f"asks people: budget {each.budget_id}, {each.dimension} {each.used_then}/{each.limit_then}"
        f" of the {each.limit_kind.value} limit, {each.wanted} more wanted"
        for each in asks
    )


def ask_hints(asks: Sequence[AskRow]) -> tuple[str, ...]:
    """How people answer."""
    found = []
    for each in asks:
        about = f"{each.budget_id} {each.dimension} --by NAME"
        if each.limit_kind is LimitKind.SOFT:
            about += " --soft"
        found += [
            f"ff budget approve {about} --raise-by {each.wanted}, or --once",
            f"ff budget reject {about}",
        ]
    return tuple(found)


def hint_for(execution: Execution, look: BoundsLook) -> tuple[str, ...]:
    """Advice for an operator about the limit it waits for."""
    for budget in look.budgets:
        if execution.blocked_on == budget_key(budget.row.budget_id):
            full = closed(budget)
            if full is None:
                return ("the budget has room again: it is about to go on",)
            name = budget.row.budget_id
            asks = (f"ff budget asks {name}",) if asks_people(budget.row.policy) else ()
            return (
                *asks,
                f"ff budget raise {name} {full.dimension}=…",
                f"ff budget reset {name}",
            )
    gate = look.gate
    if gate is not None and execution.blocked_on == _waits_at(gate):
        return (f"ff quota set {gate.policy.quota_policy_id} …",)
    return ()
