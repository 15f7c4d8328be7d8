"""Replies about signing keys; never a secret."""

from __future__ import annotations

from flowfabric.model.record import Record


class Seeded(Record, frozen=True, tag=True):
    """The key is installed and current."""

    kid: str


class AlreadySeeded(Record, frozen=True, tag=True):
    """A key of this name exists."""

    kid: str
    same_secret: bool


class Rotated(Record, frozen=True, tag=True):
    """A new key is current; `gc_count` expired ones were removed."""

    previous_kid: str | None
    new_kid: str
    gc_count: int


class NothingToRotate(Record, frozen=True, tag=True):
    """The key is current already."""

    kid: str
