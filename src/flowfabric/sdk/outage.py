"""Errors of the store: logged once, waited out with growing, jittered pauses."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from flowfabric.errors import FlowFabricError
from flowfabric.ids import jitter
from flowfabric.model.shown import mask

_LOGGER = logging.getLogger("flowfabric.worker")
_FIRST_S: Final = 0.05
_LONGEST_S: Final = 5.0


class Outage:
    """The health of the store as one worker sees it: which of its loops are failing."""

    def __init__(self) -> None:
        self._failing: set[Patience] = set()

    def begin(self, loop: Patience, error: BaseException) -> None:
        """A loop's call failed; only the first error of an outage is logged, with its traceback
        when it was not expected."""
        if not self._failing:
            foreseen = isinstance(error, FlowFabricError | OSError)
            text = "the store is failing, trying on: %s"
            _LOGGER.warning(text, mask(str(error)), exc_info=None if foreseen else error)
        self._failing.add(loop)

    def end(self, loop: Patience) -> None:
        """A loop's call succeeded; the outage is over when all of them do."""
        if loop in self._failing:
            self._failing.discard(loop)
            if not self._failing:
                _LOGGER.warning("the store is back")


class Patience:
    """The pauses of one loop."""

    def __init__(self, outage: Outage) -> None:
        self._outage = outage
        self._tries = 0

    def reset(self) -> None:
        """A call succeeded: the next pause is short again."""
        self._tries = 0
        self._outage.end(self)

    def next_pause_s(self, error: BaseException) -> float:
        """How long to wait after this failure; half to all of a doubling length.

        An error that the next try repairs is no outage: a statement was cancelled, a connection
        closed.
        """
        if self._tries:
            self._outage.begin(self, error)
        else:
            _LOGGER.debug("the store failed, trying again: %s", mask(str(error)))
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
