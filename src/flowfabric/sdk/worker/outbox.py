"""Frames of one handler on their way to its stream.

There is no timer: while one append is under way the next frames gather. Frames are numbered as they
are sent, so a repeated append writes none twice; the frames that are left when the handler ends go
with its report, in the same transaction.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from flowfabric.api.backend import EngineBackend
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed
from flowfabric.model.stream import Appended, NewFrame
from flowfabric.sdk.errors import Stopped

T = TypeVar("T")
_FRAMES: Final = 500  # frames of one append
_BYTES: Final = 1024 * 1024  # of their payloads, about
_NUMBERS: Final = 1 << 30  # each lease numbers its frames from its epoch times this


class Sender(Protocol):
    """What an outbox needs of the worker."""

    @property
    def claimed(self) -> Claimed:
        """The execution."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the lease is lost."""
        ...

    async def ask(self, operation: Callable[[EngineBackend], Awaitable[T]]) -> T:
        """An engine call that is repeated while the store is away."""
        ...


class Outbox:
    """The frames of one lease, in the order in which they were emitted."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._waiting: deque[NewFrame] = deque()
        self._bytes = 0
        self._number = sender.claimed.handle.lease_epoch * _NUMBERS
        self._turn = asyncio.Lock()  # appends of one stream must not overtake each other
        self._sending: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._rest: tuple[NewFrame, ...] | None = None  # once the handler has ended

    async def emit(self, frame: NewFrame) -> None:
        """Take a frame; waits only where frames come faster than the store takes them."""
        self._refuse_late()
        self._waiting.append(frame)
        self._bytes += len(frame.payload)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        if len(self._waiting) >= _FRAMES or self._bytes >= _BYTES:
            await self.flush()

    async def change(self, frame: NewFrame) -> int:
        """Change the summary, after all frames before; the version it has then. Alone, so that a
        change that is refused takes no other frame with it."""
        self._refuse_late()
        async with self._turn:
            await self._send_waiting()
            appended = await self._append((self._numbered(frame),))
        return appended.summary_version or 0

    async def flush(self) -> None:
        """Return when every frame emitted so far is stored."""
        async with self._turn:
            await self._send_waiting()

    async def rest(self) -> tuple[NewFrame, ...]:
        """The frames that were not sent when the handler ended; none can follow."""
        async with self._turn:
            if self._rest is None:
                self._rest = tuple(map(self._numbered, self._waiting))
                self._waiting.clear()
            return self._rest

    def _refuse_late(self) -> None:
        if self._sender.is_stopped or self._rest is not None:
            raise Stopped(self._sender.claimed.execution_id)
        if (error := self._error) is not None:
            self._error = None
            raise error

    async def _send(self) -> None:
        try:
            await self.flush()
        except Exception as error:  # noqa: BLE001 - the handler meets it with its next frame
            self._error = error
        finally:
            self._sending = None

    async def _send_waiting(self) -> None:
        """Send what has gathered, piece by piece. What could not be sent stays first in line."""
        while self._waiting:
            piece = [self._numbered(frame) for frame in self._taken()]
            try:
                await self._append(tuple(piece))
            except BaseException:
                self._waiting.extendleft(reversed(piece))
                self._bytes += sum(len(frame.payload) for frame in piece)
                raise

    def _taken(self) -> list[NewFrame]:
        taken: list[NewFrame] = []
        size = 0
        while self._waiting and len(taken) < _FRAMES and size < _BYTES:
            taken.append(self._waiting.popleft())
            size += len(taken[-1].payload)
        self._bytes -= size
        return taken

    def _numbered(self, frame: NewFrame) -> NewFrame:
        if frame.seq is not None:
            return frame  # sent before, and perhaps stored
        self._number += 1
        return replace(frame, seq=self._number)

    async def _append(self, frames: tuple[NewFrame, ...]) -> Appended:
        handle = self._sender.claimed.handle
        return await self._sender.ask(lambda engine: engine.append_frames(handle, frames=frames))
