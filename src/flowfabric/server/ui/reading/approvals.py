"""What waits for people, and for me? The list, the form of one wait, the form of one question."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from flowfabric.api.approvals import ListApprovals, ShowWait
from flowfabric.api.asks import ListBudgetAsks
from flowfabric.api.operation import Scope
from flowfabric.api.waits import ListWaits
from flowfabric.errors import NotFound
from flowfabric.model.approvals import WaitShown
from flowfabric.model.ask import AskState, BudgetAsk
from flowfabric.model.state import BlockingReason
from flowfabric.server.exchange import Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Reach
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.views.approvals import (
    ASK_PATH,
    PATH,
    TABS,
    WAIT_PATH,
    Approvals,
    ask_row,
    given_row,
    list_address,
    own_names,
    wait_row,
)
from flowfabric.server.ui.views.deciding import AskForm, WaitForm, ask_form, wait_form
from flowfabric.server.ui.waiting import COUNT_MAX, counted

_PAGE: Final = 50
_LOOKING: Final[dict[str, Any]] = {"scope": Scope.READ, "also": (Scope.APPROVE,)}


# --- the list ------------------------------------------------------------------------------------


async def approvals(service: Service, call: Call) -> Approvals:
    """One tab of the list."""
    given = dict(call.query)
    tab = given.get("tab", "you")
    tab = tab if tab in dict(TABS) else "you"
    namespace = _namespace(call, given.get("namespace"))
    chosen = {"namespace": given.get("namespace")}
    cursor = given.get("cursor") or None
    found = await (
        _decided(service, call, namespace, cursor)
        if tab == "decided"
        else _waiting(service, call, namespace, cursor, tab, given.get("order", ""))
    )
    own = call.caller.namespaces
    shown = () if own is None or len(own) < 2 else tuple(sorted(own))
    following = found.pop("following")
    kept = {"tab": None if tab == "you" else tab, "order": given.get("order"), **chosen}
    return Approvals(
        tab=tab,
        tabs=tuple((word, label, list_address(tab=word, **chosen)) for word, label in TABS),
        next=None if following is None else list_address(cursor=following, **kept),
        first=None if cursor is None else list_address(**kept),
        namespaces=tuple(
            (each, list_address(tab=kept["tab"], namespace=each), each == namespace)
            for each in shown
        ),
        count=await counted(
            service,
            call,
            None if namespace is None else (namespace,),
            asks=len(found["asks"]) if "asks" in found and cursor is None else None,
        ),
        count_max=COUNT_MAX,
        **found,
    )


def _namespace(call: Call, named: str | None) -> str | None:
    """The one whose waits are shown: all, unless one is named or the caller sees only some."""
    own = call.caller.namespaces
    if named or own is None:
        return named or None
    return min(own, default=None)


async def _waiting(
    service: Service, call: Call, namespace: str | None, cursor: str | None, tab: str, order: str
) -> dict[str, Any]:
    """What waits; for me is what I have not answered."""
    is_oldest_first = order != "new"
    listing = ListWaits(
        namespace=namespace,
        reason=BlockingReason.WAITING_FOR_APPROVAL,
        oldest_first=is_oldest_first,
        cursor=cursor,
        limit=_PAGE,
    )
    waits, asks = await asyncio.gather(
        ask(service, call, listing), _asks(service, call, is_first=cursor is None)
    )
    own = own_names(call.caller.actor)
    rows = tuple(row for each in waits.items if (row := wait_row(each, own)).gates)
    other = {"tab": None if tab == "you" else tab, "order": "new" if is_oldest_first else None}
    return {
        "rows": rows if tab == "all" else tuple(each for each in rows if each.is_open),
        "asks": tuple(ask_row(each) for each in asks),
        "is_oldest_first": is_oldest_first,
        "other_order": list_address(**other, namespace=dict(call.query).get("namespace")),
        "following": waits.next_cursor,
    }


async def _asks(service: Service, call: Call, *, is_first: bool) -> Sequence[BudgetAsk]:
    """The open questions of budgets, before all else."""
    if not is_first:
        return ()
    return (await ask(service, call, ListBudgetAsks(limit=_PAGE))).items


async def _decided(
    service: Service, call: Call, namespace: str | None, cursor: str | None
) -> dict[str, Any]:
    """The last decisions, as far as events tell them, and the last answer about each limit."""
    listing = ListApprovals(namespace=namespace, cursor=cursor, limit=_PAGE)
    given = await ask(service, call, listing)
    answered: list[BudgetAsk] = []
    if cursor is None:
        every = await ask(service, call, ListBudgetAsks(only_open=False, limit=_PAGE))
        answered = [each for each in every.items if each.state is not AskState.OPEN]
        answered.sort(key=lambda each: each.answered_at or 0, reverse=True)
    return {
        "given": tuple(given_row(each) for each in given.items),
        "answered": tuple(ask_row(each) for each in answered),
        "following": given.next_cursor,
    }


# --- forms ---------------------------------------------------------------------------------------


async def wait(service: Service, call: Call) -> WaitForm:
    """The form of one wait."""
    shown = await shown_wait(service, call)
    given = dict(call.query)
    return wait_form(shown, call.caller, first=given.get("decision", ""))


async def shown_wait(service: Service, call: Call) -> WaitShown:
    """The wait that the path names."""
    execution_id, key = full_id(call.params["execution_id"]), call.params["waitpoint_key"]
    found = await ask(service, call, ShowWait(execution_id=execution_id, waitpoint_key=key))
    if found is None:
        raise NotFound("wait: the run waits under no such key", entity="waitpoint")
    return found


async def question(service: Service, call: Call) -> AskForm:
    """The form of one question."""
    found = await shown_ask(service, call)
    may = await service.border.may_change(call.caller, found.budget_id)
    return ask_form(found, call.caller, may_answer=may)


async def shown_ask(service: Service, call: Call) -> BudgetAsk:
    """The last question about the limit that the path names."""
    place = (call.params["dimension"], call.params["limit_kind"])
    listing = ListBudgetAsks(budget_id=call.params["budget_id"], only_open=False, limit=_PAGE)
    for each in (await ask(service, call, listing)).items:
        if (each.dimension, each.limit_kind.value) == place:
            return each
    raise NotFound("question: this limit has asked nothing", entity="budget_ask")


LIST: Final = Page(
    path=PATH,
    title="Approvals",
    view=approvals,
    template="approvals.html",
    asks=("list_waits", "list_budget_asks", "list_approvals", "count_waits"),
    parts=("approvals",),
    topics=("approvals", "budgets", "pace:1s"),
    is_personal=True,
    nav=Nav(label="Approvals", icon="approvals", key="a", group=0, order=3),
    **_LOOKING,
)
WAIT: Final = Page(
    path=WAIT_PATH,
    title="Decide",
    view=wait,
    template="wait.html",
    asks=("show_wait",),
    parts=("wait",),
    topics=("execution:{execution_id}",),
    reach=Reach.OBJECT,
    **_LOOKING,
)
ASK: Final = Page(
    path=ASK_PATH,
    title="Answer",
    view=question,
    template="ask.html",
    asks=("list_budget_asks",),
    **_LOOKING,
)
PAGES: Final = (LIST, WAIT, ASK)
ACTIONS: Final[tuple[Action, ...]] = ()
