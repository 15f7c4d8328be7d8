"""A server in memory, a proxy before it, and a client behind that: all in one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from flowfabric.assemble import open_engine
from flowfabric.client.engine import RemoteEngine
from flowfabric.engine.engine import Engine
from flowfabric.server.access.guard import OpenGuard
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings
from tests.support.proxy import Proxy


class Behind(NamedTuple):
    engine: Engine
    server: Server
    proxy: Proxy
    client: RemoteEngine


@asynccontextmanager
async def behind_a_proxy(
    *, cut_after_s: float | None = None, **settings: Any
) -> AsyncIterator[Behind]:
    wanted = ServerSettings(**{"bind": "127.0.0.1:0", "drain_delay_ms": 0, **settings})
    async with open_engine("memory://") as engine:
        server = Server(engine, wanted, guard=OpenGuard())
        async with server, Proxy(server.address, cut_after_s=cut_after_s) as proxy:
            client = RemoteEngine(proxy.address)
            await client.start()
            try:
                yield Behind(engine, server, proxy, client)
            finally:
                await client.close()
