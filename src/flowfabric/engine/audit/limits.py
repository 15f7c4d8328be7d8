"""The audit of limits behind `ff doctor`: counters against the rows they count.

The repairs of `engine/operations/repairs.py` ask the same questions page by page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from flowfabric.kernel.limit.recount import (
    attachment_corrections,
    gate_corrections,
    held_by,
    held_corrections,
    is_idle_slot,
    slot_corrections,
    used_too_low,
)
from flowfabric.kernel.repair import told
from flowfabric.limits import PAGE_MAX
from flowfabric.model.budget import AttachmentRow, BudgetRow, HoldRow
from flowfabric.model.execution import Execution
from flowfabric.model.quota import AdmissionRow, GateRow
from flowfabric.model.record import Record, replace
from flowfabric.model.repair import Correction, Unproven
from flowfabric.stores.base import Corrupt, Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import (
    ADMISSIONS,
    ATTACHMENTS,
    BUDGETS,
    GATES,
    HOLDS,
    LEDGER,
    USAGE,
    AnyTable,
    Key,
)

Defect = tuple[str, str]  # the row, and what is wrong with it
Pair = tuple[str, str]  # a budget and an execution


async def audit_limits(reader: Reader) -> list[Defect]:
    """Wrong counters. Rows that cannot be decoded are reported elsewhere."""
    found: list[Defect] = []
    async for gates in pages(reader, GATES):
        for gate in gates:
            look = await look_at_gate(reader, gate)
            found += _defects(look.corrections)
    held = await held_now(reader)
    async for budgets in pages(reader, BUDGETS):
        for row in budgets:
            budget = await look_at_budget(reader, row, held)
            found += _defects(budget.corrections)
            found += [(each.subject, each.detail) for each in budget.unproven]
    async for listed in pages(reader, ATTACHMENTS):
        found += _defects(wrong for _, wrong in await wrongly_attached(reader, listed))
    return found


def _defects(corrections: Iterable[Correction]) -> list[Defect]:
    return [(each.subject, told(each)) for each in corrections]


async def pages(reader: Reader, table: AnyTable, prefix: Key = ()) -> AsyncIterator[list[Any]]:
    """All rows of a table whose keys begin so; those that cannot be decoded are left out."""
    search: Search[Any] = Search(by_key(table), (prefix,), limit=PAGE_MAX, skips_corrupt=True)
    while page := await reader.search(search):
        yield page
        if len(page) < PAGE_MAX:
            return
        search = replace(search, after=table.key_of(page[-1])[len(prefix) :])


# --- quotas --------------------------------------------------------------------------------------


class GateLook(Record, frozen=True):
    """What is wrong with a gate, and which executions have a slot without running."""

    corrections: tuple[Correction, ...]
    suspects: tuple[str, ...]


async def look_at_gate(reader: Reader, gate: GateRow) -> GateLook:
    """Count the admissions of one key."""
    active = counted = 0
    idle: list[AdmissionRow] = []
    page: list[AdmissionRow]
    async for page in pages(reader, ADMISSIONS, GATES.key_of(gate)):
        active += sum(each.is_active for each in page)
        counted += sum(each.counted_at is not None for each in page)
        executions = await _executions(reader, [each.execution_id for each in page])
        idle += [
            each
            for each in page
            if not isinstance(execution := executions.get(each.execution_id), Corrupt)
            and is_idle_slot(each, execution)
        ]
    slots = tuple(each for row in idle for each in slot_corrections(row))
    suspects = tuple(sorted(each.execution_id for each in idle))
    return GateLook((*slots, *gate_corrections(gate, active, counted)), suspects)


async def _executions(reader: Reader, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
    return await reader.get(sorted(set(ids))) if ids else {}


# --- budgets -------------------------------------------------------------------------------------


class BudgetLook(Record, frozen=True):
    """What is wrong with a budget."""

    corrections: tuple[Correction, ...]
    unproven: tuple[Unproven, ...]


async def held_now(reader: Reader) -> Counter[Pair]:
    """What all reservations hold, by budget and dimension."""
    held: Counter[Pair] = Counter()
    page: list[HoldRow]
    async for page in pages(reader, HOLDS):
        held.update(held_by(page))
    return held


async def look_at_budget(reader: Reader, row: BudgetRow, held: Counter[Pair]) -> BudgetLook:
    """Compare what a budget holds and has used with its rows."""
    key = (row.budget_id,)
    usage = [each async for page in pages(reader, USAGE, key) for each in page]
    ledger = [each async for page in pages(reader, LEDGER, key) for each in page]
    wrong = held_corrections(row.budget_id, usage, held)
    return BudgetLook(wrong, used_too_low(row, usage, ledger))


async def wrongly_attached(
    reader: Reader, listed: Sequence[AttachmentRow]
) -> list[tuple[Pair, Correction]]:
    """Rows in lists of budgets, for executions that are not to be there."""
    found = await _executions(reader, [each.execution_id for each in listed])
    return [
        (pair, wrong)
        for pair in ((each.budget_id, each.execution_id) for each in listed)
        if not isinstance(execution := found.get(pair[1]), Corrupt)
        for wrong in attachment_corrections(execution, pair, is_listed=True)
    ]


async def unattached(
    reader: Reader, executions: Iterable[Execution]
) -> list[tuple[Pair, Correction]]:
    """Executions that are missing in the lists of their budgets."""
    wanted = {
        (budget_id, each.execution_id): each
        for each in executions
        if not each.is_terminal
        for budget_id in each.bounds.budget_ids
    }
    known = await reader.peek_rows(ATTACHMENTS, sorted(wanted)) if wanted else {}
    return [
        (pair, wrong)
        for pair, execution in wanted.items()
        if pair not in known
        for wrong in attachment_corrections(execution, pair, is_listed=False)
    ]
