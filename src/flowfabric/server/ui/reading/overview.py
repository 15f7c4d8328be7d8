"""The first page: is everything all right, and if not, where?"""

from __future__ import annotations

import asyncio
from typing import Final

from flowfabric.api.approvals import CountWaits
from flowfabric.api.asks import ListBudgetAsks
from flowfabric.api.budgets import ListBudgets
from flowfabric.api.executions import ListKinds
from flowfabric.api.failures import ListFailureGroups
from flowfabric.api.lanes import ListLanes
from flowfabric.api.operation import Scope
from flowfabric.limits import PAGE_MAX
from flowfabric.model.state import BlockingReason
from flowfabric.model.statistic import Step
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.forms import redirect
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.reading.standing import gauges_now, last_hour
from flowfabric.server.ui.views.overview import PATH, Overview, overview_of

_APPROVALS: Final = 1_000  # counted no further
_BUDGETS: Final = 200
_GROUPS: Final = 50


async def first(service: Service, call: Call) -> Overview | Answer:
    """The overview; what waits for them, for callers that may decide and not read."""
    if Scope.READ not in call.caller.scopes:
        return redirect(service, "/ui/approvals")
    return await overview(service, call)


async def overview(service: Service, call: Call) -> Overview:
    """What stands, what happened in an hour, and what needs a person."""
    approvals = CountWaits(reason=BlockingReason.WAITING_FOR_APPROVAL, at_most=_APPROVALS)
    standing = asyncio.gather(
        last_hour(service, call),
        gauges_now(service, call),
        ask(service, call, ListLanes(with_counts=False, limit=PAGE_MAX)),
    )
    waits, asks, budgets, kinds, groups = await asyncio.gather(
        ask(service, call, approvals),
        ask(service, call, ListBudgetAsks(limit=10)),
        ask(service, call, ListBudgets(limit=_BUDGETS)),
        ask(service, call, ListKinds(limit=1)),
        ask(service, call, ListFailureGroups(by=Step.TOTAL, limit=_GROUPS)),
    )
    hour, gauges, lanes = await standing
    return overview_of(
        hour.items,
        lanes.items,
        gauges,
        approvals=waits,
        asks=asks.items,
        budgets=budgets.items,
        groups=groups.items,
        is_new=not kinds.items,
        now=await now_of(service, call),
        complete_until=hour.complete_until,
        is_whole=hour.is_whole,
    )


PAGES: Final = (
    Page(
        path=PATH,
        title="Overview",
        view=first,
        also=(Scope.APPROVE,),
        template="overview.html",
        asks=(
            *("read_statistics", "read_gauges", "list_lanes", "count_waits"),
            *("list_budget_asks", "list_budgets", "list_kinds", "list_failure_groups"),
        ),
        parts=("overview",),
        topics=("runs", "approvals", "budgets", "lanes", "tick:5s", "pace:1s"),
        nav=Nav(label="Overview", icon="overview", key="o", group=0, order=0),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = ()
