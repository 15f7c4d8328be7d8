"""A worker that runs beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from flowfabric import Fabric, Worker

WAIT_S = 60.0  # longer than any of these ever takes; reached only by a bug


@asynccontextmanager
async def working(fabric: Fabric, **settings: Any) -> AsyncIterator[Worker]:
    """Run a worker while the block runs, then drain it. Handlers that wait are called again: what
    is kept in memory hides what a journal lacks."""
    worker = Worker(fabric, **{"poll_interval": "50ms", "warm": 0, **settings})
    running = asyncio.create_task(worker.run(handle_signals=False))
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def within(awaitable: Awaitable[Any]) -> Any:
    """The answer, or a failure instead of a hang."""
    async with asyncio.timeout(WAIT_S):
        return await awaitable


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when the condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not await condition():  # noqa: ASYNC110 - what the store says sets no event
            await asyncio.sleep(0.01)
