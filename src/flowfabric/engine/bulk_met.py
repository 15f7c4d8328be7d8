"""The executions that a bulk operation meets: a page of a listing, or of one group of failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from flowfabric.engine.operations.execution_lists import routes_of
from flowfabric.kernel.bulk import is_listed
from flowfabric.model.bulk import BulkFilter
from flowfabric.model.dead import DeadRow
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.route import Catalog
from flowfabric.stores.base import Corrupt, ListFilter, Reader
from flowfabric.stores.indexes import DEAD_OF_GROUP, Search, newest_first
from flowfabric.stores.tables import DEAD, Key

Place = tuple[int, str]


class Met(NamedTuple):
    """Some executions, and the place behind them."""

    known: list[Execution]
    corrupt: int
    place: Place | None  # none: nothing tells where to go on
    is_last: bool


NOTHING_MET: Final = Met([], 0, None, is_last=False)


async def met_by(
    reader: Reader,
    catalog: Catalog,
    wanted: BulkFilter,
    began_at: int,
    before: Place | None,
    asked: int,
) -> Met:
    """The next ones behind a place; what came to be after the beginning is never among them."""
    if wanted.fingerprint is not None:
        return await _of_group(reader, wanted, wanted.fingerprint, began_at, before, asked)
    page: list[Execution | Corrupt] = []
    listed = listing_of(catalog, wanted, began_at + 1)
    if listed is not None:
        page = await reader.list_executions(replace(listed, before=before), asked)
    is_last, known = len(page) < asked, readable(page)
    while known and not is_last and isinstance(page[-1], Corrupt):
        page.pop()  # it is met again behind the last place that is known
    place = newest_first(known[-1]) if known else before
    is_last = is_last or (bool(page) and not known)  # nothing tells where to go on
    return Met(known, sum(isinstance(each, Corrupt) for each in page), place, is_last)


async def _of_group(
    reader: Reader,
    wanted: BulkFilter,
    fingerprint: str,
    began_at: int,
    before: Place | None,
    asked: int,
) -> Met:
    """By the index of the group, the latest end first: one that is run again and fails once more
    ends later than the operation began."""
    search = Search(
        DEAD_OF_GROUP,
        ((wanted.namespace, fingerprint),),
        after=before or (began_at + 1, ""),
        limit=asked,
        is_backwards=True,
        skips_corrupt=True,
    )
    rows = await reader.search(search)
    found = await reader.get([row.execution_id for row in rows]) if rows else {}
    here = [each for row in rows if (each := found.get(row.execution_id)) is not None]
    known = [each for each in readable(here) if is_listed(wanted, each)]
    place = (rows[-1].ended_at, rows[-1].execution_id) if rows else before
    corrupt = sum(isinstance(each, Corrupt) for each in here)
    return Met(known, corrupt, place, is_last=len(rows) < asked)


def listing_of(catalog: Catalog, wanted: BulkFilter, until: int) -> ListFilter | None:
    """The listing that finds the executions of an operation; None: there can be none. `until`: they
    were created before."""
    routes = routes_of(catalog, wanted.namespace, wanted.lane_id, wanted.execution_kind)
    if routes == ():
        return None
    before = wanted.created_before
    return ListFilter(
        routes=routes,
        states=tuple(each.value for each in wanted.states),
        tag=wanted.tag,
        created_after=wanted.created_after,
        created_before=until if before is None else min(before, until),
    )


def readable(rows: Sequence[Execution | Corrupt]) -> list[Execution]:
    """Those that can be decoded."""
    return [each for each in rows if isinstance(each, Execution)]


async def letters_of(
    reader: Reader, wanted: BulkFilter, execution_ids: Sequence[str]
) -> dict[Key, DeadRow]:
    """The dead letters of executions, where the filter asks how they stand."""
    if wanted.dead_letter is None or not execution_ids:
        return {}
    return await reader.peek_rows(DEAD, [(key,) for key in execution_ids])
