"""Watching the logs for all subscribers of a process together.

Hints wake the watch at once where something ended or began to wait; for everything else, and where
hints are lost, it looks at the ends of all logs once a second: one query, however many wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from flowfabric.api.hints import wait_event
from flowfabric.trouble import is_passing

LOOK_EVERY_S: Final = 1.0
HINTS_EVERY_S: Final = 0.02  # a busy engine hints thousands of times a second

Look = Callable[[], Awaitable[Any]]


class Watch:
    """One subscriber's view of the logs."""

    def __init__(self, bell: asyncio.Event) -> None:
        self._bell = bell

    def ring(self) -> None:
        """The logs have grown."""
        self._bell.set()

    async def changed(self, timeout_s: float) -> bool:
        """Whether the logs have grown, within so long."""
        return await wait_event(self._bell, timeout_s)


class FeedWatch:
    """Looks at the logs while anything subscribes to them."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._watches: set[Watch] = set()
        self._hinted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, bell: asyncio.Event | None = None) -> Iterator[Watch]:
        """A watch that rings from here on, also when `bell` is set; begin it before you read."""
        watch = Watch(bell or asyncio.Event())
        self._watches.add(watch)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield watch
        finally:
            self._watches.discard(watch)
            if not self._watches and self._task is not None:
                self._task.cancel()
                self._task = None

    def hint(self) -> None:
        """Something may have been written."""
        if self._watches:
            self._hinted.set()

    async def close(self) -> None:
        """End the watch; what still subscribes reads once more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        seen = None
        while True:
            try:
                ends = await self._look()
            except Exception as error:
                if not is_passing(error):
                    raise
                ends = seen
            if ends != seen:
                seen = ends
                for watch in self._watches:
                    watch.ring()
            if await wait_event(self._hinted, LOOK_EVERY_S):
                await asyncio.sleep(HINTS_EVERY_S)
