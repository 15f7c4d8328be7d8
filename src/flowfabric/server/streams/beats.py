"""A clock for all streams of a server: one timer however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_TICK_S: Final = 1.0


class Beats:
    """Wakes streams once a second, and at once when the server stops."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._bells: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def waking(self, bell: asyncio.Event) -> Iterator[None]:
        """The bell rings while the block runs."""
        self._bells.add(bell)
        if self._task is None:
            self._task = asyncio.create_task(self._tick(), name="flowfabric-beats")
        try:
            yield
        finally:
            self._bells.discard(bell)
            if not self._bells:
                self._task.cancel()
                self._task = None

    async def _tick(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._stopping.wait()
            for bell in self._bells:
                bell.set()
            if self._stopping.is_set():
                await asyncio.sleep(_TICK_S)
