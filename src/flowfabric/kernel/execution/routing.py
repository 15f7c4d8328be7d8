"""Matching workers and routes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from typing import Final

from flowfabric.kernel.place.lanes import may_start
from flowfabric.model.record import Record
from flowfabric.model.route import Catalog, Route
from flowfabric.model.worker import Worker

NO_WORKER: Final = "no worker can run it"


class Offer(Record, frozen=True):
    """The routes a worker can run."""

    namespaces: tuple[str, ...]
    lanes: tuple[str, ...]
    capabilities: tuple[str, ...] = ()
    kinds: tuple[str, ...] | None = None  # None: every kind


def missing_capabilities(required: Iterable[str], offered: Collection[str]) -> tuple[str, ...]:
    """The required capabilities that are not offered, sorted; case matters."""
    return tuple(sorted(token for token in required if token not in offered))


def matching_routes(offer: Offer, catalog: Catalog) -> tuple[Route, ...]:
    """The routes this worker may claim from, on open lanes."""
    return tuple(
        route for route in fitting_routes(offer, catalog) if may_start(route.lane_id, catalog)
    )


def fitting_routes(offer: Offer, catalog: Catalog) -> Iterator[Route]:
    """The routes this worker can run, whether their lanes are open or not."""
    lanes, offered = frozenset(offer.lanes), frozenset(offer.capabilities)
    namespaces = frozenset(offer.namespaces)
    kinds = None if offer.kinds is None else frozenset(offer.kinds)
    return (
        route
        for route in catalog.routes
        if route.namespace in namespaces
        and route.lane_id in lanes
        and (kinds is None or route.execution_kind in kinds)
        and offered.issuperset(route.required_capabilities)
    )


def misfit(worker: Worker, route: Route) -> str:
    """Why a worker cannot run work of this route; empty when it can."""
    if route.lane_id not in worker.lanes:
        return f"serves other lanes ({', '.join(worker.lanes)})"
    if worker.kinds is not None and route.execution_kind not in worker.kinds:
        return f"has no handler for {route.execution_kind}"
    if missing := missing_capabilities(route.required_capabilities, worker.capabilities):
        return f"lacks {', '.join(missing)}"
    return ""


def route_key(route: Route) -> str:
    """What an execution blocked on its route waits for. A digest: the capabilities alone may be
    longer than an index takes."""
    parts = (route.namespace, route.lane_id, route.execution_kind, *route.required_capabilities)
    text = "\x1f".join(parts)  # names and capabilities hold no control character
    return f"route:{sha256(text.encode()).hexdigest()}"


def able_worker(workers: Iterable[Worker], route: Route, now: int) -> Worker | None:
    """A live worker that can run work of this route."""
    return next(
        (
            worker
            for worker in workers
            if worker.namespace == route.namespace
            and worker.is_live(now)
            and not misfit(worker, route)
        ),
        None,
    )
