"""The audit of limits behind `ff doctor`: counters against the rows they count."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flowfabric.limits import PAGE_MAX
from flowfabric.model.quota import AdmissionRow
from flowfabric.model.record import replace
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import ADMISSIONS, GATES, HOLDS, USAGE, AnyTable, Key


async def audit_limits(reader: Reader) -> list[tuple[str, str]]:
    """Wrong counters, as (row, defect). Rows that cannot be decoded are reported elsewhere."""
    return [*await _gates(reader), *await _holds(reader)]


async def _gates(reader: Reader) -> list[tuple[str, str]]:
    active: Counter[Key] = Counter()
    counted: Counter[Key] = Counter()
    admissions: list[AdmissionRow] = await _every(reader, ADMISSIONS)
    for admission in admissions:
        key = (admission.quota_policy_id, admission.dimension)
        active[key] += admission.is_active
        counted[key] += admission.counted_at is not None
    problems = []
    for gate in await _every(reader, GATES):
        key = GATES.key_of(gate)
        name = f"quota {gate.quota_policy_id} {gate.dimension}"
        if gate.active != active[key]:
            problems.append((name, f"counts {gate.active} active, {active[key]} rows are"))
        if gate.in_window != counted[key]:
            problems.append((name, f"counts {gate.in_window} in its window, rows {counted[key]}"))
    return problems


async def _holds(reader: Reader) -> list[tuple[str, str]]:
    held: Counter[Key] = Counter()
    for hold in await _every(reader, HOLDS):
        for dimension, amount in hold.amounts.items():
            held[hold.budget_id, dimension] += amount
    return [
        (f"budget {usage.budget_id}", f"{usage.dimension}: holds {usage.held}, rows {held[key]}")
        for usage in await _every(reader, USAGE)
        for key in (USAGE.key_of(usage),)
        if usage.held != held[key]
    ]


async def _every(reader: Reader, table: AnyTable) -> list[Any]:
    found: list[Any] = []
    search: Search[Any] = Search(by_key(table), limit=PAGE_MAX, skips_corrupt=True)
    while page := await reader.search(search):
        found += page
        if len(page) < PAGE_MAX:
            break
        search = replace(search, after=table.key_of(page[-1]))
    return found
