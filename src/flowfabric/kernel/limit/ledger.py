"""The ledger: what each execution spent of a budget, and the totals of its flow and of its kind.

Lines and totals change in the transaction that changes the usage of their budget, under its lock.
So the total of a flow is the sum of the lines that say they are counted in it, and the total of a
kind that of all lines of its executions, those that are purged by now included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.limit.budget import Budget, moved
from flowfabric.model.budget import (
    AMOUNT_MAX,
    BudgetRow,
    DedupRow,
    LedgerRow,
    SpendScope,
    TotalRow,
)
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record, replace

Place = tuple[SpendScope, str, str]  # of a total: its scope, the namespace, the flow or the kind

_FLOW: Final = SpendScope.FLOW
_KIND: Final = SpendScope.KIND


class Account(Record, frozen=True):
    """What an execution has spent of a budget, and the totals in which it counts."""

    execution_id: str
    lines: Sequence[LedgerRow] = ()
    places: Sequence[Place] = ()
    totals: Sequence[TotalRow] = ()


def counted_in(execution: Execution | None) -> tuple[Place, ...]:
    """The totals in which the spending of an execution counts; none once it is purged.

    A member that may be purged is the last trace of a flow whose total may be gone already.
    """
    if execution is None:
        return ()
    route, flow_id = execution.route, execution.flow_id
    kind = (_KIND, route.namespace, route.execution_kind)
    if flow_id is None or execution.purge_at is not None:
        return (kind,)
    return (kind, (_FLOW, route.namespace, flow_id))


def entered(
    budget: BudgetRow, account: Account, amounts: Mapping[str, int], *, is_kept: bool = False
) -> list[Record]:
    """The lines and totals that a spend changes, as they are after it.

    `is_kept`: it cannot be given back. An execution that joined a flow since brings along what it
    had spent.
    """
    known = {line.dimension: line for line in account.lines}
    totals = {(row.scope, row.dimension): row for row in account.totals}
    flow_id = next((name for scope, _, name in account.places if scope is _FLOW), None)
    changed: list[Record] = []
    for dimension, amount in amounts.items():
        old = _current(budget, known.get(dimension), account.execution_id, dimension)
        spent, kept = (old.spent, old.kept + amount) if is_kept else (old.spent + amount, old.kept)
        line = LedgerRow(
            budget.budget_id,
            account.execution_id,
            dimension,
            budget.generation,
            spent,
            min(kept, AMOUNT_MAX),
            flow_id or old.flow_id,
        )
        changed.append(line)
        for place in account.places:
            joined = place[0] is _FLOW and old.flow_id is None
            more = amount + old.total if joined else amount
            if more:
                row = totals.get((place[0], dimension))
                changed.append(_added(budget.budget_id, place, dimension, row, more))
    return changed


def release_budget(
    budget: Budget, account: Account, spends: Sequence[DedupRow], at: Moment
) -> Decision[None]:
    """Give back what this generation's lines say, never below zero; what is kept stays.

    `spends`: what is remembered of them. It may be spent again under the same keys.
    """
    ledger, row = account.lines, budget.row
    spent = {line.dimension: -line.spent for line in ledger if line.generation == row.generation}
    lines = [_current(row, line, line.execution_id, line.dimension) for line in ledger]
    kept = [replace(line, spent=0) for line in lines if line.kept]
    gone = (*(line for line in lines if not line.kept), *spends)
    if not spent:
        return Decision(None, saves=tuple(kept), drops=gone)
    flows = {line.dimension: line.flow_id for line in ledger}
    totals = {(each.scope, each.dimension): each for each in account.totals}
    less = [
        _added(row.budget_id, place, dimension, totals.get((place[0], dimension)), amount)
        for place in account.places
        for dimension, amount in spent.items()
        if amount and (place[0] is _KIND or place[2] == flows[dimension])
    ]
    after = moved(budget, at, used=spent)
    return Decision(None, saves=(after, *kept, *less), drops=gone)


def _current(
    budget: BudgetRow, line: LedgerRow | None, execution_id: str, dimension: str
) -> LedgerRow:
    """A line of the budget's generation: what was spent in an earlier one is kept."""
    generation = budget.generation
    if line is None:
        return LedgerRow(budget.budget_id, execution_id, dimension, generation, 0)
    if line.generation == generation:
        return line
    return replace(line, generation=generation, spent=0, kept=line.total)


def _added(
    budget_id: str, place: Place, dimension: str, row: TotalRow | None, amount: int
) -> TotalRow:
    before = 0 if row is None else row.spent
    return TotalRow(*place, budget_id, dimension, max(0, min(AMOUNT_MAX, before + amount)))
