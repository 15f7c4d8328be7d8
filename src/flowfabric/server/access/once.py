"""Links that are good once: `ff dev` prints one, so that its browser needs no token."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from flowfabric.clock import monotonic
from flowfabric.ids import new_secret_bytes

LIFE_S: Final = 60.0
_KEPT: Final = 100


class OnceLinks:
    """Those of this process. Only hashes are kept."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._until: dict[bytes, float] = {}

    def make(self) -> str:
        """The secret part of a new one."""
        text = new_secret_bytes(32).hex()
        if len(self._until) >= _KEPT:
            self._until.pop(next(iter(self._until)))
        self._until[_hash(text)] = self._now() + LIFE_S
        return text

    def take(self, text: str) -> bool:
        """Whether it is good, which it never is again."""
        until = self._until.pop(_hash(text), None)
        return until is not None and self._now() < until


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
