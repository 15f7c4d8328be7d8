"""Who a request comes from: proved by its token, or by its coming from this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flowfabric.server.access.caller import UNGUARDED, Caller

if TYPE_CHECKING:
    from flowfabric.server.exchange import Call


class Guard(Protocol):
    """Tells callers apart."""

    async def caller_of(self, call: Call) -> Caller:
        """What the request proves; `Unauthorized` if it claims more than it proves."""
        ...


class OpenGuard:
    """No token was made: the server listens on loopback only, and allows everything there."""

    async def caller_of(self, call: Call) -> Caller:
        """Everything."""
        return UNGUARDED
