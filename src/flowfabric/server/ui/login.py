"""Signing in and out: the ways to a session, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flowfabric.api.sessions import EndSession, OpenSession
from flowfabric.errors import CrossSiteRequest, Unauthorized
from flowfabric.model.session import Way
from flowfabric.model.suspension import Token
from flowfabric.server.access.grants import grant_for, grants_of
from flowfabric.server.access.origin import comes_from_own_page
from flowfabric.server.access.proxies import named_by_proxy
from flowfabric.server.access.sessions import set_cookie
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.routes.route import Repeat, Route, Size
from flowfabric.server.ui.entering import (
    HOME,
    Entrance,
    entrance,
    former_of,
    signed_in,
    wanted_page,
)
from flowfabric.server.ui.forms import fields_of, redirect
from flowfabric.server.ui.pages import HTML

if TYPE_CHECKING:
    from flowfabric.server.service import Service

_LOGIN: Final = "/ui/login"
_LOCAL: Final = "local"  # the person at the terminal that printed a link
# What a browser has kept of the pages of a session goes with it.
_FORGET: Final = (b"clear-site-data", b'"cache"')


async def show(service: Service, call: Call) -> Answer:
    """The page that asks for a token; with `once`, the way in for the reader of a terminal."""
    wanted = wanted_page(dict(call.query).get("next", HOME))
    once = dict(call.query).get("once")
    if call.method == "GET" and once is None and (known := _person(service, call)) is not None:
        return await signed_in(service, call, known, wanted)
    if once is None or call.method != "GET":
        return entrance(service, call, Entrance(wanted))
    service.rates.require_trials(call.address)
    if not service.once.take(once):
        service.rates.failed(call.address)
        wrong = "This link is not good any more: each is good once, for a minute."
        return entrance(service, call, Entrance(wanted, wrong))
    request = OpenSession(way=Way.LINK.value, subject=_LOCAL, replaces=former_of(service, call))
    return await signed_in(service, call, request, wanted)


async def login(service: Service, call: Call) -> Answer:
    """A session for a token that was pasted."""
    if not comes_from_own_page(call.headers):
        raise CrossSiteRequest("this form was sent from another site")
    form = await fields_of(service, call)
    wanted = wanted_page(form.text("next"))
    service.rates.require_trials(call.address)
    shown = Token(form.text("token"))
    request = OpenSession(way=Way.TOKEN.value, token=shown, replaces=former_of(service, call))
    try:
        return await signed_in(service, call, request, wanted)
    except Unauthorized as error:
        service.rates.failed(call.address)
        service.note_refusal(call, error)
    wrong = "This token opens nothing."
    return entrance(service, call, Entrance(wanted, wrong))


async def logout(service: Service, call: Call) -> Answer:
    """End the session of this browser, on every server."""
    former = former_of(service, call)
    if former is not None and call.caller.session is not None:
        await service.engine.call(EndSession(text=former))
    return redirect(service, _LOGIN, set_cookie(service.settings, call, "", 0), _FORGET)


def _person(service: Service, call: Call) -> OpenSession | None:
    """A session for the person that a proxy has signed in, if that person may do anything."""
    named = named_by_proxy(service.settings, call)
    grants = grants_of(service.settings.oidc_groups)
    if named is None or grant_for(named.groups, grants) is None:
        return None
    known = {each.group for each in grants}
    return OpenSession(
        way=Way.PROXY.value,
        subject=named.name,
        roles=tuple(each for each in dict.fromkeys(named.groups) if each in known),
        replaces=former_of(service, call),
    )


LOGIN_ROUTES: Final = (
    Route(
        method="GET",
        path=_LOGIN,
        title="Sign in",
        handler=show,
        media=HTML,
        own_query={"next": "the page that comes after it", "once": "of a link that is good once"},
        is_open=True,
        is_page=True,
        tag="ui",
    ),
    Route(
        method="POST",
        path=_LOGIN,
        title="Begin a session with an access token",
        handler=login,
        size=Size.SMALL,
        repeat=Repeat.STATE,
        media=HTML,
        errors=(CrossSiteRequest,),
        is_open=True,
        is_page=True,
        tag="ui",
    ),
    Route(
        method="POST",
        path="/ui/logout",
        title="End the session of this browser",
        handler=logout,
        size=Size.SMALL,
        repeat=Repeat.STATE,
        media=HTML,
        errors=(CrossSiteRequest,),
        is_page=True,
        tag="ui",
    ),
)
