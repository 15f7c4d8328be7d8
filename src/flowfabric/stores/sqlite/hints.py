"""Hints between processes on one machine that share a file: datagrams to sockets beside it.

A hint is one small datagram. A lost one costs latency until the next look, never correctness, so
nothing here is retried and every failure is ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

from flowfabric.errors import FlowFabricError
from flowfabric.ids import new_name
from flowfabric.model.record import from_json, to_json
from flowfabric.stores.base import EVERYBODY
from flowfabric.stores.hints import LocalHints

DATAGRAM_BYTES = 8192


class SocketHints(LocalHints):
    """In-process callbacks, and a Unix socket per process in a folder named after the file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        name = hashlib.sha256(str(Path(path).absolute()).encode()).hexdigest()[:16]
        user = os.getuid() if hasattr(os, "getuid") else 0
        # Socket paths are limited to about 100 bytes, so the folder cannot stand beside the file.
        self._folder = Path(tempfile.gettempdir()) / f"flowfabric-{user}-{name}"
        self._socket: socket.socket | None = None
        self._address: Path | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Listen in the running event loop, where the platform can."""
        if self._socket is not None or not hasattr(socket, "AF_UNIX"):
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._folder.stat().st_uid != os.getuid():
                return
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            listener.setblocking(False)
            address = self._folder / new_name("p")
            try:
                listener.bind(str(address))
            except OSError:  # the folder for temporary files has too long a name, or is full
                listener.close()
                return
            self._socket, self._address = listener, address
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(listener.fileno(), self._receive)

    def stop(self) -> None:
        """Stop listening."""
        if self._socket is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        if self._address is not None:
            self._address.unlink(missing_ok=True)
        self._socket = self._address = self._loop = None

    def publish(self, topics: Mapping[str, int]) -> None:
        """Tell this process and the others."""
        self.deliver(topics)
        if self._socket is None:
            return
        message = to_json(topics)
        if len(message) > DATAGRAM_BYTES:
            message = to_json(EVERYBODY)
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder):
                if self._address is None or entry.name != self._address.name:
                    self._send(message, entry.path)

    def _send(self, message: bytes, address: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(message, address)
        except ConnectionRefusedError:  # its process is gone
            Path(address).unlink(missing_ok=True)
        except OSError:
            return

    def _receive(self) -> None:
        while self._socket is not None:
            try:
                message = self._socket.recv(DATAGRAM_BYTES)
            except OSError:
                return
            with contextlib.suppress(FlowFabricError):
                self.deliver(from_json(message, dict[str, int], field="hint"))
