"""A SQL store's cache of routes: records hold routes, rows hold their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.errors import Corruption, FlowFabricError
from flowfabric.limits import AGING_MS_MAX, LANE_WEIGHT_MAX
from flowfabric.model.budget import ScopeRow
from flowfabric.model.checks import check_integer
from flowfabric.model.route import Catalog, Lane, Route
from flowfabric.stores.spoiled import SpoiledRow, intact
from flowfabric.stores.tables import LANES, SCOPES, scopes_of, words_of


class RouteBook:
    """The catalog as of one version, with the numbers of its routes.

    Each row is judged by itself: all work is matched against the catalog, so a corrupt row may
    disable its own lane, route or scope, and nothing else.
    """

    def __init__(
        self,
        version: int,
        route_rows: Sequence[Sequence[Any]],
        lane_rows: Sequence[Sequence[Any]],
        scope_rows: Sequence[Sequence[Any]] = (),
    ) -> None:
        self.by_id: dict[int, Route] = {
            row[0]: Route(row[1], row[2], row[3], words_of(row[4]))
            for row in route_rows
            if type(row) is not SpoiledRow
        }
        self.ids: dict[Route, int] = {route: key for key, route in self.by_id.items()}
        lanes: dict[str, Lane] = {}
        unreadable: dict[str, str] = {}
        for row in lane_rows:
            try:
                lanes[row[0]] = _lane(row)
            except FlowFabricError as error:
                unreadable[row[0]] = str(error)
        scopes = scopes_of(scope for row in scope_rows if (scope := _scope(row)) is not None)
        routes = tuple(self.by_id.values())
        self.catalog = Catalog(version, routes, lanes, scopes, unreadable)


def _lane(row: Sequence[Any]) -> Lane:
    lane = LANES.decoded(list(intact(row, "the row")))
    check_integer(lane.weight, field="weight", least=1, most=LANE_WEIGHT_MAX)
    check_integer(lane.aging_ms, field="aging_ms", least=0, most=AGING_MS_MAX)
    for weights in (lane.tenant_weights, lane.fair_weights):
        for name, weight in weights.items():
            check_integer(weight, field=f"weight of {name}", least=1, most=LANE_WEIGHT_MAX)
    return lane


def _scope(row: Sequence[Any]) -> ScopeRow | None:
    try:
        return SCOPES.from_row(row)
    except Corruption:
        return None


EMPTY_BOOK = RouteBook(-1, (), ())
