"""Repeated calls: how long the key of an earlier one is known."""

from __future__ import annotations

from typing import Protocol, TypeVar


class Expiring(Protocol):
    """A row that is swept some time after it stopped to count."""

    @property
    def due_at(self) -> int:
        """When it stops to count."""
        ...


K = TypeVar("K", bound=Expiring)


def in_force(row: K | None, now: int) -> K | None:
    """The row of a key; one whose time is over is as if it had never been."""
    return row if row is not None and row.due_at > now else None
