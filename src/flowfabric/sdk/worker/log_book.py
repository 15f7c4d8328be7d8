"""Log lines of handlers on their way to the store.

A line costs no call: those of a short handler go with its report, in the same transaction, and
those of a longer one about once a second, all handlers of the worker together. Lines are numbered,
so a repeated call writes none twice. A book is full when the log of an attempt would be, so it
needs no more memory than that; what comes then is counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.model.handle import Handle
from flowfabric.model.log_lines import LogBatch, NewLine
from flowfabric.trouble import may_pass

_LOGGER = logging.getLogger("flowfabric.worker")
_NUMBERS: Final = 1 << 30  # each lease numbers its lines from its epoch times this
_GATHER_S: Final = 1.0  # how long lines gather; so much of them a crash may lose

Append = Callable[[LogBatch], Awaitable[Any]]


class LogBook:
    """The lines of one lease that are not stored yet. Any thread may add one."""

    __slots__ = (
        "_bytes",
        "_count",
        "_dropped",
        "_first",
        "_handle",
        "_is_closed",
        "_is_full",
        "_is_noted",
        "_lines",
        "_lock",
        "_rest",
        "_turn",
        "_wake",
    )

    def __init__(self, handle: Handle, wake: Callable[[LogBook], None]) -> None:
        self._handle = handle
        self._wake = wake
        # Not a plain lock: a signal handler or a finalizer may log while its thread adds a line.
        self._lock = threading.RLock()
        self._turn = asyncio.Lock()  # a report must not overtake lines that are being sent
        self._lines: list[NewLine] = []
        self._dropped = 0
        self._first = handle.lease_epoch * _NUMBERS + 1  # the number of the first line in the book
        self._count = self._bytes = 0  # of all lines of the lease
        self._is_full = self._is_closed = self._is_noted = False
        self._rest: LogBatch | None = None

    def add(self, line: NewLine) -> None:
        """Take a line, or count it where there is no room."""
        with self._lock:
            if self._is_closed:
                return
            was_full, size = self._is_full, line.size
            self._is_full = (
                was_full
                or self._count >= limits.LOG_LINES_MAX
                or self._bytes + size > limits.LOG_BYTES_MAX
            )
            if self._is_full:
                self._dropped += 1
            else:
                self._count += 1
                self._bytes += size
                self._lines.append(line)
            if was_full or self._is_noted:
                return
            self._is_noted = True
        self._wake(self)

    async def send(self, engine: EngineBackend) -> bool:
        """Store what has gathered; False if it has to be tried again."""
        try:
            await self.flush(lambda batch: engine.append_logs(self._handle, logs=batch))
        except Exception as error:  # noqa: BLE001 - a log is not worth an attempt
            if may_pass(error):
                return False
            _LOGGER.debug("lines of %s are dropped: %s", self._handle.execution_id, error)
            self._is_closed = True  # the lease is gone
        return True

    async def flush(self, append: Append) -> None:
        """Return when every line so far is stored."""
        async with self._turn:
            self._is_noted = False  # what comes from now on is for the next time
            if self._is_closed or (batch := self._batch()) is None:
                return
            await append(batch)
            with self._lock:
                del self._lines[: len(batch.lines)]
                self._dropped -= batch.dropped
                self._first += len(batch.lines) + batch.dropped

    async def rest(self) -> LogBatch | None:
        """The lines that were not sent when the handler ended; what comes later is not kept."""
        async with self._turn:
            if not self._is_closed:
                with self._lock:
                    self._is_closed = True
                    self._rest = self._batch()
            return self._rest

    def _batch(self) -> LogBatch | None:
        with self._lock:
            if not self._lines and not self._dropped:
                return None
            return LogBatch(lines=tuple(self._lines), dropped=self._dropped, first=self._first)


class Scribe:
    """Sends the lines of all handlers of a worker, now and then."""

    def __init__(self, engine: EngineBackend) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._process_id = os.getpid()
        self._waiting: set[LogBook] = set()
        self._awake = asyncio.Event()

    @property
    def is_here(self) -> bool:
        """Whether this is the worker's own process, not one that a handler has forked."""
        return os.getpid() == self._process_id

    def wake(self, book: LogBook) -> None:
        """A book has its first line. Any thread may call it."""
        with suppress(RuntimeError):  # the loop is closed: the handler outlived its worker
            self._loop.call_soon_threadsafe(self._note, book)

    def _note(self, book: LogBook) -> None:
        self._waiting.add(book)
        self._awake.set()

    async def run(self) -> None:
        """Send, again and again, until cancelled."""
        while True:
            await self._awake.wait()
            await asyncio.sleep(_GATHER_S)
            self._awake.clear()
            books, self._waiting = tuple(self._waiting), set()
            sent = await asyncio.gather(*(book.send(self._engine) for book in books))
            for book, is_sent in zip(books, sent, strict=True):
                if not is_sent:
                    self._note(book)
