"""What the store does not know yet of a transaction's changes to graphs."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from flowfabric.engine.unit.view import View
from flowfabric.stores.base import Transaction


class Look(IntEnum):
    """Ways to look at the store. One that goes wrong without a save makes those above it go wrong
    too."""

    BY_KEY = 1  # misses rows that are new or gone and have no image here
    SEARCH = 2  # misses all rows that are new, gone, or in force only now
    SEARCH_RESOLVED = 3  # misses edges that were resolved; other searches correct these afterwards


_NOTHING: Final = 4  # above all looks


class Unsaved:
    """Knows which looks at the store must be preceded by a save."""

    def __init__(self, tx: Transaction, view: View) -> None:
        self._tx = tx
        self._view = view
        self._wrong_from: int = _NOTHING  # the first look that would go wrong

    def note(self, look: Look) -> None:
        """From now on this look would go wrong, and those above it."""
        if look < self._wrong_from:
            self._wrong_from = look

    async def save_before(self, look: Look) -> None:
        """Write what this look would miss."""
        if look >= self._wrong_from:
            await self.save()

    async def save(self) -> None:
        """Write what was decided so far."""
        self._wrong_from = _NOTHING
        if changes := self._view.take_changes():
            await self._tx.save(changes)
