"""Keys that sign waitpoint tokens: one is current, retired ones verify until they expire."""

from __future__ import annotations

from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.errors import RotationConflict
from flowfabric.model.record import Record
from flowfabric.model.suspension import KeyInfo


class Seeded(Record, frozen=True, tag=True):
    """The key is installed and current."""

    kid: str


class AlreadySeeded(Record, frozen=True, tag=True):
    """A key of this name was there."""

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


@operation("seed_waitpoint_hmac_secret", Kind.ADMIN, Scope.ADMIN)
class SeedWaitpointHmacSecret(Request[Seeded | AlreadySeeded], frozen=True, kw_only=True):
    """Install the first key; never replaces one that was chosen or has signed.

    The random key of a first start gives way while no waitpoint exists.
    """

    kid: str
    secret_hex: str

    def __repr__(self) -> str:
        return f"SeedWaitpointHmacSecret({self.kid!r})"


@operation("rotate_waitpoint_hmac_secret_all", Kind.ADMIN, Scope.ADMIN, errors=(RotationConflict,))
class RotateWaitpointHmacSecretAll(Request[Rotated | NothingToRotate], frozen=True, kw_only=True):
    """Sign with a new key (random unless given); the old one verifies for `grace_ms` more."""

    new_kid: str
    new_secret_hex: str | None = None
    grace_ms: int | None = None

    def __repr__(self) -> str:
        return f"RotateWaitpointHmacSecretAll({self.new_kid!r})"


@operation("list_waitpoint_hmac_kids", Kind.READ, Scope.ADMIN)
class ListWaitpointHmacKids(Request[tuple[KeyInfo, ...]], frozen=True, kw_only=True):
    """The keys that verify tokens, without their secrets; all of them, for a
    rotation keeps few."""
