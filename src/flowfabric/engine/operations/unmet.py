"""Waiting work that no live worker can run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric import limits
from flowfabric.api import workers as api
from flowfabric.api.page import Page, at_names
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.workers import live_workers
from flowfabric.kernel.execution.routing import able_worker, missing_capabilities, route_key
from flowfabric.model.checks import check_name
from flowfabric.model.execution import Execution
from flowfabric.model.route import Route
from flowfabric.model.worker import Unmet, Worker
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import BLOCKED, READY, Search

_Place = tuple[str, str, str]


def _at_route(lane: object, kind: object, key: object) -> _Place:
    return *at_names(lane, kind), check_name(key, field="cursor")


_LISTING: Final = Listing("list_unmet", _at_route)


@answers(api.ListUnmet)
async def list_unmet(machine: Machine, request: api.ListUnmet) -> Page[Unmet]:
    """By the routes that no live worker fits: the first execution of each, where one waits."""
    namespace, limit = machine.namespace(request.namespace), check_limit(request.limit)
    place = _LISTING.place(request.cursor)
    if not limit:
        return Page(())

    async def work(reader: Reader) -> Page[Unmet]:
        catalog = await reader.catalog()
        workers = await live_workers(reader, namespace)
        routes = [
            route
            for route in sorted(catalog.routes, key=_place)
            if route.namespace == namespace
            and (place is None or _place(route) > place)
            and able_worker(workers, route, reader.now) is None
        ]
        found: list[Unmet] = []
        looked = routes[: limits.UNMET_LOOKS]
        for at, route in enumerate(looked):
            if (first := await _first(reader, route)) is not None:
                if len(found) == limit:
                    return Page(tuple(found), _LISTING.cursor(_place(looked[at - 1])))
                found.append(_unmet(route, first, workers))
        is_last = len(looked) == len(routes)
        following = None if is_last else _place(looked[-1])
        return Page(tuple(found), _LISTING.cursor(following))

    return await machine.read(work)


def _place(route: Route) -> _Place:
    return route.lane_id, route.execution_kind, route_key(route)


async def _first(reader: Reader, route: Route) -> Execution | None:
    """One that could be claimed, or one that is blocked because it cannot be run."""
    for search in (
        Search(READY, ((route,),), limit=1),
        Search(BLOCKED, ((route_key(route),),), limit=1),
    ):
        if found := await reader.search(search):
            return found[0]
    return None


def _unmet(route: Route, first: Execution, workers: Sequence[Worker]) -> Unmet:
    near = [each for each in workers if route.lane_id in each.lanes]
    offered = {capability for each in near for capability in each.capabilities}
    return Unmet(
        namespace=route.namespace,
        lane_id=route.lane_id,
        execution_kind=route.execution_kind,
        required_capabilities=route.required_capabilities,
        missing=missing_capabilities(route.required_capabilities, offered),
        execution_id=first.execution_id,
        created_at=first.created_at,
    )
