"""A server that runs: its sockets, its start and its end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.errors import InvalidInput
from flowfabric.server.access.guard import Guard, OpenGuard
from flowfabric.server.app import Application
from flowfabric.server.routes.all import ROUTES
from flowfabric.server.service import Service
from flowfabric.server.settings import ServerSettings

_BACKLOG: Final = 2_048
_HEAD_BYTES: Final = 16_384


class Server:
    """HTTP in front of an engine, which is opened and closed by its owner.

    ```python
    async with Server(engine, ServerSettings(bind="127.0.0.1:9090")) as server:
        await server.ended()
    ```
    """

    def __init__(
        self,
        engine: EngineBackend,
        settings: ServerSettings | None = None,
        *,
        guard: Guard | None = None,
    ) -> None:
        self.settings = settings or ServerSettings()
        self.service = Service(engine, self.settings, guard or OpenGuard())
        self._app = Application(self.service, ROUTES)
        self._socket: socket.socket | None = None
        self._uvicorn: Any = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Where it listens: http://host:port, or the path of a socket."""
        if self._socket is None:
            raise InvalidInput("server: it has not started", field="server")
        scheme = "http" if self.settings.tls_cert is None else "https"
        name = self._socket.getsockname()
        if isinstance(name, str):
            return f"unix:{name}"
        host = f"[{name[0]}]" if ":" in name[0] else name[0]
        return f"{scheme}://{host}:{name[1]}"

    async def start(self) -> None:
        """Listen, and answer from now on."""
        import uvicorn  # only a server needs it

        class Quiet(uvicorn.Server):
            """Leaves signals to the program around it."""

            @contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield

        self._socket = bound_socket(self.settings.bind)
        self.service.hints.start()
        config = uvicorn.Config(
            self._app,
            http="httptools",
            loop="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=bool(self.settings.trusted_proxies),
            forwarded_allow_ips=list(self.settings.trusted_proxies),
            timeout_keep_alive=self.settings.keepalive_s,
            backlog=_BACKLOG,
            ssl_certfile=self.settings.tls_cert,
            ssl_keyfile=self.settings.tls_key,
        )
        server = Quiet(config)
        self._uvicorn = server
        self._serving = asyncio.create_task(server.serve(sockets=[self._socket]))
        while not server.started and not self._serving.done():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        if self._serving.done():
            await self._serving  # raises what kept it from starting

    async def drain(self) -> None:
        """Answer what waits, take nothing that waits any more, let the rest finish."""
        self.service.stopping.set()
        await asyncio.sleep(self.settings.drain_delay_ms / 1000)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_timeout_ms / 1000):
                await self.service.idle()

    async def stop(self) -> None:
        """Close the sockets; what is still in flight is cut off."""
        self.service.stopping.set()
        self.service.hints.stop()
        if self._uvicorn is not None and self._serving is not None:
            self._uvicorn.should_exit = True
            self._uvicorn.force_exit = True
            await self._serving
            self._serving = None
        if self._socket is not None:
            self._socket.close()
        unlink_socket(self.settings.bind)

    async def ended(self) -> None:
        """Return when it listens no more."""
        if self._serving is not None:
            await asyncio.shield(self._serving)

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def bound_socket(bind: str) -> socket.socket:
    """The socket that a setting names."""
    try:
        if bind.startswith("fd:"):
            return socket.socket(fileno=int(bind.removeprefix("fd:")))
        if bind.startswith("unix:"):
            unlink_socket(bind)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(bind.removeprefix("unix:"))
            return listener
        host, _, port = bind.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Named as TCP: only then asyncio sends small answers at once, without Nagle's 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]") or "127.0.0.1", int(port)))
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"bind: cannot listen on {bind!s:.200} ({error}); host:port, unix:/path or fd:N",
            field="bind",
        ) from None
    return listener


def unlink_socket(bind: str) -> None:
    """Remove what an earlier server has left at the path of a socket."""
    if bind.startswith("unix:"):
        path = Path(bind.removeprefix("unix:"))
        if path.is_socket():
            path.unlink()
