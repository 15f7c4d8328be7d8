"""Running a transaction again after a conflict, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flowfabric.errors import RetryExhausted
from flowfabric.ids import jitter
from flowfabric.limits import CONFLICT_DELAY_MS_BASE, CONFLICT_DELAY_MS_CAP, CONFLICT_TRIES
from flowfabric.stores.base import Store, StoreConflict, Transaction

T = TypeVar("T")


async def transact(
    store: Store,
    work: Callable[[Transaction], Awaitable[T]],
    collided: Callable[[], None] | None = None,
) -> T:
    """Run a transaction until it commits. `collided` is called for each conflict."""
    return await until_no_conflict(lambda: store.transact(work), collided)


async def until_no_conflict(
    run: Callable[[], Awaitable[T]], collided: Callable[[], None] | None = None
) -> T:
    """Up to five tries, full jitter between them, then RetryExhausted."""
    last: StoreConflict | None = None
    for attempt in range(CONFLICT_TRIES):
        try:
            return await run()
        except StoreConflict as conflict:
            last = conflict
            if collided is not None:
                collided()
            ceiling = min(CONFLICT_DELAY_MS_CAP, CONFLICT_DELAY_MS_BASE * 2**attempt)
            await asyncio.sleep(ceiling * jitter() / 1000)
    raise RetryExhausted(f"{CONFLICT_TRIES} tries: {last}")
