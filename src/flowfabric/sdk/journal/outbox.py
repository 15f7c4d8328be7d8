"""Entries of one handler on their way to its journal.

There is no timer: an entry is sent at the end of the current turn of the event loop, and while one
checkpoint is under way the next entries gather. At most one is under way, so no entry is durable
before an earlier one. Entries that are left when the handler ends go with its report, in the same
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from flowfabric.api.backend import EngineBackend
from flowfabric.model.journal import CodeMark, EntryKind, NewEntry
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed
from flowfabric.sdk.errors import Stopped

T = TypeVar("T")
_ENTRIES: Final = 100  # entries of one checkpoint
_BYTES: Final = 256 * 1024  # of their values, about
_STATE: Final = "state"  # in the place of a key
_OVERHEAD: Final = 64  # bytes of an entry beside its value, about


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
    """The entries of one lease that are not durable yet."""

    def __init__(self, sender: Sender, position: int = 0, code: CodeMark | None = None) -> None:
        self._sender = sender
        self._position = position  # of the next entry that becomes durable
        self._code = code  # for the first entry of a journal
        self._waiting: list[NewEntry] = []  # their positions are given when they are sent
        self._state: bytes | None = None  # to be published
        self._behind = 0  # how many of the waiting entries were there before it
        self._bytes = 0
        self._turn = asyncio.Lock()
        self._is_called = False  # whether the end of this turn will send
        self._sending: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """Whether every entry is durable."""
        return not (self._waiting or self._state is not None or self._turn.locked())

    @property
    def count(self) -> int:
        """How many entries the journal has, with those that are not durable yet."""
        return self._position + len(self._waiting)

    def put(self, entry: NewEntry) -> None:
        """Take an entry. Call it on the loop's own thread."""
        self._waiting.append(entry)
        self._bytes += _size(entry)
        self._call()

    def publish(self, state: bytes, *, at_once: bool = True) -> None:
        """Take what the run publishes: it goes with the entries before it, or right after them. Of
        several the last one counts. Unless `at_once`, it waits for something to go with."""
        self._state, self._behind = state, len(self._waiting)
        if at_once:
            self._call()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._begin)

    async def room(self) -> None:
        """Wait where entries come faster than the store takes them."""
        if len(self._waiting) >= _ENTRIES or self._bytes >= _BYTES:
            await self.flush()

    async def flush(self, next_key: str | None = None) -> None:
        """Return when every entry so far is durable. `next_key`: what waits for that."""
        if self.is_empty:
            return
        async with self._turn:
            while self._waiting or self._state is not None:
                await self._send(self._piece(), next_key)

    async def rest(self) -> tuple[NewEntry, ...]:
        """The entries that were not sent when the handler ended; none can follow."""
        self._is_closed = True
        async with self._turn:
            await self._send_most()
            return self._numbered(self._waiting)

    async def carry(
        self, entries: Sequence[NewEntry], send: Callable[[tuple[NewEntry, ...]], Awaitable[T]]
    ) -> T:
        """Send more entries, and all before them, with something that belongs to them: all or none
        becomes durable. What is refused leaves no trace of the entries."""
        async with self._turn:
            await self._send_most()
            before, state = len(self._waiting), self._state
            answer = await send(self._numbered([*self._waiting, *entries]))
            self._sent(before, state)
            self._position += len(entries)
            return answer

    async def _send_most(self) -> None:
        """Leave no more than one command can carry."""
        while len(self._waiting) >= _ENTRIES or self._bytes > _BYTES:
            await self._send(self._piece(), None)

    def close(self) -> None:
        """The handler has ended: what is left goes with its report."""
        self._is_closed = True

    def raise_error(self) -> None:
        """What went wrong in the background, to the handler's next call."""
        if (error := self._error) is not None:
            self._error = None
            raise error

    def _begin(self) -> None:
        """The turn is over; whatever waits for the entries has sent them already."""
        self._is_called = False
        has_any = self._waiting or self._state is not None
        if has_any and not (self._is_closed or self._turn.locked() or self._sending):
            self._sending = asyncio.create_task(self._send_aside())

    async def _send_aside(self) -> None:
        try:
            await self.flush()
        except Stopped:
            pass  # the handler is stopped, too
        except Exception as error:  # noqa: BLE001 - the handler meets it with its next call
            self._error = error
        finally:
            self._sending = None

    def _piece(self) -> tuple[NewEntry, ...]:
        size, count = 0, 0
        for entry in self._waiting[:_ENTRIES]:
            size += _size(entry)
            count += 1
            if size >= _BYTES:
                break
        return self._numbered(self._waiting[:count])

    def _numbered(self, entries: list[NewEntry]) -> tuple[NewEntry, ...]:
        """Positions count on from what is durable, so that a command that failed leaves no gap."""
        numbered = [replace(entry, position=at) for at, entry in enumerate(entries, self._position)]
        if self._position == 0 and numbered:
            numbered[0] = replace(numbered[0], code=self._code)
        if self._state is not None and len(numbered) >= self._behind:
            at, kind = self._position + len(numbered), EntryKind.STATE
            numbered.append(NewEntry(position=at, key=_STATE, kind=kind, value=self._state))
        return tuple(numbered)

    def _sent(self, count: int, state: bytes | None) -> None:
        """So many entries are durable, and this was published, unless it had to wait."""
        if state is not None and count >= self._behind and self._state is state:
            self._state = None
        self._behind = max(0, self._behind - count)
        self._position += count
        self._bytes -= sum(map(_size, self._waiting[:count]))
        del self._waiting[:count]

    async def _send(self, piece: tuple[NewEntry, ...], next_key: str | None) -> None:
        """What could not be sent stays first in line. Sent again, it is recorded once."""
        handle, state = self._sender.claimed.handle, self._state
        await self._sender.ask(
            lambda engine: engine.checkpoint(handle, entries=piece, next_key=next_key)
        )
        self._sent(sum(each.kind is not EntryKind.STATE for each in piece), state)


def _size(entry: NewEntry) -> int:
    return _OVERHEAD + len(entry.value or b"")
