"""Doctor's check of schedules: overdue ones, those that no process understands, and declarations
that take turns."""

from __future__ import annotations

from flowfabric.api.admin import Problem
from flowfabric.engine.plans import Plans
from flowfabric.engine.unit.due import named
from flowfabric.limits import FLAPPING_MS, PAGE_MAX
from flowfabric.model.record import replace
from flowfabric.model.schedule import ScheduleRow
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key, due_search
from flowfabric.stores.tables import SCHEDULES


async def overdue_schedules(
    reader: Reader, plans: Plans, code: str, overdue_ms: int
) -> list[Problem]:
    """Schedules that nothing has started: no loop runs, or none that runs understands them.
    `code`: of those that this process could start."""
    await reader.catalog()
    search = due_search(SCHEDULES, reader.now - overdue_ms, PAGE_MAX)
    keys = await reader.search_keys(search)
    rows = await reader.search(replace(search, skips_corrupt=True)) if keys else []
    readable = {SCHEDULES.key_of(row): plans.of(row) for row in rows}
    late = f"due more than {overdue_ms // 1000} s ago and not moved"
    problems = []
    for key in keys:
        plan, subject = readable.get(key), named((SCHEDULES.name, key))
        if isinstance(plan, str):
            problems.append(Problem("unreadable", subject, f"{late}; not understood here: {plan}"))
        else:
            problems.append(Problem(code, subject, late))
    return problems


async def flapping_schedules(reader: Reader) -> list[Problem]:
    """Declared schedules that two versions of the code change in turns, lately and more than once:
    a single return is what taking a deploy back looks like."""
    await reader.catalog()
    search: Search[ScheduleRow] = Search(by_key(SCHEDULES), limit=PAGE_MAX, skips_corrupt=True)
    found = []
    while True:
        rows = await reader.search(search)
        since = reader.now - FLAPPING_MS
        found += [row for row in rows if row.flaps > 1 and row.changed_at > since]
        if len(rows) < PAGE_MAX:
            break
        search = replace(search, after=SCHEDULES.key_of(rows[-1]))
    return [_flapping(row) for row in found]


def _flapping(row: ScheduleRow) -> Problem:
    detail = f"two versions of {row.origin} take turns to declare it, {row.flaps} times by now"
    return Problem("flapping", named((SCHEDULES.name, SCHEDULES.key_of(row))), detail)
