"""The bounds of an execution, read as committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flowfabric.kernel.explain.limits import BoundsLook
from flowfabric.kernel.limit.budget import Budget
from flowfabric.kernel.limit.quota import Gate
from flowfabric.model.execution import Execution
from flowfabric.model.quota import GateRow, QuotaPolicy
from flowfabric.model.record import replace
from flowfabric.stores.base import Reader
from flowfabric.stores.tables import ADMISSIONS, BUDGETS, GATES, QUOTAS, USAGE

COUNTED_MAX = 10_000  # starts counted for display; above this the last known number is shown


async def look_at_bounds(execution: Execution, reader: Reader) -> BoundsLook:
    """The budgets and the quota gate of one execution."""
    bounds = execution.bounds
    keys = [(name,) for name in bounds.budget_ids]
    rows = await reader.peek_rows(BUDGETS, keys) if keys else {}
    lines = await reader.peek_rows(USAGE, keys) if keys else {}
    budgets = tuple(
        Budget(row, {each.dimension: each for each in lines.values() if each.budget_id == name})
        for (name,), row in sorted(rows.items())
    )
    key = bounds.gate
    if key is None:
        return BoundsLook(budgets, None)
    policy = (await reader.peek_rows(QUOTAS, [key[:1]])).get(key[:1])
    if policy is None:
        return BoundsLook(budgets, None)
    row = (await reader.peek_rows(GATES, [key])).get(key) or GateRow(*key)
    (present,) = await present_windows(policy, [row], reader)
    return BoundsLook(budgets, Gate(policy, present))


async def present_windows(
    policy: QuotaPolicy, gates: Sequence[GateRow], reader: Reader
) -> list[GateRow]:
    """Gates with current counts: starts leave the window with time, rows only when next used."""
    total = sum(gate.in_window for gate in gates)
    if not 0 < total <= COUNTED_MAX:
        return list(gates)
    await reader.catalog()  # reads the database's clock as well
    since = reader.now - policy.window_ms
    keys = [GATES.key_of(gate) for gate in gates if gate.in_window]
    starts = (await reader.peek_rows(ADMISSIONS, keys)).values()
    counts = Counter(
        (each.quota_policy_id, each.dimension)
        for each in starts
        if each.counted_at is not None and each.counted_at > since
    )
    return [replace(gate, in_window=counts[GATES.key_of(gate)]) for gate in gates]
