"""An engine behind a server and a real socket: every request and answer goes through HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Any, Final, TypeVar

from flowfabric.api import wire
from flowfabric.api.backend import EngineBackend, LocalWorker
from flowfabric.api.hints import Bell
from flowfabric.api.operation import Request
from flowfabric.assemble import open_engine
from flowfabric.client.engine import RemoteEngine
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.server.access.guard import OpenGuard
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings
from tests.support.loopback import Loopback
from tests.support.lossy import LossyTransport

R = TypeVar("R")

# FF_THROUGH=http puts every engine of these suites behind a socket, lossy one that loses answers.
THROUGH_HTTP: Final = os.environ.get("FF_THROUGH") in ("http", "lossy")
IS_LOSSY: Final = os.environ.get("FF_THROUGH") == "lossy"
_SETTINGS: Final = ServerSettings(bind="127.0.0.1:0")


class Socketed(Loopback):
    """What is no operation (`tick`, `dump` …) goes straight to the engine behind the server."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._server = Server(engine, _SETTINGS, guard=OpenGuard())
        self._client: RemoteEngine | None = None

    @property
    def client(self) -> RemoteEngine:
        """Asks the server."""
        assert self._client is not None, "it has not started"
        return self._client

    async def call(self, request: Request[R]) -> R:
        """Over the socket and back."""
        operation = wire.operation_of(request)
        if operation.is_local:
            return await self.engine.call(request)
        try:
            return await self.client.call(request)
        except FlowFabricError as error:
            if not operation.may_raise(error):
                detail = f"{operation.name} does not declare {type(error).__name__}"
                raise AssertionError(detail) from error
            raise

    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """Over the socket and back, together."""
        return await self.client.call_many(requests)

    def listen(self, topics: Iterable[str]) -> AbstractContextManager[Bell]:
        """To the server's hints."""
        return self.client.listen(topics)

    def follow(self, told: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """To the server's hints."""
        return self.client.follow(told)

    def present(self, worker: LocalWorker) -> AbstractContextManager[None]:
        """The engine is elsewhere."""
        return nullcontext()

    @property
    def is_remote(self) -> bool:
        """It is."""
        return True

    def again(self) -> EngineBackend:
        """Its twin, behind a server of its own: this one stands still with its event loop."""
        return Socketed(self.engine.again())

    def at_home_in(self, namespace: str) -> EngineBackend:
        """The same server for another tenant."""
        twin = copy(self)
        twin.engine = self.engine.at_home_in(namespace)
        if self._client is not None:
            twin._client = self._client.at_home_in(namespace)  # type: ignore[assignment]
        return twin

    async def start(self, *, migrate: bool = True) -> None:
        """Start the engine, the server and the client."""
        await self.engine.start(migrate=migrate)
        try:
            await self._server.open()
            await self._server.start()
            client = RemoteEngine(
                self._server.address,
                namespace=self.engine.home_namespace,
                actor=self.engine.config.actor,
                transport=LossyTransport(self._server.address) if IS_LOSSY else None,
            )
            await client.start()
            self._client = client
        except BaseException:
            await self._server.stop()
            await self.engine.close()
            raise

    async def close(self) -> None:
        """Close all three."""
        if self._client is not None:
            await self._client.close()
        await self._server.stop()
        await self.engine.close()


def open_socketed(url: str, **options: Any) -> EngineBackend:
    """As `assemble.open_engine`, behind a server."""
    return Socketed(open_engine(url, **options))


def open_memory_over_http(url: str, **options: Any) -> EngineBackend:
    """As `assemble.open_engine`, and behind a server if it is in memory."""
    is_memory = isinstance(url, str) and url.startswith("memory:")
    return (open_socketed if is_memory else open_engine)(url, **options)
