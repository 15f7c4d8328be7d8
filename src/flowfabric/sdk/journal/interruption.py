"""Waits that the handler itself interrupts: another run could not know of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from flowfabric.sdk.errors import Suspension, UnrecordedTimeout
from flowfabric.sdk.journal.joins import is_ended_by_group

T = TypeVar("T")
_ON_TIMEOUT: Final = getattr(asyncio.Timeout, "_on_timeout", None)
_REMEDY: Final = "which no other run of it could know: give the wait timeout=…, or use ctx.first_of"


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
            f"a wait was cancelled by the handler itself, by asyncio.timeout or a cancel, {_REMEDY}"
        ) from None


def refuse_timeouts(tasks: Iterable[object]) -> None:
    """Refuse to wait without a worker inside of `asyncio.timeout`: it ends with the handler, or
    runs out with no lease, and the wait would go on as if it were not there.

    asyncio tells of these timers in no public way; on a loop that does not keep them as its own
    loops do they are not noticed.
    """
    several: list[Any] = [each for each in tasks if isinstance(each, asyncio.Task)]
    loop = asyncio.get_running_loop()
    timers = getattr(loop, "timers", None)  # of the testing kit's loop
    for timer in getattr(loop, "_scheduled", ()) if timers is None else timers:
        callback: Any = getattr(timer, "_callback", None)
        if getattr(callback, "__func__", None) is not _ON_TIMEOUT or timer.cancelled():
            continue
        if getattr(callback.__self__, "_task", None) in several:
            raise UnrecordedTimeout(f"a wait stands in asyncio.timeout(), {_REMEDY}")
