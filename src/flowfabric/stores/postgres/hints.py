"""Hints over LISTEN/NOTIFY, on a connection of their own.

Sent after the commit and gathered while one is on its way, so they never slow a commit down. Losing
them, or the connection, costs latency until the next look, never correctness.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import asyncpg

from flowfabric.errors import FlowFabricError
from flowfabric.ids import jitter, new_name
from flowfabric.model.record import from_json, to_json
from flowfabric.stores.base import EVERYBODY
from flowfabric.stores.hints import LocalHints

CHANNEL = "ff_hint"
PAYLOAD_BYTES = 7000  # Postgres allows just under 8000
RECONNECT_PAUSE_S = 1.0


class ListenHints(LocalHints):
    """In-process callbacks, and NOTIFY for the other processes."""

    def __init__(self, url: str, *, statement_cache_size: int) -> None:
        super().__init__()
        self._url = url
        self._statement_cache_size = statement_cache_size
        self._origin = new_name("o")
        self._outgoing: dict[str, int] = {}
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect in the background, for ever."""
        if self._task is None:
            self._ready = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name="flowfabric-listen")

    async def stop(self) -> None:
        """Let the connection go."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def publish(self, topics: Mapping[str, int]) -> None:
        """Tell this process now and the others soon."""
        self.deliver(topics)
        for name, count in topics.items():
            self._outgoing[name] = self._outgoing.get(name, 0) + count
        self._ready.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await self._serve()
            await asyncio.sleep(RECONNECT_PAUSE_S * (0.5 + jitter()))

    async def _serve(self) -> None:
        connection = await asyncpg.connect(
            self._url, statement_cache_size=self._statement_cache_size
        )
        try:
            await connection.add_listener(CHANNEL, self._receive)
            while True:
                await self._ready.wait()
                self._ready.clear()
                topics, self._outgoing = self._outgoing, {}
                if topics:
                    payload = self._payload(topics)
                    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
        finally:
            connection.terminate()

    def _payload(self, topics: Mapping[str, int]) -> str:
        message = to_json({"from": self._origin, "topics": topics})
        if len(message) > PAYLOAD_BYTES:
            short = {name: count for name, count in topics.items() if name.startswith("lane:")}
            message = to_json({"from": self._origin, "topics": {**short, **EVERYBODY}})
        if len(message) > PAYLOAD_BYTES:
            message = to_json({"from": self._origin, "topics": EVERYBODY})
        return message.decode()

    def _receive(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        with contextlib.suppress(FlowFabricError, KeyError):
            message = from_json(payload, dict[str, Any], field="hint")
            if message["from"] != self._origin:
                self.deliver(message["topics"])
