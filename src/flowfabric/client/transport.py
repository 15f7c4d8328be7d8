"""How requests travel: one pool of connections to a server."""

from __future__ import annotations

import asyncio
import atexit
import io
import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol
from weakref import WeakSet

from flowfabric.errors import InvalidInput

_CONNECT_S: Final = 10.0
_WHOLE_BYTES: Final = 1 << 19
_IDLE_S: Final = 15.0  # shorter than the server's: a connection it has closed is not used again
_EXIT_S: Final = 1.0  # at the end of the process, which waits no longer for its goodbyes


class NotSent(Exception):
    """The server was not reached: nothing was asked of it."""


class NoAnswer(Exception):
    """The request may have reached the server; its answer has not come back."""


class Reply:
    """What came back."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Transport(Protocol):
    """Carries requests to one server."""

    async def send(
        self, method: str, path: str, *, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> Reply:
        """The reply; `NotSent` if nothing was sent, `NoAnswer` if it may have been."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class AiohttpTransport:
    """By aiohttp. `connections`: so many at once; the next request waits for one of them."""

    def __init__(self, url: str, *, ca: str | None = None, connections: int = 0) -> None:
        self._url = url.rstrip("/")
        self._ca = ca
        self._connections = connections  # 0: as many as are needed
        self._session: Any = None
        self._opened_by: tuple[int, asyncio.AbstractEventLoop] | None = None

    async def send(
        self, method: str, path: str, *, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> Reply:
        """One request on a pooled connection."""
        import aiohttp

        session = self._opened(aiohttp)
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S)
        try:
            async with session.request(
                method,
                f"{self._url}{path}",
                data=_sent(body),
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                return Reply(answer.status, answer.headers, await answer.read())
        except (
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
            aiohttp.InvalidURL,
        ) as error:
            raise NotSent(_named(error)) from None
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise NoAnswer(_named(error)) from None

    def _opened(self, aiohttp: Any) -> Any:
        if self._session is None:
            context = ssl.create_default_context(cafile=self._ca) if self._ca else True
            connector = aiohttp.TCPConnector(
                limit=self._connections, keepalive_timeout=_IDLE_S, ssl=context
            )
            self._session = aiohttp.ClientSession(
                connector=connector, trust_env=True, auto_decompress=True
            )
            self._opened_by = os.getpid(), asyncio.get_running_loop()
            _open.add(self)
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # transports close in the next turn
        _open.discard(self)

    def close_at_exit(self) -> None:
        """Close what the loop of another thread has open, unless a parent process opened it."""
        pid, loop = self._opened_by or (None, None)
        if loop is None or pid != os.getpid() or not loop.is_running():
            return
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self.close(), loop).result(_EXIT_S)


_open: Final[WeakSet[AiohttpTransport]] = WeakSet()


@atexit.register
def _close_open() -> None:
    """A program need not close `ff.sync`, and aiohttp complains of what is left open."""
    for transport in list(_open):
        transport.close_at_exit()


def _sent(body: bytes) -> Any:
    """Large ones go in pieces, so that the event loop turns meanwhile."""
    return io.BytesIO(body) if len(body) > _WHOLE_BYTES else body or None


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error!s:.200}"


def server_url(url: str) -> str:
    """A server's address without what does not belong there."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if not parts.hostname or parts.query or parts.fragment or parts.username or parts.password:
        raise InvalidInput(
            "url: expected https://host:port; a token goes into token= or FLOWFABRIC_TOKEN",
            field="url",
        )
    return url.rstrip("/")
