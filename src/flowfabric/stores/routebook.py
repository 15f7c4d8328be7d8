"""A SQL store's memory of routes: records hold routes, rows hold their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.model.route import Catalog, Lane, LaneState, Route
from flowfabric.stores.codec import bounds_from_text, capabilities_from_text
from flowfabric.stores.tables import SCOPES, scopes_of


class RouteBook:
    """The catalog as of one version, with the numbers of its routes."""

    def __init__(
        self,
        version: int,
        route_rows: Sequence[Sequence[Any]],
        lane_rows: Sequence[Sequence[Any]],
        scope_rows: Sequence[Sequence[Any]] = (),
    ) -> None:
        self.by_id: dict[int, Route] = {
            row[0]: Route(row[1], row[2], row[3], capabilities_from_text(row[4]))
            for row in route_rows
        }
        self.ids: dict[Route, int] = {route: key for key, route in self.by_id.items()}
        lanes = {
            row[0]: Lane(
                row[0],
                LaneState(row[1]),
                row[2],
                row[3],
                row[4],
                row[5],
                row[6],
                bounds_from_text(row[7]),
            )
            for row in lane_rows
        }
        scopes = scopes_of(SCOPES.from_row(row) for row in scope_rows)
        self.catalog = Catalog(version, tuple(self.by_id.values()), lanes, scopes)


EMPTY_BOOK = RouteBook(-1, (), ())
