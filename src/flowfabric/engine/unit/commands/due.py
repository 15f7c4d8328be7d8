"""What is due by itself: everything whose time has come, in one transaction."""

from __future__ import annotations

from collections import Counter

from flowfabric import ids
from flowfabric.engine.unit.due import EXECUTION, Due, Thing, rows_due
from flowfabric.engine.unit.firing import fire_due
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.wake import Wake
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record
from flowfabric.stores.indexes import DUE, Search
from flowfabric.stores.tables import LINE_ROWS, OPERATIONS, SCHEDULES, WAITPOINTS, WATCHES, Key


class Moved(Record, frozen=True):
    """How many records were moved, and the bulk operations that are due: each is moved in a
    transaction of its own."""

    count: int
    operations: tuple[Key, ...] = ()


class WakeDue(Command[Moved], frozen=True, kw_only=True):
    """Move everything whose due time has come, up to a limit and without what is set aside; or of
    that only what is named. Bulk operations among it are only named."""

    limit: int
    aside: frozenset[Thing] = frozenset()
    named: Due | None = None

    def needs(self, need: Needs) -> None:
        """The routes."""
        need.catalog = True


@handles(WakeDue)
async def wake_due(unit: Unit, search: WakeDue) -> Moved:
    """Do what is due."""
    view, moved = unit.view, 0
    came_back: Counter[str | None] = Counter()
    found = await _executions_due(unit, search)
    rows = search.named
    if rows is None:
        rows = await rows_due(unit.overlay.search_keys, view.at.now, search.limit, search.aside)
    await unit.flows.hold_due(found, rows)
    for execution in found:
        key = view.take(execution).execution_id
        # A lapsed lease may be due for reclaim at once, so look again until nothing is due.
        while (what := _woken(unit, key)) != "unchanged":
            moved += 1
            came_back[execution.blocked_on] += what == "promoted"
    due = [execution.execution_id for execution in found]
    await unit.flows.follow_up()
    moved += await unit.flows.move_due(rows)
    moved += await unit.waits.move_due(due, rows.of(WAITPOINTS))
    moved += await unit.watches.move_due(rows.of(WATCHES))
    if lines := rows.of(LINE_ROWS):
        await unit.tied.follow_up()  # heads that have just ended leave their lines first
        moved += await unit.tied.lines.move_due(lines)
    moved += await unit.limits.move_due(rows, came_back)
    # Last: no lock is waited for while schedules are held, but those of runs that they cancel.
    aside = None if search.named is not None else search.aside
    moved += await fire_due(unit, rows.of(SCHEDULES), aside)
    return Moved(moved, tuple(rows.of(OPERATIONS)))


def _woken(unit: Unit, execution_id: str) -> str:
    moved = unit.view.decide(Wake(execution_id=execution_id, jitter=ids.jitter()))
    return "unchanged" if isinstance(moved, Refused) else moved.what


async def _executions_due(unit: Unit, search: WakeDue) -> list[Execution]:
    if search.named is None:
        limit, aside = search.limit, search.aside
        until, most = unit.view.at.now, limit + len(aside)
        found = await unit.overlay.search(Search(DUE, until=until, limit=most, is_held=True))
        if aside:
            found = [each for each in found if (EXECUTION, (each.execution_id,)) not in aside]
        return found[:limit]
    if not search.named.execution_ids:
        return []
    named = await unit.tx.load_free(search.named.execution_ids)
    return [each for each in named.values() if isinstance(each, Execution)]
