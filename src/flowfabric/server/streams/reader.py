"""One client that follows a stream: what is kept for it, and how it is sent.

What follows a stream is read in pages, each with the cursor behind it, so a client that was cut off
goes on where it was. A client that does not keep up is told so and left: nothing piles up for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from flowfabric.clock import stopwatch
from flowfabric.errors import FlowFabricError, StoreError, Unauthorized
from flowfabric.ids import jitter
from flowfabric.model.record import to_json
from flowfabric.server.exchange import Call, Streamed
from flowfabric.server.plain import problem, to_body

if TYPE_CHECKING:
    from flowfabric.server.service import Service

MEDIA: Final = "text/event-stream"
HELD_EVENTS_MAX: Final = 256
HELD_BYTES_MAX: Final = 1 << 20
_RETRY: Final = b"retry: 2000\n\n"
_ALIVE: Final = b":\n\n"
_BEAT_S: Final = 15.0  # proxies cut what is silent for longer
_STALL_S: Final = 30.0  # for a client to take anything at all
_SPREAD: Final = 0.2  # of the age at which streams end, so that not all end together
_HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))

Send = Callable[[bytes], Awaitable[None]]
Follow = Callable[["Reader"], Coroutine[Any, Any, None]]


def told(name: str | None, data: bytes, cursor: str | None = None) -> bytes:
    """One event as its lines; JSON has no line breaks."""
    parts = [b"id: %s\n" % cursor.encode() if cursor is not None else b""]
    parts.append(b"event: %s\n" % name.encode() if name is not None else b"")
    return b"%s%sdata: %s\n\n" % (*parts, data)


def asks_for_stream(call: Call) -> bool:
    """Whether the client named this very type: `*/*` is no wish for a stream."""
    return MEDIA.encode() in call.headers.get(b"accept", b"").lower()


class Reader:
    """What is on its way to one client."""

    def __init__(self, cursor: str | None = None) -> None:
        self.cursor = cursor  # behind what was given to it; None: nothing was
        self.bell = asyncio.Event()
        self.room = asyncio.Event()  # all that was given is sent
        self.room.set()
        self.is_lagging = False
        self.last: bytes | None = None  # what is sent last of all
        self._parts: deque[bytes] = deque()
        self._events = 0
        self._bytes = 0

    @property
    def is_holding(self) -> bool:
        """Whether something was given that is not sent yet."""
        return bool(self._parts)

    def put(self, part: bytes, events: int, cursor: str) -> None:
        """More of it. What cannot be held is not: the client will ask for it again."""
        if self.is_lagging:
            return
        self._events += events
        self._bytes += len(part)
        if self._parts and (self._events > HELD_EVENTS_MAX or self._bytes > HELD_BYTES_MAX):
            self.is_lagging = True
            self._clear()
        else:
            self.cursor = cursor
            if part:
                self._parts.append(part)
                self.room.clear()
        self.bell.set()

    def end(self, last: bytes) -> None:
        """Nothing comes after this."""
        self.last = last
        self.bell.set()

    def taken(self) -> bytes:
        """All that is held."""
        part = b"".join(self._parts)
        self._clear()
        return part

    def _clear(self) -> None:
        self._parts.clear()
        self._events = self._bytes = 0
        self.room.set()


class EventStream(Streamed):
    """Server-sent events, until the client goes, lags, or is told to come again."""

    media = MEDIA.encode()
    headers = _HEADERS

    def __init__(self, service: Service, call: Call, reader: Reader, follow: Follow) -> None:
        """`follow` gives the reader what there is, for as long as it goes on."""
        self._service = service
        self._call = call
        self._reader = reader
        self._follow = follow
        self._leave = service.streaming()
        self._leave.__enter__()

    def close(self) -> None:
        """It counts no more."""
        self._leave.__exit__(None, None, None)

    async def write(self, send: Send) -> None:
        """What comes, a sign of life now and then, and a reason at the end."""
        reader, beats = self._reader, self._service.beats
        following = asyncio.create_task(self._followed())
        gone = asyncio.create_task(self._call.until_gone())
        gone.add_done_callback(lambda _: reader.bell.set())
        try:
            await self._sent(send, _RETRY)
            with beats.waking(reader.bell):
                await self._until_over(send, gone)
        except TimeoutError:
            self._service.cut(self._call)
        finally:
            for each in (following, gone):
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each

    async def _until_over(self, send: Send, gone: asyncio.Task[None]) -> None:
        reader = self._reader
        age_s = self._service.settings.stream_max_age_ms / 1000
        ends_at = stopwatch() + age_s * (1 - _SPREAD + 2 * _SPREAD * jitter())
        shown, beat_at = None, stopwatch()
        while not gone.done():
            reader.bell.clear()
            if reader.is_holding:
                shown, part = reader.cursor, reader.taken()
                await self._sent(send, part)
                beat_at = stopwatch() + _BEAT_S
                continue  # more may have come
            if (over := self._over(ends_at)) is not None:
                await self._sent(send, over)
                return
            if stopwatch() >= beat_at:
                if not await self._may_go_on():
                    return
                # Also where it is by now: events that are not wanted are not read again.
                has_moved = reader.cursor is not None and reader.cursor != shown
                shown, beat_at = reader.cursor, stopwatch() + _BEAT_S
                await self._sent(send, _place(reader.cursor) if has_moved else _ALIVE)
                continue
            await reader.bell.wait()

    def _over(self, ends_at: float) -> bytes | None:
        """The last event, if it is time for it."""
        if self._reader.is_lagging:
            return told("lagged", b"{}")
        if self._service.stopping.is_set() or stopwatch() >= ends_at:
            return told("reconnect", b"{}")
        return self._reader.last

    async def _may_go_on(self) -> bool:
        """A token may have been revoked meanwhile."""
        try:
            caller = await self._service.guard.caller_of(self._call)
        except Unauthorized:
            return False
        except FlowFabricError:  # the store is away: it may be good, and is looked at again
            return True
        return caller == self._call.caller

    async def _sent(self, send: Send, part: bytes) -> None:
        async with asyncio.timeout(_STALL_S):
            await send(part)

    async def _followed(self) -> None:
        reader = self._reader
        try:
            await self._follow(reader)
        except FlowFabricError as error:
            reader.end(told("problem", to_body(problem(error))))
        except Exception as error:
            reader.end(told("problem", to_body(problem(StoreError("a defect of the server")))))
            raise error


def _place(cursor: str | None) -> bytes:
    """No event, but where to go on after a break."""
    return b":\nid: %s\n\n" % (cursor or "").encode()


def block_of(value: object, cursor: str) -> bytes:
    """One thing that happened, with the cursor behind it."""
    return told(None, to_body(value), cursor)


def ending_of(name: str, **fields: Any) -> bytes:
    """A last event with what is known of the end."""
    return told(name, to_json(fields))
