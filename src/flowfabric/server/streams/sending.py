"""How a stream is sent: until its client goes, lags, or is told to come again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from flowfabric.clock import stopwatch
from flowfabric.errors import FlowFabricError, RateLimited, StoreError, Unauthorized
from flowfabric.ids import jitter
from flowfabric.model.record import replace
from flowfabric.server.exchange import Call, Streamed
from flowfabric.server.plain import problem, to_body
from flowfabric.server.service import Service
from flowfabric.server.streams.reader import Reader, told

MEDIA: Final = "text/event-stream"
_RETRY: Final = b"retry: 2000\n\n"
_ALIVE: Final = b":\n\n"
_BEAT_S: Final = 15.0  # proxies cut what is silent for longer
_STALL_S: Final = 30.0  # for a client to take anything at all
_SPREAD: Final = 0.2  # of the age at which streams end, so that not all end together
_HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))

Send = Callable[[bytes], Awaitable[None]]
Follow = Callable[[Reader], Coroutine[Any, Any, None]]


def asks_for_stream(call: Call) -> bool:
    """Whether the client named this very type: `*/*` is no wish for a stream."""
    return MEDIA.encode() in call.headers.get(b"accept", b"").lower()


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
        shown, beat_at, look_at = None, stopwatch(), stopwatch() + _BEAT_S
        while not gone.done():
            reader.bell.clear()
            if stopwatch() >= look_at:  # however much there is to send meanwhile
                if not await self._may_go_on():
                    return
                look_at = stopwatch() + _BEAT_S
            if reader.is_holding:
                shown, part = reader.cursor, reader.taken()
                await self._sent(send, part)
                beat_at = stopwatch() + _BEAT_S
                continue  # more may have come
            if (over := self._over(ends_at)) is not None:
                await self._sent(send, over)
                return
            if stopwatch() >= beat_at:
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
        except (Unauthorized, RateLimited):  # or bad tokens would keep a revoked one good
            return False
        except FlowFabricError:  # the store is away: it may be good, and is looked at again
            return True
        # A session notes its use now and then: that is no other caller.
        return replace(caller, session=None) == replace(self._call.caller, session=None)

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
