"""Waits that the handler itself interrupts: another run could not know of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from flowfabric.sdk.errors import Suspension, UnrecordedTimeout
from flowfabric.sdk.journal.joins import is_ended_by_group

T = TypeVar("T")


async def to_its_end(operation: Coroutine[Any, Any, T]) -> T:
    """Await an operation that is not left half done: an interruption takes effect at its end, since
    only its reply can tell what has happened."""
    asking = asyncio.ensure_future(operation)
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        await asyncio.wait([asking])
        if not asking.cancelled():
            asking.exception()  # retrieved, so that it is not logged
        raise


async def interruptible(owner: Any, waiting: Awaitable[T]) -> T:
    """Await a wait. One that `asyncio.timeout` or a `cancel` of the handler's own cuts off is
    refused: nothing records that it was, so another run of the handler would wait again."""
    try:
        return await waiting
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if owner.is_suspended:  # the handler waits without a lease: it ends here
            raise Suspension(owner.claimed.execution_id) from None
        if owner.is_stopped or task is None or owner.journal.is_ending(task):
            raise
        if is_ended_by_group(task):
            raise
        raise UnrecordedTimeout(
            "a wait was cancelled by the handler itself, by asyncio.timeout or a cancel, which no "
            "other run of it could know: give the wait timeout=…, or use ctx.first_of"
        ) from None
