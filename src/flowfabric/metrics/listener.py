"""A port on which a process without a server answers scrapes: `GET /metrics`, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from flowfabric.errors import InvalidInput
from flowfabric.metrics.registry import CONTENT_TYPE

_HEAD_MAX: Final = 8_192  # bytes of a request
_PATIENCE_S: Final = 5.0  # for a client to send its request and to take the answer
_PORT: Final = "9464"
_HOST: Final = "127.0.0.1"


class Listener:
    """Answers scrapes with what `text` returns."""

    def __init__(self, address: str, text: Callable[[], str]) -> None:
        self._host, self._port = host_and_port(address)
        self._text = text
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """Where it listens, once it has started."""
        if self._server is None:
            return f"{self._host}:{self._port}"
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def start(self) -> None:
        """Listen from now on."""
        try:
            self._server = await asyncio.start_server(
                self._answer, self._host, self._port, limit=_HEAD_MAX
            )
        except OSError as error:
            detail = f"metrics: cannot listen on {self._host}:{self._port} ({error.strerror})"
            raise InvalidInput(f"{detail}; name another address", field="metrics") from None

    async def stop(self) -> None:
        """Listen no more."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer_to(head.split(b"\r\n", 1)[0]))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that sends no request gets no answer
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _answer_to(self, line: bytes) -> bytes:
        method, _, rest = line.partition(b" ")
        path = rest.split(b" ", 1)[0].partition(b"?")[0]
        if path != b"/metrics":
            return _response("404 Not Found", b"there is only /metrics\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET\n")
        return _response("200 OK", self._text().encode(), with_body=method == b"GET")


def _response(status: str, body: bytes, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of an address; without a host this machine alone is meant.

    >>> host_and_port(":9464")
    ('127.0.0.1', 9464)
    """
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, _PORT
    if not (port.isascii() and port.isdigit() and int(port) < 65_536):
        detail = f"metrics: expected host:port such as {_HOST}:{_PORT}, got {address!s:.100}"
        raise InvalidInput(detail, field="metrics")
    return host.strip("[]") or _HOST, int(port)
