"""Hints over LISTEN/NOTIFY, on a connection of their own.

Sent after the commit and gathered while one is on its way, so they never slow a commit down. Losing
them, or the connection, costs latency until the next poll, never correctness. A connection that
ends is noticed at once, one that falls silent at the next keepalive query.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from flowfabric.errors import FlowFabricError
from flowfabric.ids import jitter, new_name
from flowfabric.model.record import from_json, to_json
from flowfabric.stores.base import EVERY_END, EVERY_FLOW_END, EVERY_STREAM, EVERYBODY
from flowfabric.stores.hints import LocalHints
from flowfabric.stores.postgres.faults import told

CHANNEL: Final = "ff_hint"
NOTIFY: Final = "SELECT pg_notify($1, $2)"
# The same in a transaction of its own, which need not be on the disk before it is over: a hint that
# is lost in a crash is one of those that may be lost. The setting ends with the transaction.
_TELL: Final = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
PAYLOAD_BYTES: Final = 7000  # Postgres allows just under 8000
RECONNECT_S_FIRST: Final = 0.1
RECONNECT_S_MAX: Final = 5.0
SIGN_OF_LIFE_S: Final = 60.0
WAITING_MAX: Final = 1_000  # topics that wait to be sent; more than one message can name
_LOGGER = logging.getLogger("flowfabric.hints")


class ListenHints(LocalHints):
    """In-process callbacks, and NOTIFY for the other processes."""

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()
        self._connect = connect
        self._origin = new_name("o")
        self._outgoing: dict[str, int] = {}
        self._ready = asyncio.Event()  # there is a message or a keepalive to send, or the end
        self._failures = 0  # since it last listened
        self._task: asyncio.Task[None] | None = None
        self._asking: asyncio.TimerHandle  # until the next keepalive, while connected
        self._is_asked = False  # that time has come

    def start(self) -> None:
        """Connect in the background, for ever."""
        if self._task is None:
            self._ready = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name="flowfabric-listen")

    async def stop(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    @property
    def waiting(self) -> Mapping[str, int]:
        """The content of the next message."""
        return self._outgoing

    def publish(self, topics: Mapping[str, int]) -> None:
        """Tell this process now and, if the store listens, the others soon."""
        self.deliver(topics)
        if self._task is not None:
            self._put(topics)
            self._ready.set()

    def _put(self, topics: Mapping[str, int]) -> None:
        """Gather topics. While there is no connection they must not grow without a bound."""
        for name, count in topics.items():
            self._outgoing[name] = self._outgoing.get(name, 0) + count
        if len(self._outgoing) > WAITING_MAX:
            self._outgoing = _lanes_of(self._outgoing)
        if len(self._outgoing) > WAITING_MAX:
            self._outgoing = dict(EVERYBODY)

    async def _run(self) -> None:
        while True:
            try:
                await self._serve()
            except Exception as error:  # noqa: BLE001 - whatever the error, later hints must arrive
                self._say_lost(told(error))
            else:
                self._say_lost("the server closed the connection")
            longest = min(RECONNECT_S_MAX, RECONNECT_S_FIRST * 2.0 ** min(self._failures, 10))
            self._failures += 1
            await asyncio.sleep(longest * (0.5 + jitter() / 2))

    def _say_lost(self, why: str) -> None:
        if self._failures == 0:
            _LOGGER.warning("no hints from other processes, looking now and then instead: %s", why)

    async def _serve(self) -> None:
        """Listen and send on one connection until it ends."""
        connection = await self._connect()
        self._ask_later()
        try:
            connection.add_termination_listener(self._ended)
            await connection.add_listener(CHANNEL, self._receive)
            self._failures = 0
            self.deliver(EVERYBODY)  # hints sent while it did not listen are not repeated
            while not connection.is_closed():
                await self._turn(connection)
        finally:
            self._asking.cancel()
            connection.terminate()

    def _ask_later(self) -> None:
        """One timer at a time for all messages: one for each would cost more than the message."""
        self._is_asked = False
        self._asking = asyncio.get_running_loop().call_later(SIGN_OF_LIFE_S, self._ask)

    def _ask(self) -> None:
        self._ask_later()
        self._is_asked = True
        self._ready.set()

    async def _turn(self, connection: Any) -> None:
        """Send the gathered topics; after a long silence, check that the server is there."""
        await self._ready.wait()
        self._ready.clear()
        topics, self._outgoing = self._outgoing, {}
        is_asked, self._is_asked = self._is_asked, False
        if not topics:
            if is_asked:
                await connection.execute("SELECT 1")
            return
        try:
            await connection.execute(_TELL, CHANNEL, payload_of(topics, self._origin))
        except Exception:
            self._put(topics)  # for the next connection
            self._ready.set()
            raise

    def _ended(self, _connection: Any) -> None:
        self._ready.set()

    def _receive(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        with contextlib.suppress(FlowFabricError, KeyError):
            message = from_json(payload, dict[str, str | dict[str, int]], field="hint")
            topics = message["topics"]
            if message["from"] != self._origin and isinstance(topics, dict):
                self.deliver(topics)


def payload_of(topics: Mapping[str, int], origin: str) -> str:
    """The message that names topics; when they do not fit, it names lanes, or nothing at all.

    `origin`: the process that knows already.
    """
    message = to_json({"from": origin, "topics": topics})
    if len(message) > PAYLOAD_BYTES:
        message = to_json({"from": origin, "topics": _lanes_of(topics)})
    if len(message) > PAYLOAD_BYTES:
        message = to_json({"from": origin, "topics": EVERYBODY})
    return message.decode()


def _lanes_of(topics: Mapping[str, int]) -> dict[str, int]:
    """Topics with their lanes named, and ended executions and flows and grown streams not."""
    lanes = {name: count for name, count in topics.items() if name.startswith("lane:")}
    return {**lanes, EVERY_END: 1, EVERY_FLOW_END: 1, EVERY_STREAM: 1}
