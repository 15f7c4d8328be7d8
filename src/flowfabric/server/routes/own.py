"""What only a server has: its commands, its hints, its own health."""

from __future__ import annotations

from typing import Final

from flowfabric.api import wire
from flowfabric.api.hints import HintsAsked, HintsHeard
from flowfabric.errors import StoreUnavailable
from flowfabric.model.record import from_msgpack, to_msgpack
from flowfabric.server.access.caller import Caller
from flowfabric.server.commands import commands, while_there
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.plain import to_body
from flowfabric.server.routes.route import Repeat, Route, Size
from flowfabric.server.service import Service
from flowfabric.server.shapes import shape_of

_PACKED: Final = wire.CONTENT_TYPE.encode()


async def hints(service: Service, call: Call) -> Answer:
    """A wait that ends when one of the topics rings."""
    body = await call.body(service.settings.body_max)
    is_packed = call.headers.get(b"content-type") == _PACKED
    asked = from_msgpack(body, HintsAsked, field="hints") if is_packed else _HINTS.read(body)
    with service.waiting():
        heard = await while_there(call, service.hints.heard(asked, service.stopping))
    if is_packed:
        return Answer(to_msgpack(heard), media=_PACKED)
    return Answer(to_body(heard))


_HINTS: Final = shape_of(HintsAsked)


async def about(service: Service, call: Call) -> Answer:
    """The server itself."""
    capabilities = service.engine.capabilities()
    return Answer(
        to_body(
            {
                "name": "flowfabric",
                "version": capabilities.version,
                "features": sorted(name for name, has in capabilities.supports.items() if has),
                "limits": service.limits(),
                "namespace": _home_of(service, call.caller),
            }
        )
    )


def _home_of(service: Service, caller: Caller) -> str | None:
    """The namespace of this caller's calls that name none, where there is one."""
    if caller.namespaces is None:
        return service.engine.home_namespace
    return next(iter(caller.namespaces)) if len(caller.namespaces) == 1 else None


async def alive(service: Service, call: Call) -> Answer:
    """The loop turns."""
    return Answer(to_body({"alive": True}))


async def ready(service: Service, call: Call) -> Answer:
    """Whether it can answer for the store."""
    checks = await service.readiness()
    body = to_body({"ready": all(checks.values()), "checks": checks})
    return Answer(body, status=200 if all(checks.values()) else StoreUnavailable.status)


OWN_ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/commands",
        title="Many operations at once",
        handler=commands,
        size=Size.BATCH,
        repeat=Repeat.FENCE,
        is_for_known=True,
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
        is_hot=True,
    ),
    Route(method="GET", path="/v1", title="The server", handler=about, tag="server"),
    Route(
        method="GET",
        path="/livez",
        title="Is it alive",
        handler=alive,
        tag="server",
        is_health=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        title="Is it ready",
        handler=ready,
        tag="server",
        is_health=True,
    ),
)
