"""Doctor's check of background work: its status in this process, and overdue records anywhere.

Loops of other processes cannot be asked. The work they leave undone can be seen.
"""

from __future__ import annotations

from flowfabric.engine.loop_status import LoopStatus
from flowfabric.engine.unit.due import named
from flowfabric.errors import InvalidSchedule
from flowfabric.limits import PAGE_MAX
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import due_search
from flowfabric.stores.tables import SCHEDULES, TIMED_TABLES


def audit_loops(loops: LoopStatus) -> list[tuple[str, str]]:
    """Work of this process that has ended or fails, and records that it could not move."""
    problems = []
    for duty in loops.duties:
        if not duty.is_running:
            problems.append((duty.name, "its task has ended: start the engine again"))
        elif duty.failures_in_a_row:
            times = f"{duty.failures_in_a_row} times in a row"
            problems.append(
                (duty.name, f"failed {times}, last with {duty.last_error}: see the log")
            )
    for each in loops.set_aside:
        if each.thing[0] == SCHEDULES.name and each.error == InvalidSchedule.__name__:
            continue  # others may understand it: it is named when it is overdue
        detail = f"set aside after {each.tries} tries, {each.error}: {each.detail}"
        problems.append((named(each.thing), detail))
    return problems


async def overdue_rows(reader: Reader, overdue_ms: int) -> list[tuple[str, str]]:
    """Rows of small tables that an engine with loops would have moved long ago."""
    await reader.catalog()
    problems = []
    for table in TIMED_TABLES:
        if table is SCHEDULES:  # they have a check of their own
            continue
        for key in await reader.search_keys(due_search(table, reader.now - overdue_ms, PAGE_MAX)):
            late = f"due more than {overdue_ms // 1000} s ago and not moved"
            problems.append((named((table.name, key)), late))
    return problems


def dead_loops(overdue: int, overdue_ms: int) -> list[tuple[str, str]]:
    """The conclusion from the number of overdue records about the loops of all processes."""
    if not overdue:
        return []
    records = "1 record is" if overdue == 1 else f"{overdue} records are"
    late = f"{records} overdue by more than {overdue_ms // 1000} s"
    return [("all processes", f"{late}: is any engine or worker with loops running?")]
