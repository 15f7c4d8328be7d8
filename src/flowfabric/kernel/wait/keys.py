"""Signing keys: one is current, retired ones verify until they expire."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from flowfabric.errors import InvalidInput, RotationConflict
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused, refuse
from flowfabric.kernel.wait.token import current, gives_way
from flowfabric.limits import KEY_GRACE_MS_DEFAULT
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.keys import AlreadySeeded, NothingToRotate, Rotated, Seeded
from flowfabric.model.record import replace
from flowfabric.model.suspension import SecretRow

KIDS_MAX = 32  # keys that verify at once


class SeedKey(Command[Seeded | AlreadySeeded], frozen=True, kw_only=True):
    """Install the first key, or one in the place of a random key that has signed nothing."""

    kid: str
    secret_hex: str
    is_automatic: bool = False

    def needs(self, need: Needs) -> None:
        """The store's clock."""
        need.catalog = True

    def __repr__(self) -> str:
        return f"SeedKey({self.kid!r})"


class RotateKey(Command[Rotated | NothingToRotate], frozen=True, kw_only=True):
    """Make another key current; the one before verifies for a while."""

    kid: str
    secret_hex: str
    grace_ms: int
    is_given: bool  # by the caller; a random secret is not compared with a stored one

    def needs(self, need: Needs) -> None:
        """The store's clock."""
        need.catalog = True

    def __repr__(self) -> str:
        return f"RotateKey({self.kid!r})"


def seed_key(
    stored: Sequence[SecretRow], command: SeedKey, at: Moment, *, is_used: bool
) -> Decision[Seeded | AlreadySeeded]:
    """Never replaces a key that was chosen or has signed; `is_used`: a waitpoint was signed."""
    kid, secret = command.kid, command.secret_hex
    known = next((each for each in stored if each.kid == kid), None)
    if not gives_way(stored, is_used=is_used):
        if known is not None:
            return Decision(AlreadySeeded(kid, same_secret(known, secret)))
        if stored:
            return refuse(InvalidInput, "kid: another key is current, rotate instead", field="kid")
    events = () if command.is_automatic else (_audit(kid, OperatorEventType.KEY_SEEDED, at),)
    if stored and known is None:
        replaced = _rotated(stored, kid, secret, KEY_GRACE_MS_DEFAULT, at)
        return replace(replaced, events=events).told(Seeded(kid))
    first = SecretRow(kid, secret, at.now, 1, None, int(command.is_automatic))
    return Decision(Seeded(kid), events=events, saves=(first,))


def rotate_key(
    stored: Sequence[SecretRow], command: RotateKey, at: Moment
) -> Decision[Rotated | NothingToRotate]:
    """The current key retires; one that still verifies may become current again."""
    kid = command.kid
    kept = [each for each in stored if not is_over(each, at.now)]
    known = next((each for each in kept if each.kid == kid), None)
    if known is not None:
        if command.is_given and not same_secret(known, command.secret_hex):
            detail = f"new_kid: {kid} has another secret"
            return refuse(RotationConflict, detail, field="new_kid")
        if known.is_current:
            return Decision(NothingToRotate(kid))
    elif len(kept) >= KIDS_MAX:
        return refuse(InvalidInput, f"new_kid: {KIDS_MAX} keys still verify", field="new_kid")
    decision = _rotated(stored, kid, command.secret_hex, command.grace_ms, at)
    if isinstance(rotated := decision.reply, Refused):
        return decision
    details = {"previous_kid": rotated.previous_kid, "grace_ms": command.grace_ms}
    return decision.audited(_audit(kid, OperatorEventType.KEY_ROTATED, at, **details))


def _rotated(
    stored: Sequence[SecretRow], kid: str, secret: str, grace_ms: int, at: Moment
) -> Decision[Rotated]:
    """Keys that are over go, the current one retires, then the new one is current: in this order,
    for there must never be two current keys."""
    gone = tuple(each for each in stored if is_over(each, at.now))
    kept = [each for each in stored if each not in gone]
    old = current(kept)
    retired = () if old is None else (replace(old, is_current=0, due_at=at.now + grace_ms),)
    known = next((each for each in kept if each.kid == kid), None)
    if known is None:
        new = SecretRow(kid, secret, at.now, 1, None)
    else:
        new = replace(known, is_current=1, due_at=None, created_at=at.now)
    reply = Rotated(None if old is None else old.kid, kid, len(gone))
    return Decision(reply, saves=(*retired, new), drops=gone)


def is_over(row: SecretRow, now: int) -> bool:
    """Whether a retired key verifies no more."""
    return row.due_at is not None and row.due_at <= now


def same_secret(row: SecretRow, secret_hex: str) -> bool:
    """Whether this is the secret of a key, compared in constant time."""
    return hmac.compare_digest(row.secret_hex.encode(), secret_hex.encode())


def _audit(kid: str, what: OperatorEventType, at: Moment, **details: object) -> OperatorEvent:
    """What is told of a key: its name and never its secret."""
    return OperatorEvent(kid, what, details, "", {}, at.now)
