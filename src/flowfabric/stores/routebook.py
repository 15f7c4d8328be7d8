"""A SQL store's memory of routes: records hold routes, rows hold their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.model.route import Catalog, Lane, LaneState, Route
from flowfabric.stores.codec import capabilities_from_text


class RouteBook:
    """The catalog as of one version, with the numbers of its routes."""

    def __init__(
        self, version: int, route_rows: Sequence[Sequence[Any]], lane_rows: Sequence[Sequence[Any]]
    ) -> None:
        self.by_id: dict[int, Route] = {
            row[0]: Route(row[1], row[2], row[3], capabilities_from_text(row[4]))
            for row in route_rows
        }
        self.ids: dict[Route, int] = {route: key for key, route in self.by_id.items()}
        lanes = {
            row[0]: Lane(row[0], LaneState(row[1]), row[2], row[3], row[4]) for row in lane_rows
        }
        self.catalog = Catalog(version, tuple(self.by_id.values()), lanes)


EMPTY_BOOK = RouteBook(-1, (), ())
