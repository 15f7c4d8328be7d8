"""Allowances: what one execution may reserve beyond a limit, once, because people said so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowfabric.kernel.decision import Moment
from flowfabric.kernel.limit.budget import AskKey, Budget, limit_that_asks
from flowfabric.model.ask import AllowanceRow, AskerRow, LimitKind
from flowfabric.model.budget import AMOUNT_MAX, HoldRow, UsageRow
from flowfabric.model.record import replace


def covered(
    budget: Budget, amounts: Mapping[str, int], allowances: Mapping[AskKey, int]
) -> dict[str, int]:
    """What of the allowances a reservation needs, as it keeps it."""
    found = {}
    for (kind, dimension), allowed in allowances.items():
        limit = limit_that_asks(budget.row.policy, kind, dimension)
        amount = amounts.get(dimension, 0)
        if 0 < limit < budget.committed(dimension) + amount:
            found[name_of(kind, dimension)] = min(allowed, amount)
    return found


def name_of(kind: LimitKind, dimension: str) -> str:
    """How a reservation names an allowance that it needs."""
    return f"{kind.value}:{dimension}"


def free_allowances(
    budget: Budget, rows: Iterable[AllowanceRow], holds: Iterable[HoldRow], but: str = ""
) -> dict[AskKey, int]:
    """What an execution may reserve beyond limits, without what its reservations need already.

    `but`: a reservation that is about to be replaced.
    """
    used: dict[str, int] = {}
    for hold in holds:
        if hold.hold_id != but and hold.budget_id == budget.row.budget_id:
            for name, amount in hold.allowed.items():
                used[name] = used.get(name, 0) + amount
    found = {}
    for row in rows:
        key = (row.limit_kind, row.dimension)
        left = row.amount - used.get(name_of(*key), 0)
        if row.generation == budget.row.generation and left > 0:
            found[key] = left
    return found


def used_up(
    rows: Iterable[AllowanceRow], hold: HoldRow | None, spent: Mapping[str, int]
) -> tuple[AllowanceRow, ...]:
    """The allowances that a settled reservation needed. What was given back unspent needed none."""
    if hold is None or not hold.allowed:
        return ()
    return tuple(
        row
        for row in rows
        if row.budget_id == hold.budget_id
        and spent.get(row.dimension, 0)
        and name_of(row.limit_kind, row.dimension) in hold.allowed
    )


def granted(
    budget: Budget, asker: AskerRow, known: AllowanceRow | None, at: Moment
) -> tuple[Budget, AllowanceRow]:
    """A spender may reserve what it asked for. The status counts it for this period."""
    generation, amount = budget.row.generation, asker.amount
    if known is not None and known.generation == generation:
        amount = min(AMOUNT_MAX, known.amount + amount)
    row = AllowanceRow(
        asker.execution_id,
        asker.budget_id,
        asker.dimension,
        asker.limit_kind,
        generation,
        amount,
    )
    usage = dict(budget.usage)
    name = asker.dimension
    line = usage.get(name) or UsageRow(budget.row.budget_id, name, 0, 0, at.now)
    field = "allowed" if asker.limit_kind is LimitKind.HARD else "soft_allowed"
    total = min(AMOUNT_MAX, getattr(line, field) + asker.amount)
    usage[name] = replace(line, updated_at=at.now, **{field: total})
    return replace(budget, usage=usage), row
