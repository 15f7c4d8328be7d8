"""What only a server has: its commands, its hints, its own health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flowfabric.api import wire
from flowfabric.api.hints import HintsAsked, HintsHeard
from flowfabric.api.operation import Scope
from flowfabric.errors import (
    MissingNamespace,
    MissingScope,
    NotFound,
    StoreUnavailable,
    TooManyWaits,
    Unauthorized,
)
from flowfabric.metrics.registry import CONTENT_TYPE as _METRICS
from flowfabric.model.record import Record, from_msgpack, replace, to_msgpack
from flowfabric.server.access.caller import Caller
from flowfabric.server.commands import commands
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.plain import to_body
from flowfabric.server.routes.route import Reach, Repeat, Route, Size
from flowfabric.server.service import Service
from flowfabric.server.shapes import shape_of

_PACKED: Final = wire.CONTENT_TYPE.encode()


async def hints(service: Service, call: Call) -> Answer:
    """A wait that ends when one of the topics rings."""
    body = await call.body(service.settings.body_max)
    is_packed = call.headers.get(b"content-type") == _PACKED
    asked = from_msgpack(body, HintsAsked, field="hints") if is_packed else _HINTS.read(body)
    seen = await service.border.sees_topics(call.caller, asked.topics)
    # No wait is lost when it is cut short: the client asks again for what rang meanwhile.
    wait_ms = max(0, min(asked.wait_ms, service.settings.wait_max_ms))
    asked = replace(asked, topics=seen, wait_ms=wait_ms)
    with service.waiting(call.caller):
        work = service.hints.heard(asked, service.stopping)
        heard = await service.patience.while_there(call, work)
    if is_packed:
        return Answer(to_msgpack(heard), media=_PACKED)
    return Answer(to_body(heard))


_HINTS: Final = shape_of(HintsAsked)


class About(Record, frozen=True, kw_only=True):
    """A server: its release, the operations it offers, and the bounds of a request. `namespace`:
    that of this caller's calls that name none, where there is one."""

    name: str
    version: str
    features: tuple[str, ...]
    limits: Mapping[str, int]
    namespace: str | None


async def about(service: Service, call: Call) -> Answer:
    """The server itself."""
    capabilities = service.engine.capabilities()
    told = About(
        name="flowfabric",
        version=capabilities.version,
        features=tuple(sorted(name for name, has in capabilities.supports.items() if has)),
        limits=service.limits(),
        namespace=_home_of(service, call.caller),
    )
    return Answer(to_body(told))


class System(Record, frozen=True, kw_only=True):
    """A server and its store, for operators. `lag_ms`: by how much turns of its event loop came
    late, at worst, in the last ten seconds."""

    version: str
    store: str
    schema_version: int
    server_time: int
    lag_ms: int
    in_flight: int
    waits: int
    streams: int
    checks: Mapping[str, bool]


async def system(service: Service, call: Call) -> Answer:
    """What it runs on and how it fares."""
    return Answer(to_body(await system_of(service)))


async def system_of(service: Service) -> System:
    """The same as a record."""
    capabilities = service.engine.capabilities()
    return System(
        version=capabilities.version,
        store=capabilities.family,
        schema_version=capabilities.schema_version,
        server_time=await service.engine.server_time_ms(),
        lag_ms=round(service.pulse.lag_s() * 1_000),
        in_flight=service.in_flight,
        waits=service.waits,
        streams=service.streams,
        checks=await service.readiness(),
    )


class Alive(Record, frozen=True, kw_only=True):
    """Its event loop turns."""

    alive: bool


def _home_of(service: Service, caller: Caller) -> str | None:
    """The namespace of this caller's calls that name none, where there is one."""
    if caller.namespaces is None:
        return service.engine.home_namespace
    return next(iter(caller.namespaces)) if len(caller.namespaces) == 1 else None


async def alive(service: Service, call: Call) -> Answer:
    """The loop turns."""
    return Answer(to_body(Alive(alive=True)))


class Ready(Record, frozen=True, kw_only=True):
    """Whether it can answer for the store, and each thing that takes."""

    ready: bool
    checks: Mapping[str, bool]


async def ready(service: Service, call: Call) -> Answer:
    """Whether it can answer for the store."""
    checks = await service.readiness()
    is_ready = all(checks.values())
    status = 200 if is_ready else StoreUnavailable.status
    return Answer(to_body(Ready(ready=is_ready, checks=checks)), status=status)


async def metrics(service: Service, call: Call) -> Answer:
    """A scrape. It needs no store, so that an outage is seen; from this machine no token either,
    unless that is asked for."""
    if service.metering is None:
        raise NotFound("this server serves no metrics: its setting `metrics` is off")
    settings = service.settings
    if settings.metrics_auth or settings.behind_proxy or not call.is_local:
        service.require_open()
        await service.admit(call, call.row)
        if call.caller.namespaces is not None:
            raise MissingNamespace("metrics are of all namespaces", namespace="*")
    return Answer(service.scrape() or b"", media=_METRICS.encode())


OWN_ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/commands",
        title="Many operations at once",
        handler=commands,
        size=Size.BATCH,
        repeat=Repeat.FENCE,
        is_for_known=True,
        other_media=(wire.CONTENT_TYPE,),
        tag="workers",
        is_hot=True,
    ),
    Route(
        method="POST",
        path="/v1/hints",
        title="Wait for a hint",
        handler=hints,
        is_for_known=True,
        size=Size.SMALL,
        tag="workers",
        body=HintsAsked,
        reply=HintsHeard,
        errors=(TooManyWaits,),
        other_media=(wire.CONTENT_TYPE,),
        is_hot=True,
    ),
    Route(
        method="GET",
        path="/v1",
        title="The server",
        handler=about,
        reply=About,
        tag="server",
    ),
    Route(
        method="GET",
        path="/v1/system",
        title="The server and its store, for operators",
        handler=system,
        reply=System,
        asks=("server_time_ms",),
        scope=Scope.OPERATE,
        reach=Reach.SHARED,
        tag="server",
    ),
    Route(
        method="GET",
        path="/livez",
        title="Is it alive",
        handler=alive,
        reply=Alive,
        tag="server",
        is_health=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        title="Is it ready",
        handler=ready,
        reply=Ready,
        other_statuses=(503,),
        tag="server",
        is_health=True,
    ),
    Route(
        method="GET",
        path="/metrics",
        title="Metrics for Prometheus",
        handler=metrics,
        media=_METRICS,
        scope=Scope.METRICS,
        reach=Reach.SHARED,
        errors=(NotFound, Unauthorized, MissingScope, MissingNamespace),
        tag="server",
        is_health=True,
    ),
)
