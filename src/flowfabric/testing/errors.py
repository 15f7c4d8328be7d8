"""What the testing kit raises."""

from __future__ import annotations


class Stuck(AssertionError):
    """Something does not come to rest, or cannot go on. The text says what, and why."""


class ReplayMismatch(AssertionError):
    """A handler does not do again what its journal says it did. The text names the call."""
