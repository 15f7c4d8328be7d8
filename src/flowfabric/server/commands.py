"""Many operations in one request: each is decided in its order, and has an answer of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from flowfabric import limits
from flowfabric.api import wire
from flowfabric.api.operation import OPERATIONS, Kind, Operation, Request, Scope
from flowfabric.errors import Draining, FlowFabricError, InvalidInput, NotRemote
from flowfabric.model.record import Raw
from flowfabric.server.access.border import Passed
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.patience import Stopping
from flowfabric.server.plain import plain, to_body
from flowfabric.server.service import Service
from flowfabric.server.shapes import Shape, misfit, placed, shape_of

HOME_HEADER = b"x-flowfabric-namespace"  # of calls that name none


class _Items(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Raw]


class _Named(msgspec.Struct):
    type: str


async def commands(service: Service, call: Call) -> Answer:
    """Up to a thousand operations; a wait travels alone."""
    body = await call.body(service.settings.batch_body_max)
    is_packed = call.headers.get(b"content-type", b"").startswith(wire.CONTENT_TYPE.encode())
    if not is_packed:  # our own client asks for everything here, with whatever token
        call.caller.require(Scope.WORKER, Scope.SUBMIT)
    read = _packed(body) if is_packed else _listed(body)
    if len(read) > limits.COMMANDS_MAX:
        raise InvalidInput(f"items: at most {limits.COMMANDS_MAX}", field="items")
    answers = await performed(service, call, read)
    if is_packed:
        return Answer(wire.encode_answers(answers), media=wire.CONTENT_TYPE.encode())
    return Answer(to_body({"items": [plain(each) for each in answers]}))


async def performed(
    service: Service, call: Call, requests: Sequence[Request[Any] | FlowFabricError]
) -> list[Any]:
    """The reply or the error of each; those that cannot be read have theirs already."""
    answers: list[Any] = [None] * len(requests)
    asked: list[tuple[int, Passed]] = []
    for index, request in enumerate(requests):
        try:
            if isinstance(request, FlowFabricError):
                raise request
            asked.append((index, await _allowed(service, call, request)))
        except FlowFabricError as error:
            answers[index] = error
            if isinstance(request, Request):
                service.note_refusal(call, error, wire.operation_of(request).name)
    if len(asked) > 1 and any(_waits(passed.request) for _, passed in asked):
        raise InvalidInput("items: an operation that waits travels alone", field="items")
    # Those of one namespace after another share a commit, which is nearly always all of them.
    for home, several in groupby(asked, key=lambda each: each[1].home):
        engine, group = service.at_home_in(home), list(several)
        if len(asked) == 1:
            replies = [await _one(service, call, engine.call, group[0][1].request)]
        else:
            replies = await engine.call_many([passed.request for _, passed in group])
        for (index, passed), reply in zip(group, replies, strict=True):
            answers[index] = await _seen(service, passed, reply)
    return answers


async def _allowed(service: Service, call: Call, request: Request[Any]) -> Passed:
    """The request as this caller may ask for it."""
    operation = wire.operation_of(request)
    service.require_room(request)
    if operation.is_local:
        raise NotRemote(f"{operation.name} works beside the store only", operation=operation.name)
    call.caller.require(operation.scope, *operation.also)
    return await service.border.passed(call.caller, operation, request, named_home(call))


async def _seen(service: Service, passed: Passed, reply: Any) -> Any:
    """A reply or an error as the caller may see it."""
    try:
        if isinstance(reply, FlowFabricError):
            return passed.told(reply)
        return await service.border.shown(passed, reply)
    except FlowFabricError as error:
        return error


def named_home(call: Call) -> str | None:
    """The namespace that a caller names for what names none."""
    return call.header(HOME_HEADER)


def _waits(request: Request[Any]) -> bool:
    return wire.operation_of(request).kind is Kind.WAIT and getattr(request, "wait_ms", 0) != 0


async def _one(
    service: Service,
    call: Call,
    ask: Callable[[Request[Any]], Awaitable[Any]],
    request: Request[Any],
) -> Any:
    try:
        if not _waits(request):
            return await ask(request)
        most = service.settings.wait_max_ms
        wait_ms = getattr(request, "wait_ms", None)
        if wait_ms is None or wait_ms > most:
            raise InvalidInput(f"wait_ms: at most {most}; ask again", field="wait_ms")
        with service.waiting(call.caller):
            return await service.patience.while_there(call, ask(request))
    except Stopping:
        return Draining("this server stops; another one answers", retry_after_ms=0)
    except FlowFabricError as error:
        return error


# --- bodies --------------------------------------------------------------------------------------


def _packed(body: bytes) -> list[Request[Any] | FlowFabricError]:
    """What our own client sends."""
    read: list[Request[Any] | FlowFabricError] = []
    for name, sent in wire.decode_requests(body):
        try:
            read.append(wire.decode_request(name, sent))
        except FlowFabricError as error:
            read.append(error)
    return read


_ITEMS = Shape(_Items, lambda items: items.items, ("items",))


def _listed(body: bytes) -> list[Request[Any] | FlowFabricError]:
    """The same as JSON: each item tells its operation as `type`."""
    read: list[Request[Any] | FlowFabricError] = []
    for index, item in enumerate(_ITEMS.read(body)):
        try:
            operation = _operation_of(item)
            read.append(shape_of(operation.request, tag=operation.name).read(item))
        except FlowFabricError as error:
            read.append(placed(error, f"/items/{index}"))
    return read


def _operation_of(item: Raw) -> Operation:
    try:
        name = msgspec.json.decode(item, type=_Named).type
    except (msgspec.MsgspecError, RecursionError) as error:
        raise misfit(error) from None
    found = OPERATIONS.get(name)
    if found is None:
        raise InvalidInput(f"type: there is no operation {name!s:.80}", field="type")
    return found
