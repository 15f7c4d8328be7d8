"""The system: what does it run on, does it fare well, and who may come in?"""

from __future__ import annotations

import asyncio
from typing import Final

from flowfabric.api.access import ListAccessTokens
from flowfabric.api.keys import ListWaitpointHmacKids
from flowfabric.api.operation import Scope
from flowfabric.limits import PAGE_MAX
from flowfabric.model.access import AccessToken
from flowfabric.model.suspension import KeyInfo
from flowfabric.model.times import span
from flowfabric.server.exchange import Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.own import system_of
from flowfabric.server.routes.route import Reach
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.doing import system as doing
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.views.system import PATH, System, tokens_of


async def system(service: Service, call: Call) -> System:
    """The server, and for administrators the tokens and keys."""
    told = await system_of(service)
    tokens, keys = await _secrets(service, call)
    facts = (
        ("version", told.version),
        ("store", told.store),
        ("schema", str(told.schema_version)),
        ("event loop late by", span(told.lag_ms)),
        ("requests in flight", str(told.in_flight)),
        ("waits", str(told.waits)),
        ("streams", str(told.streams)),
    )
    now = await now_of(service, call)
    return System(facts=facts, checks=told.checks, tokens=tokens_of(tokens, now), keys=keys)


async def _secrets(
    service: Service, call: Call
) -> tuple[tuple[AccessToken, ...], tuple[KeyInfo, ...]]:
    """Names and ids alone; nothing for callers that are no administrators of all."""
    if Scope.ADMIN not in call.caller.scopes or call.caller.namespaces is not None:
        return (), ()
    tokens, keys = await asyncio.gather(
        ask(service, call, ListAccessTokens(limit=PAGE_MAX)),
        ask(service, call, ListWaitpointHmacKids()),
    )
    return tokens.items, keys


PAGES: Final = (
    Page(
        path=PATH,
        title="System",
        view=system,
        template="system.html",
        scope=Scope.OPERATE,
        reach=Reach.SHARED,
        asks=("list_access_tokens", "list_waitpoint_hmac_kids"),
        parts=("system",),
        topics=("tick:5s",),
        nav=Nav(label="System", icon="system", key="", group=2, order=2),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = (
    Action(
        path=f"{PATH}/doctor",
        title="Check the store",
        act=doing.examine,
        scope=Scope.ADMIN,
        reach=Reach.SHARED,
        asks=("doctor",),
        is_expensive=True,
    ),
    Action(
        path=f"{PATH}/tokens/{{token_id}}/revoke",
        title="Revoke a token",
        act=doing.revoke,
        scope=Scope.ADMIN,
        reach=Reach.NAMED,
        asks=("revoke_access_token",),
    ),
)
