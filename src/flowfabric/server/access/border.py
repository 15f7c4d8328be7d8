"""The border between namespaces: objects of others do not exist for a caller."""

from __future__ import annotations

from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.api.operation import Operation, Request, UnsafeRequest
from flowfabric.model.record import replace
from flowfabric.server.access.caller import Caller


class Border:
    """Lets requests pass that name only what their caller may see."""

    def __init__(self, engine: EngineBackend) -> None:
        self._engine = engine

    async def passed(
        self, caller: Caller, operation: Operation, request: Request[Any], home: str | None
    ) -> Request[Any]:
        """The request in the caller's own name."""
        if isinstance(request, UnsafeRequest) and caller.actor is not None:
            return replace(request, actor=caller.actor)
        return request
