"""Commands that set counters right: each counts the rows again under the lock of the counter."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import TypeVar

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.limit import recount
from flowfabric.kernel.limit.recount import Corrections
from flowfabric.limits import PAGE_MAX
from flowfabric.model.record import Record, replace
from flowfabric.stores.base import Corrupt
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import ADMISSIONS, ATTACHMENTS, BUDGETS, HOLDS, Key, Table

R = TypeVar("R", bound=Record)


async def _pages(unit: Unit, table: Table[R], prefix: Key = ()) -> AsyncIterator[list[R]]:
    """All rows of a table whose keys begin so, as they stand."""
    search = Search(by_key(table), (prefix,), limit=PAGE_MAX)
    while page := await unit.overlay.search(search):
        yield page
        if len(page) < PAGE_MAX:
            return
        search = replace(search, after=table.key_of(page[-1])[len(prefix) :])


@handles(recount.RecountBudgets)
async def recount_budgets(unit: Unit, command: recount.RecountBudgets) -> Corrections | Refused:
    """The reservations have no order by budget: all of them are read once for all budgets."""
    held: Counter[tuple[str, str]] = Counter()
    wanted = set(command.budget_ids)
    async for page in _pages(unit, HOLDS):
        held.update(recount.held_by(each for each in page if each.budget_id in wanted))
    found: Corrections = ()
    for budget_id in command.budget_ids:
        budget = unit.limits.budgets.get(budget_id)
        if isinstance(budget, Refused) or unit.view.rows.get(BUDGETS, (budget_id,)) is None:
            continue  # doctor names a row that cannot be read
        decision = recount.recount_budget(budget, held, unit.view.at)
        told = unit.view.apply(None, decision, command)
        found += () if isinstance(told, Refused) else told
    return found


@handles(recount.Reattach)
async def reattach(unit: Unit, command: recount.Reattach) -> Corrections | Refused:
    """Each pair by itself."""
    listed = await unit.tx.rows(ATTACHMENTS, sorted(command.pairs))
    unit.view.rows.take(ATTACHMENTS, listed)
    found: Corrections = ()
    for pair in command.pairs:
        execution = unit.view.executions.get(pair[1])
        if isinstance(execution, Corrupt):
            continue
        is_listed, at = pair in listed, unit.view.at
        decision = recount.reattach(execution, pair, at, is_listed=is_listed)
        told = unit.view.apply(None, decision, command)
        found += () if isinstance(told, Refused) else told
    return found


@handles(recount.RecountGate)
async def recount_gate(unit: Unit, command: recount.RecountGate) -> Corrections | Refused:
    """Slots without a running execution are given back first."""
    gates, key = unit.limits.gates, command.gate
    if gates.get(key) is None:
        return ()  # without a policy, or not readable
    freed: Corrections = ()
    for execution_id in command.suspects:
        held, execution = gates.admission(key, execution_id), unit.view.executions.get(execution_id)
        if isinstance(execution, Corrupt) or held is None:
            continue
        if recount.is_idle_slot(held, execution):
            freed += recount.slot_corrections(held)
            gates.release(key, [execution_id])
    active = counted = 0
    async for page in _pages(unit, ADMISSIONS, key):
        active += sum(each.is_active for each in page)
        counted += sum(each.counted_at is not None for each in page)
    gate = gates.get(key)
    if gate is None:
        return freed
    decision = recount.recount_gate(gate, active, counted, freed, unit.view.at)
    return unit.view.apply(None, decision, command)
