"""The list of runs: which executions are there, of the kind that is meant?"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from flowfabric.api.executions import CountListed, ListExecutions, ListKinds
from flowfabric.api.lanes import ListLanes
from flowfabric.server.exchange import Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.views.filters import Filter, filter_of
from flowfabric.server.ui.views.runs import COUNT_MAX, PATH, Runs, runs_of

_PAGE: Final = 50
_NAMES: Final = 200  # kinds and lanes that are offered to complete a word


async def runs(service: Service, call: Call) -> Runs:
    """A page of the runs that fit, and how many there are."""
    given = dict(call.query)
    text, cursor = given.get("q", "").strip(), given.get("cursor") or None
    now = await service.engine.server_time_ms()
    kinds, lanes = await _names(service, call)
    wanted = filter_of(text, now, kinds=kinds, lanes=lanes)
    listing = ListExecutions(**wanted.selects(), text=wanted.text, cursor=cursor, limit=_PAGE)
    page, count = await asyncio.gather(
        ask(service, call, listing), _count(service, call, wanted, has_cursor=cursor is not None)
    )
    return runs_of(
        page.items,
        wanted,
        text=text,
        now=now,
        count=count,
        next_cursor=page.next_cursor,
        is_first=cursor is None,
        lanes=lanes,
        kinds=kinds,
    )


async def _count(service: Service, call: Call, wanted: Filter, *, has_cursor: bool) -> int | None:
    """How many fit: counted by an index, and only once; a text has no index."""
    if wanted.text is not None or has_cursor:
        return None
    fields: dict[str, Any] = wanted.selects()
    return await ask(service, call, CountListed(**fields, at_most=COUNT_MAX))


async def _names(service: Service, call: Call) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The kinds and the lanes there are, for as many as fit a page."""
    kinds, lanes = await asyncio.gather(
        ask(service, call, ListKinds(limit=_NAMES)), ask(service, call, ListLanes(limit=_NAMES))
    )
    known = () if kinds.next_cursor else kinds.items
    return known, () if lanes.next_cursor else tuple(each.lane_id for each in lanes.items)


PAGES: Final = (
    Page(
        path=PATH,
        title="Runs",
        view=runs,
        template="runs.html",
        asks=("list_executions", "count_listed", "list_kinds", "list_lanes"),
        nav=Nav(label="Runs", icon="runs", key="r", group=0, order=1),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = ()
