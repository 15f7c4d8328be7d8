"""The handler of most routes: it reads a request, asks for its operation, and writes the reply."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from flowfabric import limits
from flowfabric.api import wire
from flowfabric.api.operation import Kind, Request
from flowfabric.api.page import Page
from flowfabric.errors import FlowFabricError, InvalidInput, NotFound
from flowfabric.model.record import replace
from flowfabric.server.access.border import Passed
from flowfabric.server.commands import named_home
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.patience import Stopping
from flowfabric.server.plain import plain, to_body
from flowfabric.server.routes.forms import etag, form_of
from flowfabric.server.routes.values import path_id
from flowfabric.server.service import Service

R = TypeVar("R")

Headers = tuple[tuple[bytes, bytes], ...]
_NO_CONTENT: Final = 204
_NOT_MODIFIED: Final = 304


async def asked(service: Service, call: Call) -> Answer:
    """One operation: its request from the path, the query and the body, its reply as it is."""
    form = form_of(call.row)
    request = await form.read(service, call)
    while True:
        reply = await ask(service, call, request)
        if isinstance(reply, Page):
            reply = form.sealed(reply, request, call)
        answer = answered(call, reply)
        smaller = _smaller(request, reply, len(answer.body))
        if smaller is None:
            return answer
        request = smaller


def _smaller(request: Request[Any], reply: Any, size: int) -> Request[Any] | None:
    """The request for fewer items, where the answer is too large: the rest has a cursor."""
    count = len(getattr(reply, "items", ()))
    if size <= limits.ANSWER_BYTES_MAX or count < 2 or not hasattr(request, "limit"):
        return None
    fitting = count * limits.ANSWER_BYTES_MAX // size
    return replace(request, limit=max(1, min(count - 1, fitting)))


async def ask(service: Service, call: Call, request: Request[R]) -> R:
    """The reply of the engine, asked in the caller's name and as far as the caller may see."""
    service.require_room(request)
    reply: R = await _asked(service, call, request)
    return reply


async def _asked(service: Service, call: Call, request: Request[Any]) -> Any:
    operation = wire.operation_of(request)
    passed = await passed_by(service, call, request)
    engine, wanted = service.at_home_in(passed.home), passed.request
    try:
        if operation.kind is Kind.WAIT and getattr(wanted, "wait_ms", 0) != 0:
            try:
                return await _shown(
                    service, passed, await patient(service, call, wanted, engine.call(wanted))
                )
            except Stopping:
                wanted = replace(wanted, wait_ms=0)  # what there is now
        return await _shown(service, passed, await engine.call(wanted))
    except FlowFabricError as error:
        raise passed.told(error) from None


async def passed_by(service: Service, call: Call, request: Request[Any]) -> Passed:
    """A request as this caller may ask it."""
    operation = wire.operation_of(request)
    return await service.border.passed(call.caller, operation, request, named_home(call))


async def _shown(service: Service, passed: Passed, reply: Any) -> Any:
    return await service.border.shown(passed, reply)


async def patient(service: Service, call: Call, request: Request[Any], work: Awaitable[R]) -> R:
    """The result of work that waits, as long as the client is there and the server goes on."""
    wait_ms = getattr(request, "wait_ms", None)
    most = service.settings.wait_max_ms
    if wait_ms is None or wait_ms > most:
        _close(work)
        raise InvalidInput(f"wait: at most {most}ms; ask again", field="wait")
    with service.waiting(call.caller):
        return await service.patience.while_there(call, work)


def _close(work: Any) -> None:
    close = getattr(work, "close", None)
    if close is not None:
        close()


# --- answers -------------------------------------------------------------------------------------


def answered(call: Call, reply: Any) -> Answer:
    """A reply as the answer of the route."""
    route = call.row
    if reply is None:
        if route.absent is not None:
            raise NotFound(f"{route.absent}: there is none of this id", entity=route.absent)
        return Answer(status=_NO_CONTENT)
    status = route.statuses.get(type(reply).__name__, 200)
    headers: Headers = ()
    if status in (201, 202) and (place := place_of(reply)) is not None:
        headers = ((b"location", place.encode()),)
    if route.revision is not None:
        headers = (*headers, (b"etag", etag(getattr(reply, route.revision))))
    answer = Answer(to_body(shown(reply)), status=status, headers=headers)
    return unless_known(call, answer) if route.is_whole else answer


def shown(reply: Any) -> Any:
    """A reply with a name for what is no object by itself, so that more can join it later."""
    if isinstance(reply, list | tuple) and not hasattr(reply, "__struct_fields__"):
        return {"items": reply}
    return {"value": reply} if isinstance(reply, str | int) else reply


def unless_known(call: Call, answer: Answer) -> Answer:
    """Nothing but the ETag where the client has this very answer already."""
    known = call.header(b"if-none-match")
    if known is None or call.method not in ("GET", "HEAD") or answer.status != 200:
        return answer
    mine = next((value for name, value in answer.headers if name == b"etag"), None)
    if mine is None:
        return answer
    told = {each.strip().removeprefix("W/") for each in known.split(",")}
    if "*" in told or mine.decode().removeprefix("W/") in told:
        return Answer(status=_NOT_MODIFIED, headers=answer.headers)
    return answer


def content_tag(body: bytes) -> tuple[bytes, bytes]:
    """The ETag of a record without a revision: it says whether what is shown is the same."""
    digest = hashlib.blake2b(body, digest_size=12).hexdigest()
    return (b"etag", f'W/"{digest}"'.encode())


def place_of(reply: Any) -> str | None:
    """Where the thing that a reply is about can be read."""
    if (execution_id := getattr(reply, "execution_id", None)) is not None:
        return f"/v1/executions/{path_id(execution_id)}"
    if (operation_id := getattr(reply, "operation_id", None)) is not None:
        return f"/v1/operations/{operation_id}"
    if (flow_id := getattr(reply, "flow_id", None)) is not None:
        return f"/v1/flows/{flow_id}"
    return None


def with_fields(reply: Any, **more: Any) -> dict[str, Any]:
    """A reply with some fields beside its own."""
    body: dict[str, Any] = plain(reply)
    return {**body, **{name: plain(value) for name, value in more.items()}}
