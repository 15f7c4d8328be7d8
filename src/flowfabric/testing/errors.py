"""What the testing kit raises."""

from __future__ import annotations


class Stuck(AssertionError):
    """Something does not come to rest, or cannot go on. The text says what, and why."""

    def __init__(self, detail: str, *, is_explained: bool = False) -> None:
        super().__init__(detail)
        self.is_explained = is_explained  # whether the runs that do not end are named


class ReplayMismatch(AssertionError):
    """A handler does not do again what its journal says it did. The text names the call."""
