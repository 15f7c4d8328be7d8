"""Signing in and out: the ways to a session, and its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, quote

from flowfabric.api.sessions import EndSession, OpenSession
from flowfabric.errors import (
    CrossSiteRequest,
    MalformedRequest,
    Unauthorized,
    UnsupportedMediaType,
)
from flowfabric.model.record import replace
from flowfabric.model.session import Way
from flowfabric.model.suspension import Token
from flowfabric.server.access.origin import comes_from_own_page
from flowfabric.server.access.sessions import FORM, set_cookie, text_of
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.pages import HEADERS, sign_in
from flowfabric.server.routes.route import Repeat, Route, Size
from flowfabric.server.service import Service

_HTML: Final = "text/html; charset=utf-8"
_HOME: Final = "/ui"
_LOGIN: Final = "/ui/login"
_FIELDS_MAX: Final = 10
_PATH_MAX: Final = 2_000
_LOCAL: Final = "local"  # the person at the terminal that printed a link
# What a browser has kept of the pages of a session goes with it.
_FORGET: Final = ((b"clear-site-data", b'"cache"'), (b"cache-control", b"no-store"))


def local_path(text: str) -> str:
    """An address if it is a path of this server, else that of the first page.

    >>> local_path("/ui/runs?state=failed"), local_path("//evil.example")
    ('/ui/runs?state=failed', '/ui')
    """
    is_path = text.startswith("/") and text[1:2] not in ("/", "\\")
    is_plain = "\\" not in text and text.isascii() and text.isprintable() and " " not in text
    return text if is_path and is_plain and len(text) <= _PATH_MAX else _HOME


async def show(service: Service, call: Call) -> Answer:
    """The page that asks for a token; with `once`, the way in for the reader of a terminal."""
    wanted = local_path(dict(call.query).get("next", _HOME))
    once = dict(call.query).get("once")
    if once is None or call.method != "GET":
        return _page(sign_in(wanted))
    service.rates.require_trials(call.address)
    if not service.once.take(once):
        service.rates.failed(call.address)
        wrong = "This link is not good any more: each is good once, for a minute."
        return _page(sign_in(wanted, wrong), Unauthorized.status)
    request = OpenSession(way=Way.LINK.value, subject=_LOCAL, replaces=_former(service, call))
    return await _signed_in(service, call, request, wanted)


async def login(service: Service, call: Call) -> Answer:
    """A session for a token that was pasted."""
    if not comes_from_own_page(call.headers):
        raise CrossSiteRequest("this form was sent from another site")
    form = await _form(service, call)
    wanted = local_path(form.get("next", _HOME))
    service.rates.require_trials(call.address)
    shown = Token(form.get("token", "").strip())
    request = OpenSession(way=Way.TOKEN.value, token=shown, replaces=_former(service, call))
    try:
        return await _signed_in(service, call, request, wanted)
    except Unauthorized:
        service.rates.failed(call.address)
    return _page(sign_in(wanted, "This token opens nothing."), Unauthorized.status)


async def _signed_in(service: Service, call: Call, request: OpenSession, wanted: str) -> Answer:
    settings = service.settings
    idle_ms, life_ms = settings.session_idle_ms, settings.session_max_ms
    made = await service.engine.call(replace(request, idle_ms=idle_ms, life_ms=life_ms))
    life_ms = made.session.ends_at - made.session.created_at
    cookie = set_cookie(settings, call, made.text.reveal(), life_ms)
    return away(wanted, cookie)


async def logout(service: Service, call: Call) -> Answer:
    """End the session of this browser, on every server."""
    if (former := _former(service, call)) is not None:
        await service.engine.call(EndSession(text=former))
    return away(_LOGIN, set_cookie(service.settings, call, "", 0), *_FORGET)


def _former(service: Service, call: Call) -> Token | None:
    """The session that the browser has, if any: it is never used for another."""
    text = text_of(service.settings, call)
    return None if text is None else Token(text)


async def _form(service: Service, call: Call) -> Mapping[str, str]:
    if call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != FORM:
        raise UnsupportedMediaType("Content-Type: expected a form", field="Content-Type")
    body = await call.body(service.body_limit(call.row.size))
    try:
        return dict(parse_qsl(body.decode("ascii"), True, True, "utf-8", "strict", _FIELDS_MAX))
    except (ValueError, UnicodeDecodeError):
        pass
    raise MalformedRequest("body: is no form", field="body")  # out here: no traceback carries it


def away(to: str, *headers: tuple[bytes, bytes]) -> Answer:
    """Another page instead of this one."""
    place = (b"location", quote(to, safe="/?&=%:;,+~.-_#@!$'()*").encode())
    return Answer(status=303, media=b"text/plain", headers=(place, *headers))


def _page(body: bytes, status: int = 200) -> Answer:
    return Answer(body, status=status, media=_HTML.encode(), headers=HEADERS)


LOGIN_ROUTES: Final = (
    Route(
        method="GET",
        path=_LOGIN,
        title="Sign in",
        handler=show,
        media=_HTML,
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
        media=_HTML,
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
        media=_HTML,
        errors=(CrossSiteRequest,),
        is_page=True,
        tag="ui",
    ),
)
