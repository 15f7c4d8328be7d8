"""Hints between processes on one machine that share a file: datagrams to a socket of each.

A hint is one small datagram. A lost one costs latency until the next poll, never correctness, so
nothing here is retried and every failure is ignored.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from flowfabric.config import runtime_folder
from flowfabric.errors import FlowFabricError
from flowfabric.model.record import from_json, to_json
from flowfabric.stores.base import EVERYBODY
from flowfabric.stores.hints import LocalHints
from flowfabric.stores.sqlite.meeting import Meeting, is_private_folder, remove_dead

DATAGRAM_BYTES: Final = 8192
_NOTHING: Final = to_json({})  # a hint without topics: only asks whether a process listens


def _meetings(path: str) -> list[Meeting]:
    """Folders for the sockets of processes that have this file open, the best first.

    Socket addresses are limited to about 100 bytes, so they cannot be beside the file. A service of
    this user may run without the runtime folder that a login has: hints go to both folders.
    """
    if not hasattr(socket, "AF_UNIX") or not hasattr(os, "getuid"):
        return []
    file = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:16]
    name = f"flowfabric-{os.getuid()}-{file}"
    runtime = runtime_folder()
    folders = [Path(tempfile.gettempdir())]
    if runtime is not None and runtime.is_absolute() and is_private_folder(runtime):
        folders.insert(0, runtime)
    return [Meeting(folder / name) for folder in folders]


class SocketHints(LocalHints):
    """In-process callbacks, and a Unix socket per process in a folder named after the file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._meetings = _meetings(path)
        self._joined: Meeting | None = None
        self._socket: socket.socket | None = None
        self._address: Path | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Listen in the running event loop, where the platform can."""
        if self._socket is not None or not self._meetings:
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.setblocking(False)
        for meeting in self._meetings:
            address = meeting.enter(listener)
            if address is not None:
                self._joined, self._socket, self._address = meeting, listener, address
                self._loop = asyncio.get_running_loop()
                self._loop.add_reader(listener.fileno(), self._receive)
                return
        listener.close()

    def stop(self) -> None:
        """Stop listening, and leave nothing behind."""
        if self._socket is None or self._address is None or self._joined is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        for address in self._joined.others(self._address):
            self._send(_NOTHING, address)
        self._socket.close()
        self._joined.leave(self._address)
        self._joined = self._socket = self._address = self._loop = None

    def after_fork(self) -> None:
        """In a child process: close the socket, and leave its address to the parent."""
        if self._socket is not None:
            self._socket.close()
        self._joined = self._socket = self._address = self._loop = None

    def publish(self, topics: Mapping[str, int]) -> None:
        """Tell this process and the others."""
        self.deliver(topics)
        if self._socket is None:
            return
        message = to_json(topics)
        if len(message) > DATAGRAM_BYTES:
            message = to_json(EVERYBODY)
        for meeting in self._meetings:
            for address in meeting.others(self._address):
                self._send(message, address)

    def _send(self, message: bytes, address: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(message, address)
        except ConnectionRefusedError:
            remove_dead(address)
        except OSError:
            return

    def _receive(self) -> None:
        while self._socket is not None:
            try:
                message = self._socket.recv(DATAGRAM_BYTES)
            except OSError:
                return
            with suppress(FlowFabricError):
                self.deliver(from_json(message, dict[str, int], field="hint"))
