"""What workers ask for in any language, and what operators ask of workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from flowfabric.api import wire
from flowfabric.api.admin import ServerTimeMs
from flowfabric.api.leases import Claim, GiveBackClaim
from flowfabric.api.operation import Request, Scope
from flowfabric.api.workers import HeartbeatWorker, RegisterWorker, WaitForStops
from flowfabric.errors import ClaimIdReused, FlowFabricError, InvalidCapabilities, InvalidInput
from flowfabric.ids import new_secret_id
from flowfabric.model.record import Record, replace
from flowfabric.model.results import Claimed, Refreshed, Registered
from flowfabric.model.worker import HeldLease, Stop, StopsHeard
from flowfabric.server.commands import named_home
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.patience import Stopping
from flowfabric.server.plain import to_body
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.forms import body_of
from flowfabric.server.routes.route import Reach, Repeat, Route, Size
from flowfabric.server.routes.rows import get, post, row
from flowfabric.server.service import Service
from flowfabric.server.shapes import shape_of

_WORKER: Final = "/v1/workers/{worker_instance_id}"
_WAIT_MS: Final = 20_000


class Enrolled(Record, frozen=True, kw_only=True):
    """The entry of a worker, the clock that leases go by, and the bounds of what it may ask for."""

    worker: Registered | Refreshed
    server_time_ms: int
    limits: dict[str, int]


async def register(service: Service, call: Call) -> Answer:
    """Enter a worker, and tell it what it needs to know."""
    request: RegisterWorker = shape_of(RegisterWorker).read(await body_of(service, call))
    entered = await ask(service, call, request)
    now = await ask(service, call, ServerTimeMs())
    told = Enrolled(worker=entered, server_time_ms=now, limits=service.limits())
    return Answer(to_body(told))


class ClaimAsked(Claim, frozen=True, kw_only=True):
    """As `claim`, and what the worker holds: `limit: 0` waits for stops only."""

    wait_ms: int = _WAIT_MS
    held: Sequence[HeldLease] = ()


class ClaimAnswer(Record, frozen=True, kw_only=True):
    """New leases, lost ones, and whether the worker should end (`drain`) or ask another server
    (`reconnect`)."""

    items: list[Claimed]
    stop: tuple[Stop, ...]
    drain: bool
    reconnect: bool
    server_time_ms: int


async def claim(service: Service, call: Call) -> Answer:
    """Wait for work or for a stop, whichever comes first; the worker counts as alive meanwhile."""
    asked: ClaimAsked = shape_of(ClaimAsked).read(await body_of(service, call))
    if not 0 <= asked.wait_ms <= service.settings.wait_max_ms:
        detail = f"wait_ms: expected 0 to {service.settings.wait_max_ms}"
        raise InvalidInput(detail, field="wait_ms")
    request = Claim(**{name: getattr(asked, name) for name in Claim.__struct_fields__})
    if request.claim_id is None:
        request = replace(request, claim_id=new_secret_id())
    service.require_room(request)
    stops = WaitForStops(
        worker_instance_id=asked.worker_instance_id,
        held=asked.held,
        namespace=asked.namespace or next(iter(asked.namespaces or ()), None),
        wait_ms=asked.wait_ms,
    )
    alive = await ask(
        service,
        call,
        HeartbeatWorker(
            worker_instance_id=stops.worker_instance_id,
            namespace=stops.namespace,
            busy=len(asked.held),
        ),
    )
    is_draining = isinstance(alive, Refreshed) and alive.is_draining
    if is_draining and request.limit:  # it has not heard: it would not ask for work
        stops = replace(stops, wait_ms=0)
    with service.waiting(call.caller):
        try:
            first = _first(service, call, request, stops, is_draining=is_draining)
            items, heard = await service.patience.while_there(call, first)
            reconnect = False
        except Stopping:
            items, heard, reconnect = [], None, True
    return Answer(
        to_body(
            ClaimAnswer(
                items=items,
                stop=() if heard is None else heard.stops,
                drain=is_draining or (heard is not None and heard.is_draining),
                reconnect=reconnect,
                server_time_ms=await _now(service, call, is_exact=bool(items)),
            )
        )
    )


async def _now(service: Service, call: Call, *, is_exact: bool) -> int:
    """The store's clock. Leases are counted from it; workers without any ask all the time."""
    return await (ask(service, call, ServerTimeMs()) if is_exact else service.time_ms())


async def _first(
    service: Service, call: Call, request: Claim, stops: WaitForStops, *, is_draining: bool
) -> tuple[list[Claimed], StopsHeard | None]:
    """Both waits, until one of them has something to tell."""
    claims = is_draining is False and request.limit != 0
    waits = [asyncio.ensure_future(_unwaited(service, call, stops))]
    if claims:
        waits.append(asyncio.ensure_future(_unwaited(service, call, request)))
    try:
        until = asyncio.FIRST_COMPLETED if request.wait_ms else asyncio.ALL_COMPLETED
        await asyncio.wait(waits, return_when=until)
    except asyncio.CancelledError:
        await _ended(waits)
        if claims:  # it may have leased before it was cancelled
            nobody = GiveBackClaim(
                worker_instance_id=request.worker_instance_id, claim_id=request.claim_id or ""
            )
            await _unwaited(service, call, nobody)
        raise
    done = await _ended(waits)
    told: list[Any] = [None if isinstance(each, asyncio.CancelledError) else each for each in done]
    for each in told:
        if isinstance(each, BaseException):
            raise each
    return (told[1] or []) if claims else [], told[0]


async def _ended(waits: Sequence[asyncio.Task[Any]]) -> list[Any]:
    """How they ended; those that still wait are cancelled. A claim gives back what it gets then."""
    for each in waits:
        each.cancel()
    return await asyncio.gather(*waits, return_exceptions=True)


async def _unwaited(service: Service, call: Call, request: Request[Any]) -> Any:
    """The reply of the engine, whose wait is a part of the one that is counted."""
    operation = wire.operation_of(request)
    passed = await service.border.passed(call.caller, operation, request, named_home(call))
    try:
        return await service.at_home_in(passed.home).call(passed.request)
    except FlowFabricError as error:
        raise passed.told(error) from None


WORKER_ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/workers/register",
        title="Say that a worker is there, and what it can do",
        asks=("register_worker", "server_time_ms"),
        scope=Scope.WORKER,
        reach=Reach.NAMED,
        handler=register,
        size=Size.SMALL,
        repeat=Repeat.STATE,
        body=RegisterWorker,
        reply=Enrolled,
        errors=(InvalidCapabilities,),
        tag="workers",
    ),
    Route(
        method="POST",
        path="/v1/workers/claim",
        title="Wait for work, or for the loss of a lease",
        asks=("claim", "wait_for_stops", "heartbeat_worker", "server_time_ms"),
        scope=Scope.WORKER,
        reach=Reach.NAMED,
        handler=claim,
        size=Size.BATCH,
        repeat=Repeat.KEY,
        body=ClaimAsked,
        reply=ClaimAnswer,
        errors=(InvalidCapabilities, ClaimIdReused),
        tag="workers",
        is_hot=True,
    ),
    post(
        "/v1/workers/stops",
        "wait_for_stops",
        reach=Reach.NAMED,
        size=Size.BATCH,
        repeat=Repeat.READ,
        tag="workers",
        is_hot=True,
    ),
    post("/v1/workers/give-back", "give_back_claim", reach=Reach.NAMED, tag="workers"),
    get("/v1/workers", "list_workers", tag="workers"),
    get("/v1/workers/unmet", "list_unmet", tag="workers"),
    row("DELETE", _WORKER, "leave_worker", tag="workers"),
    post(f"{_WORKER}/heartbeat", "heartbeat_worker", tag="workers", is_hot=True),
    post(f"{_WORKER}/drain", "drain_worker", tag="workers"),
    post(f"{_WORKER}/dead", "mark_worker_dead", tag="workers"),
)
