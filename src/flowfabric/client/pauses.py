"""How long a client goes on asking, and how long each of its waits may be."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from flowfabric.clock import monotonic
from flowfabric.ids import jitter

_LOGGER = logging.getLogger("flowfabric.client")
_FIRST_S: Final = 0.1
_LONGEST_S: Final = 2.0
POLL_MS: Final = 20_000  # the longest wait of one request: shorter than what gateways cut
_POLL_LEAST_MS: Final = 1_000
_CUT_S: Final = 2.0  # a connection that ends sooner was not cut for its length
_CUT_TO: Final = 0.8
_LONGER_AFTER: Final = 30  # whole polls; the cut may have been an accident
_LONGER: Final = 1.25


class Tries:
    """The pauses of one call, until its patience is over: doubling, each drawn from all of its
    length, so that clients do not come back together."""

    def __init__(self, patience_s: float) -> None:
        self._until = monotonic() + patience_s
        self._longest_s = _FIRST_S

    async def again(self, after_ms: int | None = None) -> bool:
        """Pause; false when there is no time left for another try. `after_ms`: what the server
        asked for."""
        pause_s = self._longest_s * jitter()
        if after_ms is not None:
            pause_s += after_ms / 1000
        self._longest_s = min(2 * self._longest_s, _LONGEST_S)
        if monotonic() + pause_s > self._until:
            return False
        await asyncio.sleep(pause_s)
        return True


class Polls:
    """The length of one waiting request: what is between client and server may cut longer ones."""

    def __init__(self) -> None:
        self.ms = POLL_MS
        self._whole = 0
        self._is_told = False

    def was_cut(self, after_s: float) -> None:
        """A request ended without an answer after so long."""
        self._whole = 0
        if after_s <= _CUT_S:
            return
        shorter = max(_POLL_LEAST_MS, int(after_s * 1000 * _CUT_TO))
        if shorter < self.ms:
            self.ms = shorter
            if not self._is_told:
                self._is_told = True
                _LOGGER.warning(
                    "a request that waited was cut off after %.1f s; from now on each waits for "
                    "%.1f s at most",
                    after_s,
                    shorter / 1000,
                )

    def was_whole(self) -> None:
        """A request has waited as long as it asked for."""
        self._whole += 1
        if self.ms < POLL_MS and self._whole >= _LONGER_AFTER:
            self._whole = 0
            self.ms = min(POLL_MS, int(self.ms * _LONGER))
