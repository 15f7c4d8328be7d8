"""Where pools of callers lead to."""

from __future__ import annotations

from typing import Any, Final

_KNOWN_MAX: Final = 100  # pools that are remembered


class KnownPools:
    """Which pools lead to the database of which engine. They are asked once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Any, Any, bool]] = {}

    def get(self, pool: Any, engine: Any) -> bool | None:
        """Whether it leads there; None if that is not known."""
        found = self._known.get((id(pool), id(engine)))
        return None if found is None else found[2]

    def note(self, pool: Any, engine: Any, is_shared: bool) -> None:
        """Remember it."""
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        # They are kept, so that no other object can get their addresses.
        self._known[id(pool), id(engine)] = (pool, engine, is_shared)


KNOWN_POOLS: Final = KnownPools()
