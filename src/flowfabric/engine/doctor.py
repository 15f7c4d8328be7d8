"""The audit behind `ff doctor`: schema, indexes against records, and no stuck rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from flowfabric.engine.core import EngineCore
from flowfabric.engine.flow_audit import audit_flows, strays
from flowfabric.engine.limit_audit import audit_limits
from flowfabric.engine.loop_audit import audit_loops, dead_loops, overdue_rows
from flowfabric.engine.loop_status import LoopStatus
from flowfabric.engine.spoiled import readable
from flowfabric.limits import PAGE_MAX
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record, replace
from flowfabric.stores.base import Corrupt, ListFilter, Reader
from flowfabric.stores.indexes import due_at, newest_first
from flowfabric.stores.tables import SUSPENSIONS

OVERDUE = "overdue"
OVERDUE_MS = 60_000  # the loops of any engine would have dealt with it by then


class Problem(Record, frozen=True):
    """One thing that should not be."""

    code: str
    subject: str
    detail: str


class DoctorReport(Record, frozen=True):
    """What was looked at and what was found."""

    problems: tuple[Problem, ...]
    facts: dict[str, Any]

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


async def examine(engine: EngineCore, loops: LoopStatus) -> DoctorReport:
    """Look at everything; slow on a large store, harmless while work goes on."""
    problems = [
        Problem("schema", str(status.version), f"{status.name}: {_schema_word(status)}")
        for status in await engine.store.migration_status()
        if status.applied_at is None or not status.checksum_ok
    ]
    differences = await engine.read(lambda reader: reader.audit())
    problems += [Problem("index", index, what) for index, what in differences]
    problems += await _lasting(engine, "limits", audit_limits)
    problems += await _lasting(engine, "flows", audit_flows)
    late = await engine.read(lambda reader: overdue_rows(reader, OVERDUE_MS))
    problems += [Problem(OVERDUE, *each) for each in late]
    looked, found = await engine.read(_rows)
    overdue = len(late) + sum(each.code == OVERDUE for each in found)
    about_loops = (*audit_loops(loops), *dead_loops(overdue, OVERDUE_MS))
    problems += [Problem("loops", *each) for each in about_loops]
    facts = {"store": engine.store.family, **await engine.store.facts(), "looked_at": looked}
    return DoctorReport((*problems, *found), facts)


def _schema_word(status: Any) -> str:
    return "not applied" if status.applied_at is None else "the applied file differs"


async def _lasting(
    engine: EngineCore, code: str, audit: Callable[[Reader], Awaitable[list[tuple[str, str]]]]
) -> list[Problem]:
    """Counters and rows are not read at one instant: only what stays wrong counts."""
    found = await engine.read(audit)
    if found:
        again = set(await engine.read(audit))
        found = [each for each in found if each in again]
    return [Problem(code, subject, what) for subject, what in found]


async def _rows(reader: Reader) -> tuple[int, list[Problem]]:
    await reader.catalog()
    looked, problems = 0, []
    wanted = ListFilter()
    while rows := await reader.list_executions(wanted, PAGE_MAX):
        looked += len(rows)
        for row in rows:
            if isinstance(row, Corrupt):
                problems.append(Problem("corrupt", row.execution_id, row.detail))
            else:
                problems.extend(_stuck(row, reader.now))
        known = [row for row in rows if isinstance(row, Execution)]
        lost = await strays(reader, known)
        problems += [Problem("flows", subject, what) for subject, what in lost]
        waits = [(row.execution_id, row.suspension_id) for row in known if row.suspension_id]
        _, spoiled = await readable(reader.peek_rows, SUSPENSIONS, waits)
        problems += [Problem("corrupt", key[0], detail) for key, detail in spoiled.items()]
        if len(rows) < PAGE_MAX or not known:
            break
        wanted = replace(wanted, before=newest_first(known[-1]))
    return looked, problems


def _stuck(execution: Execution, now: int) -> list[Problem]:
    """Every live row has a due wake-up, a worker to wait for, or a named external cause (I9)."""
    problems = []
    due = due_at(execution) or execution.purge_at
    if due is not None and due < now - OVERDUE_MS:
        late = f"due {now - due} ms ago and not moved"
        problems.append(Problem(OVERDUE, execution.execution_id, late))
    idle = not execution.is_terminal and not execution.is_waiting and due is None
    blocked = execution.state.blocking_reason.value
    if idle and blocked in ("none", "waiting_for_worker"):
        problems.append(Problem("stuck", execution.execution_id, "nothing will wake it"))
    return problems
