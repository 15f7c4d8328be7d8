"""What is on its way to one client that follows a stream.

What follows a stream is read in pages, each with the cursor behind it, so a client that was cut off
goes on where it was. A client that does not keep up is told so and left: nothing piles up for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from flowfabric.model.record import to_json
from flowfabric.server.plain import to_body

HELD_EVENTS_MAX: Final = 256
HELD_BYTES_MAX: Final = 1 << 20


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


def told(name: str | None, data: bytes, cursor: str | None = None) -> bytes:
    """One event as its lines; JSON has no line breaks."""
    parts = [b"id: %s\n" % cursor.encode() if cursor is not None else b""]
    parts.append(b"event: %s\n" % name.encode() if name is not None else b"")
    return b"%s%sdata: %s\n\n" % (*parts, data)


def block_of(value: object, cursor: str) -> bytes:
    """One thing that happened, with the cursor behind it."""
    return told(None, to_body(value), cursor)


def ending_of(name: str, **fields: Any) -> bytes:
    """A last event with what is known of the end."""
    return told(name, to_json(fields))
