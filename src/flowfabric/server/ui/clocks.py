"""The store's time, asked once for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowfabric.server.exchange import Call
    from flowfabric.server.service import Service


async def now_of(service: Service, call: Call) -> int:
    """What time it is for this request: all that it shows is of one instant."""
    known = call.__dict__.get("now")
    if known is None:
        known = call.__dict__["now"] = await service.engine.server_time_ms()
    return int(known)


def later(call: Call) -> None:
    """The same request looks again: it is another time."""
    call.__dict__.pop("now", None)
