"""The limits: what is spent, how fast, and when is it empty?"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlencode

from flowfabric.api.budgets import GetBudgetStatus, ListBudgets, ListSpend
from flowfabric.api.operation import Scope
from flowfabric.api.quotas import GetQuotaStatus, ListQuotaPolicies
from flowfabric.api.statistics import ReadSpending
from flowfabric.limits import PAGE_MAX
from flowfabric.model.statistic import Spending, Step, added_up
from flowfabric.server.exchange import Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Reach
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.doing import budgets as doing
from flowfabric.server.ui.pages import Act, Action, Page
from flowfabric.server.ui.views.budgets import (
    DAY_MS,
    PATH,
    QUOTAS,
    Budget,
    Budgets,
    Quota,
    budget_of,
    budgets_of,
    quota_of,
)

_PAGE: Final = 50
_PAGES: Final = 4  # of spending: a day of a few dimensions


async def budgets(service: Service, call: Call) -> Budgets:
    """Budgets and quotas by name."""
    cursor = dict(call.query).get("cursor") or None
    page, quotas = await asyncio.gather(
        ask(service, call, ListBudgets(cursor=cursor, limit=_PAGE)),
        ask(service, call, ListQuotaPolicies(limit=_PAGE)),
    )
    following = page.next_cursor
    further = None if following is None else f"{PATH}?{urlencode({'cursor': following})}"
    return budgets_of(page.items, quotas.items, next_page=further)


async def budget(service: Service, call: Call) -> Budget:
    """One budget: its dimensions over a day, and what spends from it."""
    name = call.params["budget_id"]
    status, spending, spent = await asyncio.gather(
        ask(service, call, GetBudgetStatus(budget_id=name)),
        _spending(service, call, name),
        ask(service, call, ListSpend(limit=PAGE_MAX)),
    )
    now = await now_of(service, call)
    return budget_of(status, spending, spent.items, now)


async def _spending(service: Service, call: Call, name: str) -> list[Spending]:
    """A day of it, minute by minute; none for a caller that sees only its own namespaces."""
    if call.caller.namespaces is not None:
        return []
    found: list[Spending] = []
    cursor = None
    for _ in range(_PAGES):
        request = ReadSpending(
            budget_id=name, last_ms=DAY_MS, by=Step.MINUTE, cursor=cursor, limit=PAGE_MAX
        )
        page = await ask(service, call, request)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return added_up(found)


async def quota(service: Service, call: Call) -> Quota:
    """One quota, and the fullest of its keys."""
    request = GetQuotaStatus(quota_policy_id=call.params["quota_policy_id"])
    return quota_of(await ask(service, call, request), dict(call.query).get("q", "").strip())


def _action(path: str, title: str, act: Act, operation: str) -> Action:
    return Action(
        path=path,
        title=title,
        act=act,
        scope=Scope.OPERATE,
        reach=Reach.SHARED,
        asks=(operation,),
    )


PAGES: Final = (
    Page(
        path=PATH,
        title="Budgets",
        view=budgets,
        template="budgets.html",
        reach=Reach.SHARED,
        asks=("list_budgets", "list_quota_policies"),
        parts=("budgets",),
        topics=("budgets", "tick:10s"),
        nav=Nav(label="Budgets", icon="budgets", key="b", group=0, order=5),
    ),
    Page(
        path=f"{PATH}/{{budget_id}}",
        title="Budget",
        view=budget,
        template="budget.html",
        reach=Reach.SHARED,
        asks=("get_budget_status", "read_spending", "list_spend"),
        parts=("budget",),
        topics=("budgets", "tick:10s"),
    ),
    Page(
        path=f"{QUOTAS}/{{quota_policy_id}}",
        title="Quota",
        view=quota,
        template="quota.html",
        reach=Reach.SHARED,
        asks=("get_quota_status",),
        parts=("quota",),
        topics=("tick:5s",),
    ),
)
_BUDGET: Final = f"{PATH}/{{budget_id}}"
ACTIONS: Final[tuple[Action, ...]] = (
    _action(f"{_BUDGET}/limits", "Change the limits of a budget", doing.change, "update_budget"),
    _action(f"{_BUDGET}/reset", "Reset a budget", doing.reset, "reset_budget"),
    _action(
        f"{QUOTAS}/{{quota_policy_id}}/limits",
        "Change the limits of a quota",
        doing.change_quota,
        "update_quota_policy",
    ),
)
