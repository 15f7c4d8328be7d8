"""Signing in by an identity provider: away to it, and back.

A login in progress is a cookie with random text, from which all that must not be guessed follows:
the state that comes back in the address, the nonce in the ID token, and the verifier of the code.
So no server keeps anything, and any of several can finish what another one has begun.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from flowfabric.api.sessions import OpenSession
from flowfabric.errors import CrossSiteRequest, FlowFabricError, MissingScope, NotFound
from flowfabric.ids import new_secret_bytes
from flowfabric.model.access import Scope
from flowfabric.model.session import Way
from flowfabric.server.access.grants import grant_for, grants_of
from flowfabric.server.access.sessions import cookie_header, cookie_of, is_secure
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.oidc.client import CALLBACK
from flowfabric.server.oidc.provider import NoLogin, Person, Provider
from flowfabric.server.routes.route import Route
from flowfabric.server.ui.entering import (
    Entrance,
    entrance,
    former_of,
    signed_in,
    wanted_page,
)
from flowfabric.server.ui.pages import HTML

if TYPE_CHECKING:
    from flowfabric.server.service import Service

_LOGGER: Final = logging.getLogger("flowfabric.server")
_COOKIE: Final = "ff-login"
_LIFE_S: Final = 600
_SECRET_CHARS: Final = 64
_CODE_CHARS: Final = 4_096
_REFUSED: Final = "The identity provider did not let you in."
_FAILED: Final = "The identity provider could not be asked; the log of the server says more."


async def leave(service: Service, call: Call) -> Answer:
    """To the provider."""
    provider = _provider(service)
    wanted = wanted_page(dict(call.query).get("next", ""))
    secret = new_secret_bytes(_SECRET_CHARS // 2).hex()
    verifier = _derived(secret, "verifier")
    digest = hashlib.sha256(verifier.encode()).digest()
    try:
        address = await provider.address(
            state=_derived(secret, "state"),
            nonce=_derived(secret, "nonce"),
            challenge=base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii"),
        )
    except NoLogin as error:
        return _failed(service, call, wanted, error)
    kept = _kept(service, call, f"{secret}.{quote(wanted, safe='')}", _LIFE_S)
    told = ((b"location", address.encode()), (b"cache-control", b"no-store"), kept)
    return Answer(status=303, media=b"text/plain", headers=told)


async def arrive(service: Service, call: Call) -> Answer:
    """Back from the provider, with a code or without one."""
    provider, query = _provider(service), dict(call.query)
    if call.method != "GET":
        return entrance(service, call, Entrance(wanted_page("")))
    service.rates.require_trials(call.address)
    text = cookie_of(call, _cookie_name(service, call)) or ""
    secret, _, place = text.partition(".")
    wanted = wanted_page(unquote(place))
    expected = _derived(secret, "state")
    state = query.get("state", "").encode("utf-8", "replace")
    if len(secret) != _SECRET_CHARS or not hmac.compare_digest(state, expected.encode()):
        raise _refused(service, call, "this login was not begun in this browser, or is too old")
    code = query.get("code", "")
    if not 0 < len(code) <= _CODE_CHARS or not code.isprintable():
        service.rates.failed(call.address)
        return _over(service, call, entrance(service, call, Entrance(wanted, _REFUSED)))
    try:
        person = await provider.person(
            code=code,
            verifier=_derived(secret, "verifier"),
            nonce=_derived(secret, "nonce"),
            now_s=await service.engine.server_time_ms() / 1_000,
        )
    except NoLogin as error:
        service.rates.failed(call.address)
        return _over(service, call, _failed(service, call, wanted, error))
    return _over(service, call, await _entered(service, call, person, wanted))


async def _entered(service: Service, call: Call, person: Person, wanted: str) -> Answer:
    grants = grants_of(service.settings.oidc_groups)
    if grant_for(person.groups, grants) is None:
        raise MissingScope("none of your groups may use this server", scope=Scope.READ.value)
    named = {each.group for each in grants}
    request = OpenSession(
        way=Way.OIDC.value,
        subject=person.name,
        roles=tuple(each for each in dict.fromkeys(person.groups) if each in named),
        replaces=former_of(service, call),
    )
    return await signed_in(service, call, request, wanted)


def _failed(service: Service, call: Call, wanted: str, error: NoLogin) -> Answer:
    """The reason is for the log of the server alone; its words are ours."""
    _LOGGER.warning("request %s: the identity provider: %s", call.request_id, error)
    return entrance(service, call, Entrance(wanted, _FAILED))


def _refused(service: Service, call: Call, detail: str) -> FlowFabricError:
    service.rates.failed(call.address)
    return CrossSiteRequest(detail)


def _provider(service: Service) -> Provider:
    if service.provider is None:
        raise NotFound("this server has no identity provider: its setting `oidc_issuer` is none")
    return service.provider


def _derived(secret: str, purpose: str) -> str:
    key = secret.encode("latin-1", "replace")
    return hmac.digest(key, f"flowfabric login {purpose}".encode(), "sha256").hex()


def _cookie_name(service: Service, call: Call) -> str:
    prefix = "__Host-" if is_secure(service.settings, call) else ""
    return prefix + _COOKIE


def _kept(service: Service, call: Call, text: str, life_s: int) -> tuple[bytes, bytes]:
    name, is_tls = _cookie_name(service, call), is_secure(service.settings, call)
    return cookie_header(name, text, life_s, is_secure=is_tls)


def _over(service: Service, call: Call, answer: Answer) -> Answer:
    """The login is no longer in progress."""
    answer.headers = (_kept(service, call, "", 0), *answer.headers)
    return answer


OIDC_ROUTES: Final = (
    Route(
        method="GET",
        path="/ui/login/oidc",
        title="Sign in by the identity provider",
        handler=leave,
        media=HTML,
        own_query={"next": "the page that comes after it"},
        errors=(NotFound,),
        is_open=True,
        is_page=True,
        tag="ui",
    ),
    Route(
        method="GET",
        path=CALLBACK,
        title="Back from the identity provider",
        handler=arrive,
        media=HTML,
        own_query={"code": "of this login", "state": "that it was begun with"},
        errors=(NotFound, CrossSiteRequest, MissingScope),
        is_open=True,
        is_page=True,
        tag="ui",
    ),
)
