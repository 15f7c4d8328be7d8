"""The due work of an engine whose loop is restricted to some tenants, or to a tag.

Work of others is stepped over, page after page, and never locked: it stays due for other engines.
Budgets and keys of quotas belong to no tenant: each engine resets them and offers their room.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from flowfabric.engine.unit.due import AT_ONCE, EXECUTION, Due, Thing
from flowfabric.kernel.place.tenants import LoopFilter
from flowfabric.limits import PAGE_MAX
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.stores.base import Changes, Reader, Transaction
from flowfabric.stores.indexes import DUE, PURGE, Search, due_search
from flowfabric.stores.tables import (
    ASKS,
    BUDGETS,
    FLOWS,
    GATES,
    OPERATIONS,
    SCHEDULES,
    TIMED_TABLES,
    AnyTable,
    Key,
)

AHEAD_MS: Final = 2_000  # how far ahead due work is looked for: the loop looks again by then
SETTLED_MS: Final = 10_000  # so long after it was due, no transaction adds a row in front of it
RESCAN_MS: Final = 60_000  # then all is looked at again: tags change
_OF_NO_TENANT: Final = (BUDGETS, ASKS, GATES)
_PURGED_AT: Final = 0  # earlier than any purge time that an end sets

Own = Callable[[Reader, Sequence[Any]], Awaitable[list[Any]]]


class OwnWork:
    """Finds it, and remembers how far work of others reaches."""

    def __init__(self, only: LoopFilter) -> None:
        self._only = only
        self._places: dict[str, Key] = {}  # by index: all before this place belongs to others
        self._rescan_at = 0

    @property
    def is_restricted(self) -> bool:
        """Whether anything is left to others."""
        return not self._only.is_open

    async def due(self, reader: Reader, limit: int, aside: frozenset[Thing]) -> Due:
        """Own work whose time has come, earliest first; without what is set aside."""
        await reader.catalog()
        now = reader.now
        wanted = Search(DUE, until=now)
        found = await self._find(reader, wanted, self._executions, limit + len(aside))
        ids = [each.execution_id for each in found]
        rows: dict[AnyTable, list[Key]] = {}
        for table in TIMED_TABLES:
            most = min(limit, AT_ONCE.get(table, limit))
            own = await self._rows(reader, table, now, most + len(aside))
            keys = [table.key_of(row) for row in own]
            rows[table] = [key for key in keys if (table.name, key) not in aside][:most]
        free = [key for key in ids if (EXECUTION, (key,)) not in aside]
        return Due(free[:limit], {table: keys for table, keys in rows.items() if keys})

    async def next_due(self, reader: Reader) -> int | None:
        """When own work is due or to be purged, if that is soon; None: look again later."""
        await reader.catalog()
        until = reader.now + AHEAD_MS
        times: list[int | None] = []
        for index in (DUE, PURGE):
            found = await self._find(reader, Search(index, until=until), self._executions, 1)
            times += [each.due_at if index is DUE else each.purge_at for each in found]
        for table in TIMED_TABLES:
            times += [table.due_of(row) for row in await self._rows(reader, table, until, 1)]
        return min((each for each in times if each is not None), default=None)

    async def past_retention(self, reader: Reader, limit: int) -> list[str]:
        """Own executions whose purge time is over."""
        await reader.catalog()
        wanted = Search(PURGE, until=reader.now)
        found = await self._find(reader, wanted, self._executions, limit)
        return [each.execution_id for each in found]

    # --- pages ---------------------------------------------------------------------------------

    async def _rows(self, reader: Reader, table: AnyTable, until: int, limit: int) -> list[Any]:
        if table in _OF_NO_TENANT:
            return await reader.search(replace(due_search(table, until, limit), skips_corrupt=True))
        own = self._placed if table in (FLOWS, OPERATIONS) else self._of_executions
        if table is SCHEDULES:
            own = self._schedules
        search = replace(due_search(table, until), skips_corrupt=True)
        return await self._find(reader, search, own, limit)

    async def _find(self, reader: Reader, search: Search[Any], own: Own, limit: int) -> list[Any]:
        """Own rows of a search, page after page until there are enough of them."""
        now, name = reader.now, search.index.name
        if now >= self._rescan_at:
            self._places.clear()
            self._rescan_at = now + RESCAN_MS
        page_of = replace(search, limit=PAGE_MAX, after=self._places.get(name))
        found: list[Any] = []
        while len(found) < limit:
            page = await reader.search(page_of)
            found += await own(reader, page)
            if len(page) < PAGE_MAX:
                break
            place = search.index.place(page[-1])
            page_of = replace(page_of, after=place)
            if not found and place[0] < now - SETTLED_MS:
                self._places[name] = place
        return found[:limit]

    async def _executions(self, _: Reader, page: Sequence[Execution]) -> list[Execution]:
        return [each for each in page if self._only.takes(each)]

    async def _placed(self, _: Reader, page: Sequence[Any]) -> list[Any]:
        return [each for each in page if self._only.takes(each)]

    async def _schedules(self, _: Reader, page: Sequence[Any]) -> list[Any]:
        """A schedule has no tags of its own: an engine with a tag leaves it to others."""
        return [each for each in page if self._only.takes_schedule(each)]

    async def _of_executions(self, reader: Reader, page: Sequence[Any]) -> list[Any]:
        """Rows whose execution is taken; a row without one is left to an engine that takes all."""
        ids: Iterable[str] = {each.execution_id for each in page}
        owners = await reader.get(sorted(ids)) if page else {}
        return [
            each
            for each in page
            if isinstance(owner := owners.get(each.execution_id), Execution)
            and self._only.takes(owner)
        ]


async def purge_only(tx: Transaction, ids: Sequence[str]) -> int:
    """Delete these executions, as far as their purge time is over and they are not locked. They get
    a time before all others: the purge up to then takes only them."""
    await tx.catalog()
    held = await tx.load_free(ids)
    changes = Changes()
    for each in held.values():
        if isinstance(each, Execution) and each.purge_at is not None and each.purge_at <= tx.now:
            changes.updated[each.execution_id] = replace(each, purge_at=_PURGED_AT)
    if not changes.updated:
        return 0
    await tx.save(changes)
    return await tx.purge(_PURGED_AT, len(changes.updated))
