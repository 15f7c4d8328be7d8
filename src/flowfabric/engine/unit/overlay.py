"""Searches that see what their transaction has decided and not written yet.

The store is asked once, and pending writes are laid over its answer by the declaration of the
index: changed and dropped records leave it, those that belong now join it. So a batch is written
once, at its end, and a store needs no open transaction to search its own writes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from flowfabric.engine.unit.view import View
from flowfabric.kernel.execution.claim import is_claimable
from flowfabric.model.execution import Body, Execution
from flowfabric.model.record import Record, fields_of, replace
from flowfabric.model.route import Route
from flowfabric.stores.base import Transaction, within
from flowfabric.stores.indexes import ExecutionIndex, Search, ready_order
from flowfabric.stores.tables import Key, Table

R = TypeVar("R", bound=Record)
Candidate = tuple[Execution, Body]


class Overlay:
    """One transaction's reads by index."""

    def __init__(self, tx: Transaction, view: View) -> None:
        self._tx = tx
        self._view = view

    async def save(self) -> None:
        """Write what was decided so far."""
        if changes := self._view.take_changes():
            await self._tx.save(changes)

    # --- rows ----------------------------------------------------------------------------------

    async def search(self, search: Search[R]) -> list[R]:
        """What a search finds, as it stands."""
        if isinstance(search.index, ExecutionIndex):
            return cast("list[R]", await self._executions(search))
        table = search.index.table
        pending = self._view.rows.pending(table.whole)
        if pending is None:
            return await self._tx.search(search)
        images, alike = pending
        asked = _widened(search, images, alike)
        is_filtered = asked.only == search.only
        standing = []
        for record in await self._tx.search(asked):
            key = table.key_of(record)
            if key not in images:
                changed = _set_alike(record, key, alike)
                if (is_filtered and changed is record) or search.finds(changed):
                    standing.append(changed)
        here = (table.part_from(image) for image in images.values() if image is not None)
        standing += [record for record in here if search.finds(record)]
        return search.sorted(standing)

    async def search_keys(self, search: Search[Any]) -> list[Key]:
        """The keys of what a search finds."""
        if isinstance(search.index, ExecutionIndex):
            if not self._view.has_unwritten:
                return await self._tx.search_keys(search)
            return [(each.execution_id,) for each in await self._executions(search)]
        table = search.index.table
        if self._view.rows.pending(table.whole) is None:
            return await self._tx.search_keys(search)
        return list(map(table.key_of, await self.search(search)))

    async def row(self, table: Table[R], key: Key) -> R | None:
        """One row by its key, as it stands; not locked."""
        pending = self._view.rows.pending(table)
        images, alike = ({}, {}) if pending is None else pending
        if key in images:
            image: R | None = images[key]
            return image
        known = self._view.rows.get(table, key)
        if known is not None:
            return known
        found = (await self._tx.peek_rows(table, [key])).get(key)
        return None if found is None else _set_alike(found, key, alike)

    # --- executions ----------------------------------------------------------------------------

    async def _executions(self, search: Search[Any]) -> list[Execution]:
        view = self._view
        if not view.has_unwritten:
            return cast("list[Execution]", await self._tx.search(search))
        stale = sum(map(search.finds, view.stored.values()))
        found = await self._tx.search(_beyond(search, stale))
        standing = [each for each in found if not view.is_unwritten(each.execution_id)]
        standing += [each for each in view.unwritten() if search.finds(each)]
        return search.sorted(standing)

    async def candidates(
        self, routes: Sequence[Route], limit: int, bytes_max: int | None = None
    ) -> list[Candidate]:
        """Executions to claim, best first; as `Transaction.ready`."""
        view = self._view
        if not view.has_unwritten:
            return await self._tx.ready(routes, limit, bytes_max)
        stale = sum(each.is_waiting for each in view.stored.values())
        standing, room = await self._standing(routes, limit + stale, bytes_max), bytes_max
        while stale and room is not None and standing.gone_bytes + (bytes_max or 0) > room:
            room = standing.gone_bytes + (bytes_max or 0)  # what is gone took room from the rest
            standing = await self._standing(routes, limit + stale, room)
        wanted, now = frozenset(routes), view.at.now
        own = [
            each for each in view.unwritten() if each.route in wanted and is_claimable(each, now)
        ]
        if not own:
            return within(standing.found[:limit], bytes_max)
        bodies = await self.bodies([each.execution_id for each in own])
        both = [*standing.found, *((each, bodies[each.execution_id]) for each in own)]
        both.sort(key=lambda pair: ready_order(pair[0]))
        return within(both[:limit], bytes_max)

    async def _standing(
        self, routes: Sequence[Route], limit: int, bytes_max: int | None
    ) -> _Standing:
        found = await self._tx.ready(routes, limit, bytes_max)
        return _Standing(found, self._view)

    async def bodies(self, execution_ids: Sequence[str]) -> dict[str, Body]:
        """The inputs of executions, with those that this transaction has made or replaced."""
        changes = self._view.changes
        created, payloads = changes.created, changes.payloads
        found = {key: created[key][1] for key in execution_ids if key in created}
        missing = [key for key in execution_ids if key not in found]
        if missing:
            found.update(await self._tx.bodies(missing))
        for key in execution_ids:
            if key in payloads and key in found:
                payload, encoding = payloads[key]
                found[key] = replace(found[key], payload=payload, payload_encoding=encoding)
        return found


class _Standing:
    """Candidates that the store found, without those that this transaction has changed."""

    def __init__(self, found: Iterable[Candidate], view: View) -> None:
        self.found: list[Candidate] = []
        self.gone_bytes = 0  # of the inputs of those that are left out
        for candidate in found:
            if view.is_unwritten(candidate[0].execution_id):
                self.gone_bytes += len(candidate[1].payload)
            else:
                self.found.append(candidate)


def _beyond(search: Search[R], more: int) -> Search[R]:
    """The search with a higher limit: so many of the rows it finds may have to be left out."""
    if search.limit is None or not more:
        return search
    return replace(search, limit=search.limit + more)


def _widened(
    search: Search[R], images: Mapping[Key, Any], alike: Mapping[Record, Mapping[Key, None]]
) -> Search[R]:
    """The search by which the store finds every row that may stand after pending writes."""
    for values in alike:
        named = fields_of(values)
        if any(named.get(column) == value for column, value in search.only if column in named):
            return replace(search, only=(), limit=None)  # rows as stored do not pass the filter yet
    return _beyond(search, len(images) + sum(map(len, alike.values())))


def _set_alike(record: R, key: Key, alike: Mapping[Record, Mapping[Key, None]]) -> R:
    for values, keys in alike.items():
        if key in keys:
            return replace(record, **fields_of(values))
    return record
