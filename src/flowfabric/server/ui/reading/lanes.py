"""The lanes: what is on them, and how fast is it done?"""

from __future__ import annotations

import asyncio
from typing import Final

from flowfabric.api.lanes import ListLanes
from flowfabric.api.operation import Scope
from flowfabric.limits import PAGE_MAX
from flowfabric.server.exchange import Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Reach
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.doing import lanes as doing
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.reading.standing import gauges_now, last_hour
from flowfabric.server.ui.views.curves import by_lane
from flowfabric.server.ui.views.lanes import PATH, Lanes, lanes_of


async def lanes(service: Service, call: Call) -> Lanes:
    """Every lane, by name."""
    page, hour, gauges = await asyncio.gather(
        ask(service, call, ListLanes(with_counts=False, limit=PAGE_MAX)),
        last_hour(service, call),
        gauges_now(service, call),
    )
    until = await now_of(service, call)
    return lanes_of(
        page.items,
        by_lane(hour.items, until),
        gauges,
        complete_until=hour.complete_until,
        is_whole=hour.is_whole and page.next_cursor is None,
    )


PAGES: Final = (
    Page(
        path=PATH,
        title="Lanes",
        view=lanes,
        template="lanes.html",
        asks=("list_lanes", "read_statistics", "read_gauges"),
        parts=("lanes",),
        topics=("statistics", "lanes"),
        nav=Nav(label="Lanes", icon="lanes", key="l", group=1, order=1),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = (
    Action(
        path=f"{PATH}/{{lane_id}}/state",
        title="Switch a lane",
        act=doing.switch,
        scope=Scope.OPERATE,
        reach=Reach.SHARED,
        asks=("set_lane_state",),
    ),
    Action(
        path=f"{PATH}/{{lane_id}}/settings",
        title="Change how a lane shares and ages its work",
        act=doing.settings,
        scope=Scope.OPERATE,
        reach=Reach.SHARED,
        asks=("configure_lane",),
    ),
)
