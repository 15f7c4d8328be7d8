"""Repeated calls: how long the key of an earlier one counts."""

from __future__ import annotations

from typing import Protocol, TypeVar


class Expiring(Protocol):
    """A row that is swept some time after it expired."""

    @property
    def due_at(self) -> int:
        """When it expires."""
        ...


K = TypeVar("K", bound=Expiring)


def in_force(row: K | None, now: int) -> K | None:
    """The row of a key; an expired one counts as missing."""
    return row if row is not None and row.due_at > now else None
