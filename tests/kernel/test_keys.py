"""Signing keys: which one is current, which verify, and which may be replaced."""

from __future__ import annotations

from flowfabric.errors import InvalidInput, RotationConflict
from flowfabric.kernel.decision import Moment
from flowfabric.kernel.wait.keys import KIDS_MAX, RotateKey, SeedKey, rotate_key, seed_key
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.keys import AlreadySeeded, NothingToRotate, Rotated, Seeded
from flowfabric.model.record import replace
from flowfabric.model.suspension import SecretRow
from tests.support.builders import NOW, refusal

AT = Moment(NOW)
GRACE = 1000
OLD = SecretRow("k1", "aa", NOW - 10, 1, None)
RANDOM = replace(OLD, is_automatic=1)


def seed(kid: str = "k2", secret: str = "bb", is_automatic: bool = False) -> SeedKey:
    return SeedKey(kid=kid, secret_hex=secret, is_automatic=is_automatic)


def rotate(kid: str = "k2", secret: str = "bb", is_given: bool = True) -> RotateKey:
    return RotateKey(kid=kid, secret_hex=secret, grace_ms=GRACE, is_given=is_given)


def test_the_first_key_is_installed_as_it_is() -> None:
    decision = seed_key([], seed(), AT, is_used=False)
    assert decision.reply == Seeded("k2")
    assert decision.saves == (SecretRow("k2", "bb", NOW, 1, None),)
    (event,) = decision.events
    assert isinstance(event, OperatorEvent)
    assert (event.subject, event.event_type) == ("k2", OperatorEventType.KEY_SEEDED)


def test_an_automatic_key_is_not_audited() -> None:
    decision = seed_key([], seed(is_automatic=True), AT, is_used=True)
    assert decision.events == ()
    assert decision.saves == (SecretRow("k2", "bb", NOW, 1, None, 1),)


def test_a_random_key_that_signed_nothing_gives_way() -> None:
    decision = seed_key([RANDOM], seed(), AT, is_used=False)
    assert decision.reply == Seeded("k2")
    retired, new = decision.saves
    assert isinstance(retired, SecretRow)
    assert isinstance(new, SecretRow)
    assert (retired.kid, retired.is_current) == ("k1", 0)
    assert (new.kid, new.is_current) == ("k2", 1)


def test_a_key_that_was_chosen_or_has_signed_stays() -> None:
    assert refusal(seed_key([OLD], seed(), AT, is_used=False)) is InvalidInput
    assert refusal(seed_key([RANDOM], seed(), AT, is_used=True)) is InvalidInput
    same = seed_key([OLD], seed("k1", "aa"), AT, is_used=True)
    assert same.reply == AlreadySeeded("k1", same_secret=True)
    other = seed_key([OLD], seed("k1", "bb"), AT, is_used=True)
    assert (other.reply, other.saves) == (AlreadySeeded("k1", same_secret=False), ())


def test_the_old_key_retires_before_the_new_one_is_current() -> None:
    decision = rotate_key([OLD], rotate(), AT)
    assert decision.reply == Rotated("k1", "k2", 0)
    retired = replace(OLD, is_current=0, due_at=NOW + GRACE)
    assert decision.saves == (retired, SecretRow("k2", "bb", NOW, 1, None))


def test_a_rotation_removes_keys_past_their_grace() -> None:
    over = SecretRow("k0", "cc", NOW - 20, 0, NOW)
    lives = SecretRow("k3", "dd", NOW - 20, 0, NOW + 1)
    decision = rotate_key([OLD, over, lives], rotate(), AT)
    assert decision.reply == Rotated("k1", "k2", 1)
    assert decision.drops == (over,)


def test_a_name_is_one_secret_while_it_verifies() -> None:
    retired = SecretRow("k2", "cc", NOW - 20, 0, NOW + 1)
    assert refusal(rotate_key([OLD, retired], rotate(), AT)) is RotationConflict
    assert rotate_key([OLD], rotate("k1", "aa"), AT).reply == NothingToRotate("k1")
    again = rotate_key([OLD, retired], rotate(is_given=False), AT).saves[-1]
    assert again == replace(retired, is_current=1, due_at=None, created_at=NOW)


def test_so_many_keys_verify_and_no_more() -> None:
    kept = [SecretRow(f"r{at}", "aa", NOW, 0, NOW + 1) for at in range(KIDS_MAX - 1)]
    assert refusal(rotate_key([OLD, *kept], rotate(), AT)) is InvalidInput
    assert rotate_key([OLD, *kept[1:]], rotate(), AT).reply == Rotated("k1", "k2", 0)


def test_no_secret_is_shown() -> None:
    assert "bb" not in f"{seed()!r}{rotate()!r}"
