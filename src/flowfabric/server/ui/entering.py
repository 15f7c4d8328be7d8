"""The page to sign in on, and the session that comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flowfabric.api.sessions import OpenSession
from flowfabric.errors import Unauthorized
from flowfabric.model.record import Record, replace
from flowfabric.model.suspension import Token
from flowfabric.server.access.sessions import set_cookie, text_of
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.ui.forms import is_local, redirect

if TYPE_CHECKING:
    from flowfabric.server.service import Service

HOME: Final = "/ui"


class Entrance(Record, frozen=True):
    """The page to sign in on. `wanted`: the page that comes after it; `wrong`: what was wrong."""

    wanted: str
    wrong: str | None = None
    has_oidc: bool = False


def entrance(service: Service, call: Call, view: Entrance) -> Answer:
    """The page; with something wrong on it, as a refusal."""
    from flowfabric.server.ui.rendering import alone  # a program without a server needs none

    view = replace(view, has_oidc=service.provider is not None)
    status = 200 if view.wrong is None else Unauthorized.status
    return alone(service, call, "login.html", view, title="Sign in", status=status)


def wanted_page(text: str) -> str:
    """The page that was asked for, if it is one of ours; else the first one."""
    return text if is_local(text) else HOME


def former_of(service: Service, call: Call) -> Token | None:
    """The session that the browser has, if any: it is never used for another."""
    text = text_of(service.settings, call)
    return None if text is None else Token(text)


async def signed_in(service: Service, call: Call, request: OpenSession, wanted: str) -> Answer:
    """Begin a session, and show the page that was asked for."""
    settings = service.settings
    idle_ms, life_ms = settings.session_idle_ms, settings.session_max_ms
    made = await service.engine.call(replace(request, idle_ms=idle_ms, life_ms=life_ms))
    life_ms = made.session.ends_at - made.session.created_at
    cookie = set_cookie(settings, call, made.text.reveal(), life_ms)
    return redirect(service, wanted, cookie)
