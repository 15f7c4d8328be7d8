"""Listings and counts of executions."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api import executions as api
from flowfabric.api.page import Page, at_instant
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.kernel.execution.words import searchable
from flowfabric.model.checks import (
    check_instant,
    check_integer,
    check_lane,
    check_list,
    check_name,
    check_tag,
    check_text,
)
from flowfabric.model.execution import Execution
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import replace
from flowfabric.model.results import (
    ExecutionSnapshot,
    ExpiredLease,
    snapshot_of,
)
from flowfabric.model.route import Catalog, Route
from flowfabric.model.state import BlockingReason, PublicState
from flowfabric.stores.base import ListFilter, Reader
from flowfabric.stores.indexes import DUE, Search, newest_first, uuid_of

Place = tuple[int, str]  # in a listing by time

_EXECUTIONS = Listing("list_executions", at_instant)
_LEASES = Listing("list_expired_leases", at_instant)


@answers(api.ListExecutions)
async def list_executions(machine: Machine, request: api.ListExecutions) -> Page[ExecutionSnapshot]:
    """The matches, as they are shown."""
    found, following = await find_page(machine, request, _EXECUTIONS.place(request.cursor))
    return Page(tuple(map(snapshot_of, found)), _EXECUTIONS.cursor(following))


async def find_page(
    machine: Machine,
    request: api.ListExecutions,
    before: Place | None,
    *,
    reason: BlockingReason | None = None,
    is_oldest_first: bool = False,
) -> tuple[list[Execution], Place | None]:
    """One page after a place, and the place of the next. The request's own cursor is not read, so
    that other listings may use cursors of their own."""
    limit = check_limit(request.limit)
    wanted = replace(
        list_filter(request.states, request.tag, request.created_after, request.created_before),
        partition=_partition(machine, request.partition),
        before=before,
        reason=reason,
        is_oldest_first=is_oldest_first,
    )
    place = (request.namespace, request.lane_id, request.execution_kind)
    check_route(*place)
    words = check_words(request.text)
    if limit == 0:
        return [], None

    async def work(reader: Reader) -> tuple[list[Execution], Place | None]:
        routes = routes_of(await reader.catalog(), *place)
        if routes == ():
            return [], None
        return await _page(reader, replace(wanted, routes=routes), words, limit)

    return await machine.read(work)


@answers(api.CountListed)
async def count_listed(machine: Machine, request: api.CountListed) -> int:
    """The count without a page."""
    wanted = list_filter(request.states, request.tag, request.created_after, request.created_before)
    most = request.at_most
    if most is not None:
        check_integer(most, field="at_most", least=1, most=limits.COUNTED_MAX)
        wanted = replace(wanted, counted_to=most)
    place = (request.namespace, request.lane_id, request.execution_kind)
    check_route(*place)

    async def work(reader: Reader) -> int:
        routes = routes_of(await reader.catalog(), *place)
        if routes == ():
            return 0
        counted = await reader.count_listed(replace(wanted, routes=routes))
        return counted if most is None else min(counted, most)

    return await machine.read(work)


@answers(api.CountExecutions)
async def count_executions(
    machine: Machine, request: api.CountExecutions
) -> dict[str, dict[str, int]]:
    """Counts of one tenant, or of all."""
    if request.namespace is not None:
        check_name(request.namespace, field="namespace")
    return await count_by_lane(machine, request.namespace)


async def count_by_lane(
    machine: Machine, namespace: str | None = None
) -> dict[str, dict[str, int]]:
    """How many executions each lane has in each state."""
    counted: dict[str, dict[str, int]] = {}
    for route, state, number in await machine.read(lambda reader: reader.count()):
        if namespace is None or route.namespace == namespace:
            lane = counted.setdefault(route.lane_id, {})
            lane[state] = lane.get(state, 0) + number
    return counted


@answers(api.ListExpiredLeases)
async def list_expired_leases(
    machine: Machine, request: api.ListExpiredLeases
) -> Page[ExpiredLease]:
    """By expiry."""
    as_of, limit, namespace = request.as_of, check_limit(request.limit), request.namespace
    if namespace is not None:
        check_name(namespace, field="namespace")
    after = _LEASES.place(request.cursor)
    if as_of is not None:
        check_instant(as_of, field="as_of")

    async def work(reader: Reader) -> list[Execution]:
        await reader.catalog()  # which also reads the store's clock
        until = reader.now if as_of is None else as_of
        first: list[Execution] = []
        # A lease is due when it expires or before, so all that have expired are among the due.
        page = Search(DUE, until=until, limit=limits.PAGE_MAX)
        while due := await reader.search(page):
            expired = (
                each
                for each in due
                if each.is_leased
                and (each.lease_expires_at or 0) <= until
                and (namespace is None or each.namespace == namespace)
                and (after is None or _expiry(each) > after)
            )
            first = heapq.nsmallest(limit + 1, (*first, *expired), key=_expiry)
            if len(due) < limits.PAGE_MAX:
                break
            page = replace(page, after=DUE.place(due[-1]))
        return first

    return _LEASES.page(await machine.read(work), limit, place_of=_expiry, show=_expired)


# --- filters and rows -----------------------------------------------------------------------------


def _partition(machine: Machine, partition: int | None) -> int | None:
    if partition is None:
        return None
    most = machine.store.partitions - 1
    return check_integer(partition, field="partition", least=0, most=most)


def list_filter(
    states: Sequence[str],
    tag: tuple[str, str] | None,
    created_after: int | None,
    created_before: int | None,
) -> ListFilter:
    """A checked filter; its routes are found later, in the catalog."""
    return ListFilter(
        states=tuple(sorted({_state(state) for state in check_list(states, field="states")})),
        tag=None if tag is None else check_tag(tag),
        created_after=_instant(created_after, "created_after"),
        created_before=_instant(created_before, "created_before"),
    )


def check_words(text: str | None) -> str | None:
    """The words of a text search, as they are compared."""
    if text is None:
        return None
    return check_text(text, field="text", max_bytes=limits.REASON_BYTES).lower()


def check_route(namespace: str | None, lane_id: str | None, kind: str | None) -> None:
    """The places that a filter names, checked."""
    if namespace is not None:
        check_name(namespace, field="namespace")
    if lane_id is not None:
        check_lane(lane_id)
    if kind is not None:
        check_name(kind, field="execution_kind")


def routes_of(
    catalog: Catalog, namespace: str | None, lane_id: str | None, kind: str | None
) -> tuple[Route, ...] | None:
    """The routes of these places; None: of all."""
    if namespace is None and lane_id is None and kind is None:
        return None
    return tuple(
        route
        for route in catalog.routes
        if (namespace is None or route.namespace == namespace)
        and (lane_id is None or route.lane_id == lane_id)
        and (kind is None or route.execution_kind == kind)
    )


async def _page(
    reader: Reader, wanted: ListFilter, words: str | None, limit: int
) -> tuple[list[Execution], Place | None]:
    shown: list[Execution] = []
    looked = 0
    while looked < limits.TEXT_SCAN_ROWS:
        size = limit + 1 if words is None else limits.PAGE_MAX
        rows = await reader.list_executions(wanted, size)
        looked += len(rows)
        for row in rows:
            if len(shown) == limit:
                return shown, newest_first(shown[-1])
            if isinstance(row, Execution) and (words is None or words in searchable(row)):
                shown.append(row)
        readable = [row for row in rows if isinstance(row, Execution)]
        if len(rows) < size or not readable:
            return shown, None
        wanted = replace(wanted, before=newest_first(readable[-1]))
    return shown, wanted.before


def _state(state: str) -> str:
    return check_word(state, PublicState, field="states").value


def _instant(value: int | None, field: str) -> int | None:
    return None if value is None else check_instant(value, field=field)


def _expiry(execution: Execution) -> Place:
    return execution.lease_expires_at or 0, uuid_of(execution.execution_id)


def _expired(execution: Execution) -> ExpiredLease:
    return ExpiredLease(
        execution.execution_id,
        execution.lease_epoch,
        execution.worker_id or "",
        execution.worker_instance_id or "",
        execution.lease_expires_at or 0,
        execution.attempt_index or 0,
    )
