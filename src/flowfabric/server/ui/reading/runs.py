"""The list of runs: which executions are there, of the kind that is meant?"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from flowfabric.api.executions import CountListed, ListExecutions, ListKinds
from flowfabric.api.lanes import ListLanes
from flowfabric.model.record import replace
from flowfabric.server.exchange import Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.views.filters import Filter, filter_of, instant_in
from flowfabric.server.ui.views.runs import COUNT_MAX, NEW_MAX, PAGE_ROWS, PATH, Runs, runs_of

_NAMES: Final = 200  # kinds and lanes that are offered to complete a word


async def runs(service: Service, call: Call) -> Runs:
    """A page of the runs that fit, and how many there are."""
    given = dict(call.query)
    text, cursor = given.get("q", "").strip(), given.get("cursor") or None
    now = await now_of(service, call)
    space = _space(call, filter_of(text, now).namespace)
    kinds, lanes = await _names(service, call, space)
    wanted = replace(filter_of(text, now, kinds=kinds, lanes=lanes), namespace=space)
    shown_at = instant_in(given.get("as_of"))
    fields = wanted.selects()
    if shown_at is not None:
        fields["created_before"] = min(fields["created_before"] or shown_at, shown_at)
    listing = ListExecutions(**fields, text=wanted.text, cursor=cursor, limit=PAGE_ROWS)
    page, count, new = await asyncio.gather(
        ask(service, call, listing),
        _count(service, call, wanted, has_cursor=cursor is not None),
        _newer(service, call, wanted, None if cursor else shown_at),
    )
    return runs_of(
        page.items,
        wanted,
        text=text,
        now=now,
        count=count,
        new=new,
        next_cursor=page.next_cursor,
        is_first=cursor is None,
        lanes=lanes,
        kinds=kinds,
    )


def _looks_for_words(call: Call) -> bool:
    """Whether the filter of a request has a text, which no index helps with."""
    return filter_of(dict(call.query).get("q", ""), 0).text is not None


async def _count(service: Service, call: Call, wanted: Filter, *, has_cursor: bool) -> int | None:
    """How many fit: counted by an index, and only once; a text has no index."""
    if wanted.text is not None or has_cursor:
        return None
    fields: dict[str, Any] = wanted.selects()
    return await ask(service, call, CountListed(**fields, at_most=COUNT_MAX))


async def _newer(service: Service, call: Call, wanted: Filter, shown_at: int | None) -> int:
    """How many have come since the page was first shown; they do not push its rows about."""
    if shown_at is None or wanted.text is not None or wanted.created_before is not None:
        return 0
    fields = {**wanted.selects(), "created_after": max(wanted.created_after or 0, shown_at)}
    return await ask(service, call, CountListed(**fields, at_most=NEW_MAX))


def _space(call: Call, named: str | None) -> str | None:
    """The namespace that is looked at: a caller of several has to name one, or sees the first."""
    several = call.caller.namespaces or ()
    return min(several) if named is None and len(several) > 1 else named


async def _names(
    service: Service, call: Call, space: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The kinds and the lanes there are, for as many as fit a page. Lanes belong to all namespaces:
    whoever is held to some is told the names of none."""
    kinds = await ask(service, call, ListKinds(namespace=space, limit=_NAMES))
    known = () if kinds.next_cursor else kinds.items
    if call.caller.namespaces is not None:
        return known, ()
    lanes = await ask(service, call, ListLanes(limit=_NAMES, with_counts=False))
    return known, () if lanes.next_cursor else tuple(each.lane_id for each in lanes.items)


PAGES: Final = (
    Page(
        path=PATH,
        title="Runs",
        view=runs,
        template="runs.html",
        parts=("runs",),
        topics=("runs",),
        counts_new=True,
        asks=("list_executions", "count_listed", "list_kinds", "list_lanes"),
        reads_much=_looks_for_words,
        nav=Nav(label="Runs", icon="runs", key="r", group=0, order=1),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = ()
