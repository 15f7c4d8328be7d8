"""Keys that sign waitpoint tokens: one is current, retired ones verify until they expire."""

from __future__ import annotations

from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.model.keys import AlreadySeeded, NothingToRotate, Rotated, Seeded
from flowfabric.model.suspension import KeyInfo


@operation("seed_waitpoint_hmac_secret", Kind.ADMIN, Scope.ADMIN)
class SeedWaitpointHmacSecret(UnsafeRequest[Seeded | AlreadySeeded], frozen=True, kw_only=True):
    """Install the first key; never replaces one that was chosen or has signed.

    The random key of a first start gives way while no waitpoint exists.
    """

    kid: str
    secret_hex: str

    def __repr__(self) -> str:
        return f"SeedWaitpointHmacSecret({self.kid!r})"


@operation("rotate_waitpoint_hmac_secret_all", Kind.ADMIN, Scope.ADMIN)
class RotateWaitpointHmacSecretAll(
    UnsafeRequest[Rotated | NothingToRotate], frozen=True, kw_only=True
):
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
