"""The audit behind `ff doctor`: schema, indexes, values, counters, and no stuck rows.

Each check is independent: one that fails is a finding like any other, and the others still run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from flowfabric.api.admin import DoctorReport, Problem
from flowfabric.api.groups import ListConsumerGroups
from flowfabric.engine.audit import lines
from flowfabric.engine.audit.flows import audit_flows, strays
from flowfabric.engine.audit.limits import audit_limits, unattached
from flowfabric.engine.audit.loops import audit_loops, dead_loops, overdue_rows
from flowfabric.engine.audit.schedules import flapping_schedules, overdue_schedules
from flowfabric.engine.loop_status import LoopStatus
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.groups import list_consumer_groups
from flowfabric.errors import FlowFabricError
from flowfabric.kernel.repair import told
from flowfabric.limits import PAGE_MAX
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.stores.base import Corrupt, ListFilter, Reader
from flowfabric.stores.indexes import newest_first

logger = logging.getLogger("flowfabric.doctor")

OVERDUE = "overdue"
OVERDUE_MS = 60_000  # by then the loops of any engine would have moved it


async def examine(engine: Machine, loops: LoopStatus, *, quick: bool) -> DoctorReport:
    """Check everything; slow on a large store, harmless while work goes on.

    `quick`: leave out checks that read every row.
    """
    return await _Examination(engine, loops, quick=quick).report()


class _Examination:
    """One round of all checks."""

    def __init__(self, engine: Machine, loops: LoopStatus, *, quick: bool) -> None:
        self._engine = engine
        self._quick = quick
        self._loops = loops
        self._store = engine.store
        self._facts: dict[str, object] = {"store": engine.store.family}
        self._problems: list[Problem] = []
        self._notices: list[Problem] = []

    async def report(self) -> DoctorReport:
        """Every check in order; findings are reported in that order."""
        every_row = (self._limits, self._flows, self._lines, self._executions, self._values)
        checks: tuple[Callable[[], Awaitable[Iterable[Problem]]], ...] = (
            self._migrations,
            self._schema,
            self._indexes,
            self._lanes,
            *(() if self._quick else every_row),
            self._overdue,
            self._background,
            self._about_store,
            self._upkeep,
            self._groups,
            *(() if self._quick else (self._schedules,)),
        )
        for check in checks:
            try:
                self._problems += await check()
            except (FlowFabricError, Exception) as error:
                logger.warning("doctor: a check failed", exc_info=error)
                name = check.__name__.strip("_")
                what = f"{type(error).__name__}: {error}"
                self._problems.append(Problem("check_failed", name, what))
        return DoctorReport(tuple(self._problems), self._facts, tuple(self._notices))

    async def _migrations(self) -> list[Problem]:
        return [
            Problem("schema", str(status.version), f"{status.name}: {_schema_word(status)}")
            for status in await self._store.migration_status()
            if status.applied_at is None or not status.checksum_ok
        ]

    async def _schema(self) -> list[Problem]:
        if self._problems:  # an unapplied migration is reported once
            return []
        return _problems("schema", await self._store.schema_differences())

    async def _indexes(self) -> list[Problem]:
        return _problems("index", await self._engine.read(self._audit))

    async def _audit(self, reader: Reader) -> list[tuple[str, str]]:
        return await reader.audit(quick=self._quick)

    async def _lanes(self) -> list[Problem]:
        catalog = await self._engine.read(lambda reader: reader.catalog())
        lanes = sorted(catalog.unreadable.items())
        return _problems("lane", [(f"ff_lane_registry {lane}", what) for lane, what in lanes])

    async def _limits(self) -> list[Problem]:
        return await self._lasting("limits", audit_limits)

    async def _flows(self) -> list[Problem]:
        return await self._lasting("flows", audit_flows)

    async def _lines(self) -> list[Problem]:
        keys = await self._lasting("lines", lines.audit_keys)
        return [*keys, *await self._lasting("lines", lines.audit_lines)]

    async def _executions(self) -> list[Problem]:
        looked, found = await self._engine.read(_rows)
        self._facts["looked_at"] = looked
        return found

    async def _values(self) -> list[Problem]:
        """For a row that was already reported, only the column."""
        told = {
            each.subject if each.code == "lane" else f"ff_exec_core {each.subject[-36:]}": at
            for at, each in enumerate(self._problems)
            if each.code in ("corrupt", "lane")
        }
        new = []
        for row, what in await self._engine.read(lambda reader: reader.odd_values()):
            if (at := told.get(row)) is None:
                new.append((row, what))
            else:
                table = row.split()[0]
                self._problems[at] = replace(self._problems[at], detail=f"{table} {what}")
        return _problems("corrupt", new)

    async def _overdue(self) -> list[Problem]:
        """Rows that no loop has moved, and how far behind the background work is."""

        async def look(reader: Reader) -> int:
            due = await reader.next_due()
            return 0 if due is None else max(0, reader.now - due)

        self._facts["overdue_ms"] = await self._engine.read(look)
        rows = await self._engine.read(lambda reader: overdue_rows(reader, OVERDUE_MS))
        schedules = await self._engine.read(
            lambda reader: overdue_schedules(reader, self._engine.plans, OVERDUE, OVERDUE_MS)
        )
        return [*_problems(OVERDUE, rows), *schedules]

    async def _background(self) -> list[Problem]:
        """The loops of this process, and work left undone by all of them."""
        overdue = sum(each.code == OVERDUE for each in self._problems)
        return _problems("loops", [*audit_loops(self._loops), *dead_loops(overdue, OVERDUE_MS)])

    async def _about_store(self) -> list[Problem]:
        self._facts.update(await self._store.facts())
        return []

    async def _upkeep(self) -> list[Problem]:
        self._notices += [Problem(*each) for each in await self._store.upkeep()]
        return []

    async def _schedules(self) -> list[Problem]:
        self._notices += await self._engine.read(flapping_schedules)
        return []

    async def _groups(self) -> list[Problem]:
        """Groups that are about to lose events, or have lost some."""
        age_ms = self._engine.config.event_retention_ms
        found = await list_consumer_groups(self._engine, ListConsumerGroups(limit=PAGE_MAX))
        for group in found.items:
            if group.lost_until is not None:
                what = f"lost events from before {group.lost_until}"
                self._notices.append(Problem("behind", group.group_id, what))
            elif group.lag_ms * 2 >= age_ms:
                what = f"{group.lag_ms} ms behind; events are kept for {age_ms} ms"
                self._notices.append(Problem("behind", group.group_id, what))
        return []

    async def _lasting(
        self, code: str, audit: Callable[[Reader], Awaitable[list[tuple[str, str]]]]
    ) -> list[Problem]:
        """Counters and rows are not read at one instant: only lasting differences count."""
        found = await self._engine.read(audit)
        if found:
            again = set(await self._engine.read(audit))
            found = [each for each in found if each in again]
        return _problems(code, found)


def _problems(code: str, found: Sequence[tuple[str, str]]) -> list[Problem]:
    return [Problem(code, subject, what) for subject, what in found]


def _schema_word(status: Any) -> str:
    return "not applied" if status.applied_at is None else "the applied file differs"


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
        behind = await lines.strays(reader, known)
        problems += [Problem("lines", subject, what) for subject, what in behind]
        missing = await unattached(reader, known)
        problems += [Problem("limits", wrong.subject, told(wrong)) for _, wrong in missing]
        if len(rows) < PAGE_MAX or not known:
            break
        wanted = replace(wanted, before=newest_first(known[-1]))
    return looked, problems


def _stuck(execution: Execution, now: int) -> list[Problem]:
    """Every live row has a due wake-up, a worker to wait for, or a named external cause."""
    problems = []
    due = execution.due_at or execution.purge_at
    if due is not None and due < now - OVERDUE_MS:
        late = f"due {now - due} ms ago and not moved"
        problems.append(Problem(OVERDUE, execution.execution_id, late))
    idle = not execution.is_terminal and not execution.is_waiting and due is None
    blocked = execution.state.blocking_reason.value
    if idle and blocked in ("none", "waiting_for_worker"):
        problems.append(Problem("stuck", execution.execution_id, "nothing will wake it"))
    return problems
