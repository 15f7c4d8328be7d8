"""A server that runs: its sockets, its start and its end."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, cast

from flowfabric.api.backend import EngineBackend
from flowfabric.errors import InvalidInput
from flowfabric.server.access.guard import Guard
from flowfabric.server.access.proxies import PEER
from flowfabric.server.app import Application
from flowfabric.server.exchange import Receive, Scope, Send
from flowfabric.server.opening import check_certificate, check_exposed, check_guarded
from flowfabric.server.routes.all import ALL_ROUTES
from flowfabric.server.service import Service
from flowfabric.server.settings import ServerSettings

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

_BACKLOG: Final = 2_048
_PORT: Final = "9090"


class Server:
    """HTTP in front of an engine, which is opened and closed by its owner.

    ```python
    async with Server(engine, ServerSettings(bind="127.0.0.1:9090")) as server:
        await server.ended()
    ```

    A program that has to wait for its store calls `start` before the engine is started: until
    `open` the server tells that it is alive and not ready, and refuses everything else.
    """

    def __init__(
        self,
        engine: EngineBackend,
        settings: ServerSettings | None = None,
        *,
        guard: Guard | None = None,
    ) -> None:
        self.settings = settings or ServerSettings()
        self.service = Service(engine, self.settings, guard)
        self.application: Asgi = Application(self.service, ALL_ROUTES)
        self.service.cut = lambda call: self.cut(call.scope)
        self._socket: socket.socket | None = None
        self._is_opened = False
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

    def bind(self) -> None:
        """Take the socket."""
        check_certificate(self.settings)
        self._socket = bound_socket(self.settings.bind)

    async def open(self) -> None:
        """The engine is started: answer everything from now on. A socket that others can reach is
        refused where it would be open to them."""
        self.service.guard.start()
        if self._socket is not None:
            has_tokens = await self.service.guard.has_tokens()
            check_guarded(self._socket, self.settings, has_tokens=has_tokens)
            check_exposed(self._socket, self.settings)
        self.service.hints.start()
        if self.service.metering is not None:
            await self.service.metering.start()
        self._is_opened = self.service.is_open = True

    async def start(self) -> None:
        """Listen, and answer from now on; operations once it is opened."""
        self.service.is_open = self._is_opened
        if self.settings.ui:
            from flowfabric.server.ui.rendering import prepare

            prepare()
        import uvicorn  # only a server needs it

        from flowfabric.server.connections import Connection, Crowd
        from flowfabric.server.listening import Listening

        if self._socket is None:
            self.bind()
        assert self._socket is not None  # noqa: S101 - `bind` has set it
        self.service.pulse.start()
        config = uvicorn.Config(
            self._behind_proxies(),
            http=cast("Any", partial(Connection, Crowd(self.settings))),
            loop="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=self.settings.keepalive_s,
            backlog=_BACKLOG,
            ssl_certfile=self.settings.tls_cert,
            ssl_keyfile=self.settings.tls_key,
        )
        server = Listening(config)
        self._uvicorn = server
        self._serving = asyncio.create_task(server.serve(sockets=[self._socket]))
        while not server.started and not self._serving.done():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        if self._serving.done():
            await self._serving  # raises what kept it from starting

    def _behind_proxies(self) -> Asgi:
        """The application, asked as by the callers of proxies that are trusted."""
        trusted = list(self.settings.trusted_proxies)
        if not trusted:
            return self.application
        from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

        inner = ProxyHeadersMiddleware(cast("Any", self.application), trusted)

        async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
            client = scope.get("client")
            scope[PEER] = client[0] if client else None
            await cast("Any", inner)(scope, receive, send)

        return with_peer

    def renew_certificate(self) -> None:
        """Use the files of the certificate as they are now, for new connections."""
        check_certificate(self.settings)
        if self._uvicorn is not None and self._uvicorn.config.ssl is not None:
            self._uvicorn.config.ssl.load_cert_chain(self.settings.tls_cert, self.settings.tls_key)

    async def drain(self, *, delay_ms: int | None = None) -> None:
        """Say "not ready", wait until callers have noticed, answer what waits, let the rest finish.

        `delay_ms`: instead of the setting `drain_delay`.
        """
        self.service.is_leaving = True
        delay_ms = self.settings.drain_delay_ms if delay_ms is None else delay_ms
        await asyncio.sleep(delay_ms / 1000)
        self.service.stopping.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_timeout_ms / 1000):
                await self.service.idle()

    async def stop(self) -> None:
        """Close the sockets; what is still in flight is cut off."""
        self.service.stopping.set()
        self.service.hints.stop()
        if self.service.metering is not None:
            await self.service.metering.stop()
        self.service.guard.stop()
        if self.service.is_open:
            await self.service.refusals.close()
        self.service.pulse.stop()
        if self._uvicorn is not None and self._serving is not None:
            self._uvicorn.leave()
            await self._serving
            self._serving = None
        if self._socket is not None:
            self._socket.close()
            unlink_socket(self.settings.bind)

    def cut(self, scope: Scope) -> None:
        """End the connection of a request that takes nothing, with what is on its way."""
        # Not by its address: behind a proxy that is another's, and a Unix socket has none.
        for each in () if self._uvicorn is None else self._uvicorn.server_state.connections:
            if getattr(getattr(each, "cycle", None), "scope", None) is scope:
                each.transport.abort()
                return

    async def ended(self) -> None:
        """Return when it listens no more."""
        if self._serving is not None:
            await asyncio.shield(self._serving)

    async def __aenter__(self) -> Self:
        self.bind()
        await self.open()
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def bound_socket(bind: str) -> socket.socket:
    """The socket that a setting names."""
    try:
        if bind.startswith("fd:"):
            return socket.socket(fileno=int(bind.removeprefix("fd:")))
        return _bound(bind)
    except (OSError, ValueError, OverflowError) as error:
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        what = "another program listens on" if is_taken else "cannot listen on"
        raise InvalidInput(
            f"bind: {what} {bind!s:.200} ({error}); name another place as host:port, unix:/path "
            "or fd:3",
            field="bind",
        ) from None


def _bound(bind: str) -> socket.socket:
    place: Any = bind.removeprefix("unix:")
    if place != bind:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(place) == 0:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        unlink_socket(bind)
        listener = socket.socket(socket.AF_UNIX)
    else:
        host, port = _host_and_port(bind)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        place = (host.strip("[]") or "127.0.0.1", int(port))
        # Named as TCP: only then asyncio sends small answers at once, without Nagle's 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
    except BaseException:
        listener.close()
        raise
    return listener


def _host_and_port(bind: str) -> tuple[str, str]:
    """A host without a port is meant with the usual one."""
    host, colon, port = bind.rpartition(":")
    if not colon or (bind.startswith("[") and bind.endswith("]")):
        return bind, _PORT
    return host, port


def unlink_socket(bind: str) -> None:
    """Remove what an earlier server has left at the path of a socket."""
    if bind.startswith("unix:"):
        path = Path(bind.removeprefix("unix:"))
        if path.is_socket():
            path.unlink()
