"""Waits of suspended executions, and the signals that end them."""

from __future__ import annotations

from typing import Final

from flowfabric.api.operation import Scope
from flowfabric.api.waits import (
    DeliverApprovalSignal,
    DeliverTrustedSignal,
    FindWaitpoint,
    Signal,
)
from flowfabric.errors import InvalidInput, NotFound
from flowfabric.model.record import Record, to_json
from flowfabric.model.suspension import SignalAccepted, SignalDuplicate, WaitpointRow
from flowfabric.server.access.names import name_of
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.routes.asking import answered, ask
from flowfabric.server.routes.forms import body_of
from flowfabric.server.routes.route import Reach, Repeat, Route, Size
from flowfabric.server.routes.rows import get, post
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service
from flowfabric.server.shapes import shape_of

_ID: Final = "/v1/waits/{execution_id}/{waitpoint_key}"
_APPROVED: Final = "approved"
_REJECTED: Final = "rejected"
_UNNAMED: Final = "operator"  # where a request proves no name of its own


class Decision(Record, frozen=True, kw_only=True):
    """A decision, in the caller's own name. `payload`: what the wait asks for; or a `comment`.

    `by`: in the name of somebody else, for tokens that speak for others.
    """

    payload: bytes | None = None
    comment: str | None = None
    by: str | None = None


async def approve(service: Service, call: Call) -> Answer:
    """Approve what an execution waits for."""
    return await _decide(service, call, _APPROVED)


async def reject(service: Service, call: Call) -> Answer:
    """Reject it."""
    return await _decide(service, call, _REJECTED)


async def _decide(service: Service, call: Call, name: str) -> Answer:
    given: Decision = shape_of(Decision).read(await body_of(service, call))
    if given.comment is not None and given.payload is not None:
        raise InvalidInput("comment: or a payload, not both", field="comment")
    payload = given.payload
    if given.comment is not None:
        payload = to_json({"comment": given.comment})
    source = _source(call, given.by, "by")
    waitpoint = await _waitpoint(service, call)
    request = DeliverApprovalSignal(
        execution_id=waitpoint.execution_id,
        waitpoint_id=waitpoint.waitpoint_id,
        signal_name=name,
        idempotency_suffix=source,
        actor=source,
        comment=payload,
    )
    return answered(call, await ask(service, call, request))


def _source(call: Call, named: str | None, field: str) -> str:
    """In whose name it is done: the caller's own, unless its token speaks for others."""
    if call.caller.actor is None:
        return named or _UNNAMED
    return name_of(call.caller, named, field)


async def _waitpoint(service: Service, call: Call) -> WaitpointRow:
    execution_id, key = full_id(call.params["execution_id"]), call.params["waitpoint_key"]
    request = FindWaitpoint(execution_id=execution_id, waitpoint_key=key)
    found = await ask(service, call, request)
    if found is None:
        raise NotFound("waitpoint: the execution has none of this key", entity="waitpoint")
    return found


class TrustedSignal(Record, frozen=True, kw_only=True):
    """A signal of a program of this installation, which needs no token of the waitpoint.

    `source`: in whose name, for tokens that speak for others.
    """

    signal_name: str
    signal_category: str = ""
    source_type: str = ""
    source: str | None = None
    payload: bytes | None = None
    payload_encoding: str = "json"
    correlation_id: str = ""
    idempotency_key: str | None = None
    resume_delay_ms: int = 0


async def signal(service: Service, call: Call) -> Answer:
    """Signal a waitpoint as an operator."""
    given: TrustedSignal = shape_of(TrustedSignal).read(await body_of(service, call))
    source = _source(call, given.source, "source")
    waitpoint = await _waitpoint(service, call)
    request = DeliverTrustedSignal(
        signal=Signal(
            execution_id=waitpoint.execution_id,
            waitpoint_id=waitpoint.waitpoint_id,
            signal_name=given.signal_name,
            signal_category=given.signal_category,
            source_type=given.source_type,
            source_identity=source,
            payload=given.payload,
            payload_encoding=given.payload_encoding,
            correlation_id=given.correlation_id,
            idempotency_key=_key_of(call, given.idempotency_key),
            resume_delay_ms=given.resume_delay_ms,
        )
    )
    return answered(call, await ask(service, call, request))


def _key_of(call: Call, given: str | None) -> str | None:
    """The idempotency key, of the body or of the header."""
    header = call.header(b"idempotency-key")
    if header is not None and given not in (None, header):
        detail = "idempotency_key: the header Idempotency-Key has another one"
        raise InvalidInput(detail, field="idempotency_key")
    return given or header


WAIT_ROUTES: Final = (
    get("/v1/waits", "list_waits", tag="waits"),
    get("/v1/waits/count", "count_waits", tag="waits"),
    get("/v1/approvals", "list_approvals", tag="waits"),
    get(_ID, "show_wait", absent="waitpoint", tag="waits"),
    *(
        Route(
            method="POST",
            path=f"{_ID}/{word}",
            title=title,
            operation="deliver_approval_signal",
            asks=("find_waitpoint", "deliver_approval_signal"),
            scope=Scope.APPROVE,
            reach=Reach.OBJECT,
            handler=handler,
            size=Size.SIGNAL,
            repeat=Repeat.STATE,
            body=Decision,
            reply=SignalAccepted | SignalDuplicate,
            tag="waits",
        )
        for word, title, handler in (
            ("approve", "Approve what an execution waits for", approve),
            ("reject", "Reject what an execution waits for", reject),
        )
    ),
    post(
        f"{_ID}/signal",
        "deliver_trusted_signal",
        title="Signal a waitpoint as an operator",
        handler=signal,
        asks=("find_waitpoint", "deliver_trusted_signal"),
        size=Size.SIGNAL,
        repeat=Repeat.KEY,
        body=TrustedSignal,
        tag="waits",
    ),
    post(
        "/v1/executions/{execution_id}/mailboxes/{mailbox}/messages",
        "send_message",
        size=Size.SIGNAL,
        repeat=Repeat.KEY,
        tag="mailboxes",
    ),
    get("/v1/executions/{execution_id}/mailboxes", "list_mailboxes", tag="mailboxes"),
    get(
        "/v1/executions/{execution_id}/mailboxes/{mailbox}/messages",
        "read_messages",
        tag="mailboxes",
    ),
)
