"""Store outages: told once, waited out with growing, jittered pauses."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from flowfabric.errors import FlowFabricError, RetryExhausted, StoreError
from flowfabric.ids import jitter

_LOGGER = logging.getLogger("flowfabric.worker")
_FIRST_S: Final = 0.05
_LONGEST_S: Final = 5.0


def is_outage(error: BaseException) -> bool:
    """Whether the store is the problem and the same call may succeed later."""
    if isinstance(error, FlowFabricError):
        return error.retryable and isinstance(error, StoreError | RetryExhausted)
    return isinstance(error, OSError)


class Outage:
    """What one worker knows about the health of its store."""

    def __init__(self) -> None:
        self._since: BaseException | None = None

    def noticed(self, error: BaseException) -> None:
        """A call failed; only the first of an outage is logged."""
        if self._since is None:
            _LOGGER.warning("the store is failing, trying on: %s", error)
        self._since = error

    def over(self) -> None:
        """A call succeeded."""
        if self._since is not None:
            _LOGGER.warning("the store is back")
            self._since = None


class Patience:
    """The pauses of one loop."""

    def __init__(self, outage: Outage) -> None:
        self._outage = outage
        self._tries = 0

    def reset(self) -> None:
        """A call succeeded: the next pause is short again."""
        self._tries = 0
        self._outage.over()

    def next_pause_s(self, error: BaseException) -> float:
        """How long to wait after this failure; half to all of a doubling length."""
        self._outage.noticed(error)
        longest = min(_LONGEST_S, _FIRST_S * 2.0 ** min(self._tries, 20))
        self._tries += 1
        return longest * (0.5 + jitter() / 2)

    async def pause(self, error: BaseException, unless: asyncio.Event | None = None) -> None:
        """Wait after a failure, unless the event comes first."""
        seconds = self.next_pause_s(error)
        if unless is None:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await unless.wait()
        except TimeoutError:
            return
