"""The workers: which are there, and what is wanted and offered by none?"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlencode

from flowfabric.api.operation import Scope
from flowfabric.api.workers import ListWorkers
from flowfabric.server.exchange import Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Reach
from flowfabric.server.service import Service
from flowfabric.server.ui.doing import workers as doing
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.reading.standing import gauges_now
from flowfabric.server.ui.views.workers import PATH, Workers, workers_of

_PAGE: Final = 100


async def workers(service: Service, call: Call) -> Workers:
    """Live workers by instance."""
    cursor = dict(call.query).get("cursor") or None
    page, gauges = await asyncio.gather(
        ask(service, call, ListWorkers(cursor=cursor, limit=_PAGE)), gauges_now(service, call)
    )
    following = page.next_cursor
    further = None if following is None else f"{PATH}?{urlencode({'cursor': following})}"
    return workers_of(page.items, gauges, next_page=further)


PAGES: Final = (
    Page(
        path=PATH,
        title="Workers",
        view=workers,
        template="workers.html",
        asks=("list_workers", "read_gauges"),
        parts=("workers",),
        topics=("tick:5s", "workers"),
        nav=Nav(label="Workers", icon="workers", key="w", group=1, order=2),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = (
    Action(
        path=f"{PATH}/{{worker_instance_id}}/drain",
        title="Ask a worker to end",
        act=doing.drain,
        scope=Scope.OPERATE,
        reach=Reach.NAMED,
        asks=("drain_worker",),
    ),
    Action(
        path=f"{PATH}/{{worker_instance_id}}/dead",
        title="Take a worker off, and run its work again",
        act=doing.dead,
        scope=Scope.OPERATE,
        reach=Reach.NAMED,
        asks=("mark_worker_dead",),
    ),
)
