"""The pulse of the event loop: by how much its turns come late."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from flowfabric.clock import monotonic

_BEAT_S: Final = 0.25
_REMEMBERED: Final = 40  # beats: ten seconds


class Pulse:
    """Beats four times a second while it runs."""

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=_REMEMBERED)
        self._expected = monotonic()  # the next beat
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Beat from now on."""
        self._expected = monotonic() + _BEAT_S
        self._task = asyncio.create_task(self._beat(), name="flowfabric-pulse")

    def stop(self) -> None:
        """Beat no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def lag_s(self) -> float:
        """The worst delay of the last ten seconds."""
        return max(self._late, default=0.0)

    def lag_now_s(self) -> float:
        """The delay of the last beat, or of the one that is due."""
        last = self._late[-1] if self._late else 0.0
        return last if self._task is None else max(last, monotonic() - self._expected)

    async def _beat(self) -> None:
        while True:
            self._expected = monotonic() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            self._late.append(max(0.0, monotonic() - self._expected))
