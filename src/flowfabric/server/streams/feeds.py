"""The feed of events for many clients: those that want the same share one reading of it.

A client first reads by itself what it has missed, and then up to the place of the shared reading.
When it has come to that very place it goes on with the others: nothing is given twice, and nothing
is left out, whatever happens in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextlib import suppress
from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.events import NOW, ReadEvents, SubscribeEvents
from flowfabric.errors import FlowFabricError
from flowfabric.model.feed import EventPage
from flowfabric.model.record import replace
from flowfabric.server.plain import problem, to_body
from flowfabric.server.streams.reader import Reader, block_of, told
from flowfabric.trouble import is_passing

PAGE: Final = 100
_PACE_S: Final = 0.05  # between two pages: what happens together is sent together
_PACE_OF_ONE_S: Final = 0.000_02  # and so much more for each client: thousands are written to
_AT_ONCE: Final = 100  # clients that are woken in one turn of the event loop
_PAUSE_S: Final = 1.0  # where the store is away
_WAIT_MS: Final = 30_000


def put(reader: Reader, page: EventPage) -> None:
    """A page of events for one reader."""
    reader.put(_part(page), len(page.events), page.cursor)


def _part(page: EventPage) -> bytes:
    return b"".join(block_of(each, each.cursor) for each in page.events)


class SharedFeed:
    """One reading of the feed for all clients that want the same events."""

    def __init__(self, engine: EngineBackend, wanted: ReadEvents) -> None:
        self._engine = engine
        self._wanted = replace(wanted, after=None, limit=PAGE)
        self._following: set[Reader] = set()
        self.joined: set[Reader] = set()
        self._cursor: str | None = None
        self._moved = asyncio.Event()
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no client follows it."""
        return not self._following

    async def follow(self, reader: Reader) -> None:
        """All that comes after the reader's cursor, for as long as this is awaited."""
        await self._catch_up(reader, None)
        self._following.add(reader)
        if self._task is None or self._task.done():  # it ends by what it cannot read
            self._cursor = None
            self._task = asyncio.create_task(self._read_on(), name="flowfabric-feed")
        try:
            await self._join(reader)
            await asyncio.Event().wait()
        finally:
            self.joined.discard(reader)
            self._following.discard(reader)
            if not self._following and self._task is not None:
                self._task.cancel()
                self._task = None
                self._cursor = None

    async def _join(self, reader: Reader) -> None:
        while self._cursor is None:
            await self._next()
        while reader.cursor != self._cursor:
            place = self._cursor
            await self._catch_up(reader, place)
            if reader.cursor != place:
                # It has seen what the others have not yet.
                self._asked.set()
                await self._next()
        self.joined.add(reader)

    async def _next(self) -> None:
        """Return when the shared reading has moved, or has looked in vain."""
        await self._moved.wait()

    async def _catch_up(self, reader: Reader, until: str | None) -> None:
        """What there is by now, or up to a place, no faster than the client takes it."""
        while True:
            await reader.room.wait()
            read = replace(self._wanted, after=reader.cursor, until=until)
            page = await self._engine.call(read)
            put(reader, page)
            if page.is_end:
                return

    # --- the shared reading --------------------------------------------------------------------

    async def _read_on(self) -> None:
        while True:
            try:
                page = await self._page()
            except FlowFabricError as error:
                if not is_passing(error):
                    self._end(told("problem", to_body(problem(error))))
                    return
                await asyncio.sleep(_PAUSE_S)
                continue
            self._cursor = page.cursor
            if page.events:
                await self._give(_part(page), len(page.events), page.cursor)
            else:
                for each in self.joined:
                    each.cursor = page.cursor
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()
            if page.events:
                await asyncio.sleep(_PACE_S + len(self.joined) * _PACE_OF_ONE_S)

    async def _give(self, part: bytes, events: int, cursor: str) -> None:
        """To those that are there now: one that joins meanwhile has seen it. A few at a time, so
        that thousands of clients do not hold up everything else."""
        for number, each in enumerate(list(self.joined), 1):
            each.put(part, events, cursor)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _page(self) -> EventPage:
        """The next page, as soon as there is one, or a client asks where the feed is now."""
        wanted = SubscribeEvents(
            kinds=self._wanted.kinds,
            filter=self._wanted.filter,
            after=self._cursor or NOW,
            limit=PAGE,
            wait_ms=0,
        )
        if self._cursor is None:
            return await self._engine.call(wanted)
        self._asked.clear()
        waiting = asyncio.ensure_future(self._engine.call(replace(wanted, wait_ms=_WAIT_MS)))
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((waiting, asked), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
        finally:
            for each in (waiting, asked):
                each.cancel()
                with suppress(asyncio.CancelledError, FlowFabricError):
                    await each
        return await self._engine.call(wanted)

    def _end(self, last: bytes) -> None:
        for each in self._following:  # those too that are about to join
            each.end(last)


class Feeds:
    """The shared readings of a server."""

    def __init__(self, engine: EngineBackend) -> None:
        self._engine = engine
        self._open: dict[Hashable, SharedFeed] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._open)

    def readers(self) -> list[Reader]:
        """All that have joined one."""
        return [reader for feed in self._open.values() for reader in feed.joined]

    async def follow(self, wanted: ReadEvents, reader: Reader) -> None:
        """Give the reader what comes, with all others that want the same."""
        key = (tuple(wanted.kinds), wanted.filter)
        feed = self._open.get(key)
        if feed is None:
            feed = self._open[key] = SharedFeed(self._engine, wanted)
        try:
            await feed.follow(reader)
        finally:
            if feed.is_idle and self._open.get(key) is feed:
                del self._open[key]
