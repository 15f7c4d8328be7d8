"""Handlers that wait and stay in memory, so that they go on where they are instead of from the top.

That is never needed: a handler that is dropped, or whose execution another worker has had since, is
called again and answered from its journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flowfabric.model.results import Claimed
from flowfabric.sdk.errors import Suspension

if TYPE_CHECKING:  # what is kept keeps itself here
    from flowfabric.sdk.worker.held import Held

KEPT_S: Final = 600.0  # so long a handler that waits is kept
_EPOCHS: Final = 2  # of the end of a lease and the next claim, with none in between


class Warm:
    """The waiting handlers of one worker, the oldest first."""

    def __init__(self, limit: int, parked: Callable[[Held], None]) -> None:
        self._limit = limit
        self._parked = parked  # told of each that begins to wait: its slot is free
        self._kept: dict[str, tuple[Held, asyncio.Future[None], float]] = {}  # and until when
        self._timer: asyncio.TimerHandle | None = None  # one for all: each wait looks at the loop's

    def __len__(self) -> int:
        return len(self._kept)

    def expect(self, held: Held) -> None:
        """Its wait has begun, so it may be claimed at any time: a place for its handler, which is
        about to come here."""
        key = held.claimed.execution_id
        if not self._limit or held.is_drained:
            return
        self.drop(key)
        while len(self._kept) >= self._limit:
            self.drop(next(iter(self._kept)))
        loop = asyncio.get_running_loop()
        revived: asyncio.Future[None] = loop.create_future()
        self._kept[key] = (held, revived, loop.time() + KEPT_S)
        if self._timer is None:
            self._timer = loop.call_later(KEPT_S, self._expire)

    async def keep(self, held: Held) -> None:
        """Return when this worker has claimed the execution again, and no other one has had it
        since; raises `Suspension` when the handler is dropped."""
        if not held.is_suspended:
            return  # it was claimed before it came here
        key = held.claimed.execution_id
        kept = self._kept.get(key)
        if kept is None or kept[0] is not held:
            raise Suspension(key)
        revived = kept[1]
        self._parked(held)
        try:
            await revived
        except asyncio.CancelledError:
            raise Suspension(key) from None  # whatever interrupts it meanwhile counts no more
        finally:
            self._forget(key, revived)

    def take(self, claimed: Claimed) -> Held | None:
        """The handler that goes on with a new lease, if it waits here and was not overtaken."""
        kept = self._kept.get(claimed.execution_id)
        if kept is None:
            return None
        before = kept[0].claimed
        is_next = claimed.handle.fence.lease_epoch == before.handle.fence.lease_epoch + _EPOCHS
        if is_next and claimed.attempt_index == before.attempt_index and not kept[1].done():
            return kept[0]
        self.drop(claimed.execution_id)
        return None

    def revive(self, held: Held) -> None:
        """It goes on."""
        key = held.claimed.execution_id
        _, revived, _ = self._kept[key]
        revived.set_result(None)
        self._forget(key, revived)

    def drop(self, execution_id: str) -> None:
        """A handler ends at its wait: it is called anew, or by another worker."""
        if (kept := self._kept.get(execution_id)) is not None:
            _, revived, _ = kept
            if not revived.done():
                revived.set_exception(Suspension(execution_id))
                revived.exception()  # retrieved: its handler may never come for it
            self._forget(execution_id, revived)

    def drop_all(self) -> None:
        """The worker stops."""
        for key in list(self._kept):
            self.drop(key)

    def _expire(self) -> None:
        """Drop those whose time is over, and look again when that of the next one is."""
        self._timer, loop = None, asyncio.get_running_loop()
        for key, (_, _, until) in list(self._kept.items()):
            if until > loop.time():
                self._timer = loop.call_at(until, self._expire)
                return
            self.drop(key)

    def _forget(self, key: str, revived: asyncio.Future[None]) -> None:
        kept = self._kept.get(key)
        if kept is not None and kept[1] is revived:
            del self._kept[key]
        if not self._kept and self._timer is not None:
            self._timer.cancel()
            self._timer = None
