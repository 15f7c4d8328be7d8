"""Signing in and out: the ways to a session, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flowfabric.api.sessions import EndSession, OpenSession
from flowfabric.errors import CrossSiteRequest, Unauthorized
from flowfabric.model.record import Record, replace
from flowfabric.model.session import Way
from flowfabric.model.suspension import Token
from flowfabric.server.access.origin import comes_from_own_page
from flowfabric.server.access.sessions import set_cookie, text_of
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.routes.route import Repeat, Route, Size
from flowfabric.server.ui.forms import fields_of, is_local, redirect
from flowfabric.server.ui.pages import HTML

if TYPE_CHECKING:
    from flowfabric.server.service import Service

_HOME: Final = "/ui"
_LOGIN: Final = "/ui/login"
_LOCAL: Final = "local"  # the person at the terminal that printed a link
# What a browser has kept of the pages of a session goes with it.
_FORGET: Final = (b"clear-site-data", b'"cache"')


class Entrance(Record, frozen=True, kw_only=True):
    """The page to sign in on. `wanted`: the page that comes after it."""

    wanted: str
    wrong: str | None = None


def wanted_page(text: str) -> str:
    """The page that was asked for, if it is one of ours; else the first one."""
    return text if is_local(text) else _HOME


async def show(service: Service, call: Call) -> Answer:
    """The page that asks for a token; with `once`, the way in for the reader of a terminal."""
    wanted = wanted_page(dict(call.query).get("next", _HOME))
    once = dict(call.query).get("once")
    if once is None or call.method != "GET":
        return _page(service, call, Entrance(wanted=wanted))
    service.rates.require_trials(call.address)
    if not service.once.take(once):
        service.rates.failed(call.address)
        wrong = "This link is not good any more: each is good once, for a minute."
        return _page(service, call, Entrance(wanted=wanted, wrong=wrong))
    request = OpenSession(way=Way.LINK.value, subject=_LOCAL, replaces=_former(service, call))
    return await _signed_in(service, call, request, wanted)


async def login(service: Service, call: Call) -> Answer:
    """A session for a token that was pasted."""
    if not comes_from_own_page(call.headers):
        raise CrossSiteRequest("this form was sent from another site")
    form = await fields_of(service, call)
    wanted = wanted_page(form.text("next"))
    service.rates.require_trials(call.address)
    shown = Token(form.text("token"))
    request = OpenSession(way=Way.TOKEN.value, token=shown, replaces=_former(service, call))
    try:
        return await _signed_in(service, call, request, wanted)
    except Unauthorized as error:
        service.rates.failed(call.address)
        service.note_refusal(call, error)
    wrong = "This token opens nothing."
    return _page(service, call, Entrance(wanted=wanted, wrong=wrong))


async def _signed_in(service: Service, call: Call, request: OpenSession, wanted: str) -> Answer:
    settings = service.settings
    idle_ms, life_ms = settings.session_idle_ms, settings.session_max_ms
    made = await service.engine.call(replace(request, idle_ms=idle_ms, life_ms=life_ms))
    life_ms = made.session.ends_at - made.session.created_at
    cookie = set_cookie(settings, call, made.text.reveal(), life_ms)
    return redirect(service, wanted, cookie)


async def logout(service: Service, call: Call) -> Answer:
    """End the session of this browser, on every server."""
    former = _former(service, call)
    if former is not None and call.caller.session is not None:
        await service.engine.call(EndSession(text=former))
    return redirect(service, _LOGIN, set_cookie(service.settings, call, "", 0), _FORGET)


def _former(service: Service, call: Call) -> Token | None:
    """The session that the browser has, if any: it is never used for another."""
    text = text_of(service.settings, call)
    return None if text is None else Token(text)


def _page(service: Service, call: Call, view: Entrance) -> Answer:
    from flowfabric.server.ui.rendering import alone  # a program without a server needs none

    status = 200 if view.wrong is None else Unauthorized.status
    return alone(service, call, "login.html", view, title="Sign in", status=status)


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
