"""Signed links: the token in them is the credential, and a page asks before anything is done."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final
from urllib.parse import parse_qsl

from flowfabric.api.operation import Scope
from flowfabric.api.waits import (
    DeliverSignal,
    FindWaitpoint,
    ReadWaitpointToken,
    ShowWaitpoint,
    Signal,
)
from flowfabric.errors import (
    CrossSiteRequest,
    InvalidInput,
    InvalidPayload,
    InvalidToken,
    MalformedRequest,
    NotFound,
    PayloadTooLarge,
    UnsupportedMediaType,
    WaitpointClosed,
)
from flowfabric.model.links import Address, address_of, make_link, source_of
from flowfabric.model.record import Record
from flowfabric.model.suspension import (
    SignalAccepted,
    SignalDuplicate,
    WaitpointShown,
    WaitpointState,
)
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.pages import (
    HEADERS,
    Filling,
    Typed,
    asking,
    foreign,
    reads_pages,
    told,
)
from flowfabric.server.routes.asking import answered, ask
from flowfabric.server.routes.forms import body_of
from flowfabric.server.routes.route import Reach, Repeat, Route, Size
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service
from flowfabric.server.shapes import shape_of
from flowfabric.server.ui.views.approvals import decisions_of

_HTML: Final = "text/html; charset=utf-8"
_FORM: Final = b"application/x-www-form-urlencoded"
_NO_STORE: Final = ((b"cache-control", b"no-store"),)
_GOOD_MS: Final = 12 * 3_600_000  # so long a page may be left open
_FIELDS_MAX: Final = 1_200
_OF_LINKS: Final = ("execution_id", "waitpoint_id", "token", "source_identity")


# --- for programs --------------------------------------------------------------------------------


class LinkAsked(Record, frozen=True, kw_only=True):
    """`to`: the only one in whose name the link signals."""

    to: str | None = None


class Link(Record, frozen=True, kw_only=True):
    """A link and its page. Both are credentials."""

    link: str
    url: str
    expires_at: int | None


async def link(service: Service, call: Call) -> Answer:
    """A link of a waitpoint, to hand out."""
    wanted: LinkAsked = shape_of(LinkAsked).read(await body_of(service, call))
    execution_id, key = full_id(call.params["execution_id"]), call.params["waitpoint_key"]
    found = await ask(service, call, FindWaitpoint(execution_id=execution_id, waitpoint_key=key))
    if found is None:
        raise NotFound("waitpoint: the execution has none of this key", entity="waitpoint")
    request = ReadWaitpointToken(
        execution_id=execution_id, waitpoint_id=found.waitpoint_id, recipient=wanted.to
    )
    token = await ask(service, call, request)
    if token is None:
        raise WaitpointClosed(f"waitpoint {key!s:.100} takes no more signals")
    text = make_link(Address(execution_id, found.waitpoint_id, token))
    made = Link(link=text, url=f"{origin_of(service, call)}/w/{text}", expires_at=found.expires_at)
    answer = answered(call, made)
    return Answer(answer.body, status=answer.status, headers=(*answer.headers, *_NO_STORE))


def origin_of(service: Service, call: Call) -> str:
    """How callers reach this server; the name of the request is one that it answers to."""
    if service.settings.public_url is not None:
        return service.settings.public_url.rstrip("/")
    return f"{call.scope.get('scheme', 'http')}://{call.header(b'host') or 'localhost'}"


class LinkSignal(Record, frozen=True, kw_only=True):
    """A signal by a link, which is all that its sender needs. It comes from the link's recipient,
    else from the link itself: a name that a sender gives itself would prove nothing."""

    link: str
    signal_name: str
    payload: bytes | None = None
    payload_encoding: str = "json"
    correlation_id: str = ""
    idempotency_key: str | None = None

    def __repr__(self) -> str:
        return f"LinkSignal({self.signal_name!r})"


async def signal(service: Service, call: Call) -> Answer:
    """Deliver a signal by a link."""
    given: LinkSignal = shape_of(LinkSignal).read(await body_of(service, call))
    key = given.idempotency_key
    header = call.header(b"idempotency-key")
    if header is not None and key not in (None, header):
        detail = "idempotency_key: the header Idempotency-Key has another one"
        raise InvalidInput(detail, field="idempotency_key")
    request = _delivery(
        _address(given.link),
        given.signal_name,
        given.payload,
        key or header,
        encoding=given.payload_encoding,
        correlation_id=given.correlation_id,
    )
    try:
        return answered(call, await ask(service, call, request))
    except InvalidInput as error:
        if error.fields.get("field") not in _OF_LINKS:
            raise
    raise InvalidToken  # out here, so that no traceback carries the link


def _address(text: str) -> Address:
    address = address_of(text)
    if address is None:
        raise InvalidToken
    return address


def _delivery(
    address: Address,
    name: str,
    payload: bytes | None,
    key: str | None,
    *,
    encoding: str = "json",
    correlation_id: str = "",
) -> DeliverSignal:
    kind, identity = source_of(address.token.reveal())
    return DeliverSignal(
        signal=Signal(
            execution_id=address.execution_id,
            waitpoint_id=address.waitpoint_id,
            token=address.token,
            signal_name=name,
            source_type=kind,
            source_identity=identity,
            payload=payload,
            payload_encoding=encoding,
            correlation_id=correlation_id,
            idempotency_key=key,
        )
    )


# --- for people ----------------------------------------------------------------------------------


async def show(service: Service, call: Call) -> Answer:
    """The page that asks. It changes nothing, so that no scanner of mail decides."""
    try:
        address = _address(call.params["link"])
        shown = await _shown(service, call, address)
    except InvalidToken as error:
        if not reads_pages(call.header(b"accept")):
            raise
        return _page(foreign(), status=error.status)
    now = await service.engine.server_time_ms()
    if shown.decided is not None or shown.state is WaitpointState.CLOSED:
        return _page(told(shown, now))
    return _page(asking(shown, now, _proof(address, now)))


async def decide(service: Service, call: Call) -> Answer:
    """What a person chose on the page; a second choice shows the first."""
    address = _address(call.params["link"])
    if call.headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        raise CrossSiteRequest("this form was sent from another site")
    form = await _form(service, call)
    shown = await _shown(service, call, address)
    now = await service.engine.server_time_ms()
    if not _is_proof(address, form.get("proof", ""), now):
        raise CrossSiteRequest("this form is not from its page, or the page is too old")
    if shown.decided is not None:
        return _page(told(shown, now))
    page = Filling(shown, now, _proof(address, now), form)
    if form.get("more"):
        return _page(page.again())
    name = form.get("decision", "")
    if name not in dict(decisions_of(shown.signal_names)):
        raise InvalidInput("decision: is none of those on the page", field="decision")
    if page.is_wrong:
        return _page(page.again(), status=InvalidPayload.status)
    try:
        await ask(service, call, _delivery(address, name, page.payload, _key(address)))
    except WaitpointClosed as error:
        return _page(told(await _shown(service, call, address), now), status=error.status)
    except (InvalidPayload, InvalidInput, PayloadTooLarge) as error:
        return _page(page.again(error.detail), status=error.status)
    return _page(told(await _shown(service, call, address), now))


async def _shown(service: Service, call: Call, address: Address) -> WaitpointShown:
    request = ShowWaitpoint(
        execution_id=address.execution_id,
        waitpoint_id=address.waitpoint_id,
        token=address.token,
    )
    try:
        return await ask(service, call, request)
    except InvalidInput:
        pass
    raise InvalidToken


async def _form(service: Service, call: Call) -> Typed:
    media = call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != _FORM:
        raise UnsupportedMediaType("Content-Type: expected a form", field="Content-Type")
    body = await call.body(service.body_limit(call.row.size))
    try:
        pairs = parse_qsl(body.decode("ascii"), True, True, "utf-8", "strict", _FIELDS_MAX)
    except (ValueError, UnicodeDecodeError):
        raise MalformedRequest("body: is no form", field="body") from None
    return Typed(tuple(pairs))


def _key(address: Address) -> str:
    """One link decides once."""
    return "page:" + hashlib.sha256(address.token.reveal().encode()).hexdigest()[:32]


def _proof(address: Address, at_ms: int) -> str:
    """Shows that a form comes from its page: it is bound to the link and good for some hours."""
    text = f"page {at_ms}".encode()
    digest = hmac.digest(address.token.reveal().encode(), text, "sha256").hex()
    return f"{at_ms}.{digest}"


def _is_proof(address: Address, given: str, now: int) -> bool:
    when, _, _ = given.partition(".")
    if not (when.isascii() and when.isdigit() and len(when) <= 15):
        return False
    is_same = hmac.compare_digest(_proof(address, int(when)).encode(), given.encode())
    return is_same and 0 <= now - int(when) <= _GOOD_MS


def _page(body: bytes, *, status: int = 200) -> Answer:
    return Answer(body, status=status, media=_HTML.encode(), headers=HEADERS)


# --- rows ----------------------------------------------------------------------------------------

LINK_ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/signals",
        title="Deliver a signal by a link, which is its own credential",
        asks=("deliver_signal",),
        handler=signal,
        size=Size.SIGNAL,
        repeat=Repeat.KEY,
        body=LinkSignal,
        reply=SignalAccepted | SignalDuplicate,
        takes_key=True,
        is_open=True,
        tag="waits",
    ),
    Route(
        method="POST",
        path="/v1/waits/{execution_id}/{waitpoint_key}/link",
        title="A link of a waitpoint, to hand out",
        asks=("find_waitpoint", "read_waitpoint_token"),
        scope=Scope.ADMIN,
        reach=Reach.OBJECT,
        handler=link,
        size=Size.SMALL,
        repeat=Repeat.STATE,
        body=LinkAsked,
        reply=Link,
        errors=(NotFound, WaitpointClosed),
        tag="waits",
    ),
    Route(
        method="GET",
        path="/w/{link}",
        title="The page of a link; it changes nothing",
        asks=("show_waitpoint",),
        handler=show,
        media=_HTML,
        other_statuses=(401,),  # to a browser
        is_open=True,
        tag="waits",
    ),
    Route(
        method="POST",
        path="/w/{link}",
        title="Decide by the form of this page; a second decision shows the first",
        asks=("show_waitpoint", "deliver_signal"),
        handler=decide,
        size=Size.SIGNAL,
        repeat=Repeat.STATE,
        media=_HTML,
        other_statuses=(409, 413, 422),
        errors=(CrossSiteRequest, WaitpointClosed),
        is_open=True,
        tag="waits",
    ),
)
