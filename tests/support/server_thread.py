"""A server on a store, in a thread of this process: a URL that anything may ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings

T = TypeVar("T")


class ServerThread:
    """One engine and its server, until they are closed."""

    def __init__(self, url: str, config: EngineConfig | None = None, **settings: Any) -> None:
        self.engine: Engine = open_engine(url, config=config)
        self.server = Server(
            self.engine, ServerSettings(**{"bind": "127.0.0.1:0", "drain_delay_ms": 0, **settings})
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)
        self._thread.start()
        self.run(self._start())

    @property
    def address(self) -> str:
        return self.server.address

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine of the server's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self) -> None:
        await self.engine.start(migrate=True)
        self.server.bind()
        await self.server.open()
        await self.server.start()

    def close(self) -> None:
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _close(self) -> None:
        await self.server.stop()
        await self.engine.close()
        await asyncio.sleep(0)
