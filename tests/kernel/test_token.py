"""A token opens one waitpoint; what is wrong with another is never told, nor timed."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.errors import InvalidInput
from flowfabric.kernel.wait import token
from flowfabric.kernel.wait.token import (
    check_kid,
    check_secret,
    current,
    fingerprint,
    mint,
    verifies,
)
from flowfabric.model.record import replace
from flowfabric.model.suspension import SecretRow, Token, WaitpointRow, WaitpointState

NOW = 1_000_000
SECRET = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
KEY = SecretRow("k1", SECRET, NOW, 1, None)
EXECUTION = "{fp:7}:01890000-0000-7000-8000-000000000001"
WAITPOINT = WaitpointRow(
    "w-1", EXECUTION, 0, "s-1", "deploy", WaitpointState.ACTIVE, "k1", NOW, NOW, *(None,) * 4
)


def text_of(waitpoint: WaitpointRow = WAITPOINT, key: SecretRow = KEY) -> str:
    return mint(waitpoint, key).reveal()


class Work:
    """Counts what a check computes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.macs: list[tuple[bytes, bytes]] = []
        self.comparisons: list[tuple[int, int]] = []
        digest, compare = hmac.digest, hmac.compare_digest

        def counted_digest(key: bytes, message: bytes, kind: Any) -> Any:
            self.macs.append((key, message))
            return digest(key, message, kind)

        def counted_compare(left: bytes, right: bytes) -> bool:
            self.comparisons.append((len(left), len(right)))
            return compare(left, right)

        patch.setattr("flowfabric.kernel.wait.token.hmac.digest", counted_digest)
        patch.setattr("flowfabric.kernel.wait.token.hmac.compare_digest", counted_compare)

    def take(self) -> tuple[int, int]:
        seen = len(self.macs), len(self.comparisons)
        self.macs, self.comparisons = [], []
        return seen


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


GOOD = text_of()
RETIRED = replace(KEY, is_current=0, due_at=NOW)
RETIRED_BEFORE = SecretRow("k0", OTHER, WAITPOINT.created_at - 1, 0, NOW + 1)
FAILURES: dict[str, tuple[str, WaitpointRow | None, list[SecretRow], int]] = {
    "forged": ("k1:" + "0" * 64, WAITPOINT, [KEY], NOW),
    "truncated": (GOOD[:-1], WAITPOINT, [KEY], NOW),
    "longer": (GOOD + "0", WAITPOINT, [KEY], NOW),
    "upper case": ("k1:" + GOOD[3:].upper(), WAITPOINT, [KEY], NOW),
    "no digest": ("k1:", WAITPOINT, [KEY], NOW),
    "no kid": (GOOD[3:], WAITPOINT, [KEY], NOW),
    "empty": ("", WAITPOINT, [KEY], NOW),
    "not even ascii": ("k1:" + "\udcff✓" * 16, WAITPOINT, [KEY], NOW),
    "unknown kid": ("k9:" + GOOD[3:], WAITPOINT, [KEY], NOW),
    "expired kid": (GOOD, WAITPOINT, [RETIRED], NOW),
    "no keys at all": (GOOD, WAITPOINT, [], NOW),
    "another secret of this name": (GOOD, WAITPOINT, [replace(KEY, secret_hex=OTHER)], NOW),
    "unknown waitpoint": (GOOD, None, [KEY], NOW),
    "another waitpoint": (GOOD, replace(WAITPOINT, waitpoint_id="w-2"), [KEY], NOW),
    "another execution": (GOOD, replace(WAITPOINT, execution_id=EXECUTION[:-1] + "2"), [KEY], NOW),
    "another key": (GOOD, replace(WAITPOINT, waitpoint_key="deploy2"), [KEY], NOW),
    "another generation": (GOOD, replace(WAITPOINT, created_at=NOW + 1), [KEY], NOW),
    "signed by a good key that was retired before": (
        text_of(WAITPOINT, RETIRED_BEFORE),
        WAITPOINT,
        [KEY, RETIRED_BEFORE],
        NOW,
    ),
    "the dummy key's own": (
        text_of(WAITPOINT, SecretRow("-", "00" * 32, 0, 0, None)),
        replace(WAITPOINT, token_kid="-"),
        [KEY],
        NOW,
    ),
    "the dummy key's, nobody's waitpoint": (
        text_of(token._NOBODY, SecretRow("-", "00" * 32, 0, 0, None)),
        None,
        [KEY],
        NOW,
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_every_failure_is_one_mac_and_one_comparison(what: str, work: Work) -> None:
    presented, waitpoint, secrets, now = FAILURES[what]
    assert not verifies(presented, waitpoint, secrets, now)
    assert work.take() == (1, 1)


def test_a_success_is_as_much_work(work: Work) -> None:
    assert verifies(GOOD, WAITPOINT, [KEY], NOW)
    assert work.take() == (1, 1)


def test_a_retired_key_verifies_to_its_last_instant() -> None:
    assert verifies(GOOD, WAITPOINT, [RETIRED], NOW - 1)
    assert not verifies(GOOD, WAITPOINT, [RETIRED], NOW)


def test_the_parts_a_token_signs() -> None:
    """Length-prefixed parts under the key: whoever changes it breaks every token in flight."""
    message = b"ffwp1"
    for part in ("k1", EXECUTION, "w-1", "deploy", str(NOW)):
        message += len(part.encode()).to_bytes(4, "big") + part.encode()
    expected = hmac.new(bytes.fromhex(SECRET), message, hashlib.sha256).hexdigest()
    assert f"k1:{expected}" == GOOD


names = st.text("ab:", min_size=0, max_size=3)


@given(first=st.tuples(names, names, names), second=st.tuples(names, names, names))
def test_no_two_waitpoints_share_a_token(
    first: tuple[str, str, str], second: tuple[str, str, str]
) -> None:
    """Shifting letters from one part to the next does not help."""

    def made(parts: tuple[str, str, str]) -> WaitpointRow:
        execution, waitpoint, name = parts
        return replace(
            WAITPOINT, execution_id=execution, waitpoint_id=waitpoint, waitpoint_key=name
        )

    assert (text_of(made(first)) == text_of(made(second))) == (first == second)
    assert verifies(text_of(made(first)), made(second), [KEY], NOW) == (first == second)


@given(presented=st.text(max_size=80))
def test_no_text_is_too_strange(presented: str) -> None:
    assert not verifies(presented, WAITPOINT, [KEY], NOW)


def test_a_fingerprint_tells_nothing() -> None:
    mark = fingerprint(WAITPOINT, KEY)
    assert len(mark) == 16
    assert mark not in GOOD
    assert fingerprint(WAITPOINT, None) == ""
    assert mark == hashlib.sha256(GOOD[3:].encode()).hexdigest()[:16]


def test_neither_tokens_nor_keys_show_themselves() -> None:
    made = mint(WAITPOINT, KEY)
    for shown in (repr(made), str(made), f"{made}", repr([made]), repr({"token": made})):
        assert GOOD[3:] not in shown
        assert GOOD[3:11] not in shown
    assert repr(made) == "Token(k1:<REDACTED:len=67>)"
    for shown in (repr(KEY), str(KEY), repr([KEY])):
        assert SECRET not in shown
    assert made == Token(GOOD)
    assert made != Token(GOOD[:-1] + "0")
    assert made != GOOD


@pytest.mark.parametrize("bad", ["", "a" * 33, "k 1", "k:1", "ключ", 7, None])
def test_names_of_keys(bad: object) -> None:
    with pytest.raises(InvalidInput, match="kid"):
        check_kid(bad)


@pytest.mark.parametrize(
    "bad", ["", "ab" * 31, "ab" * 129, "a" * 65, "xy" * 32, "11" * 32, 7, None]
)
def test_secrets_are_checked_and_never_repeated(bad: object) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_secret(bad)
    if isinstance(bad, str) and bad:
        assert bad not in f"{refusal.value} {refusal.value!r} {refusal.value.as_dict()}"


def test_which_key_is_current() -> None:
    assert current([]) is None
    assert current([RETIRED]) is None
    assert current([RETIRED, KEY]) is KEY
    assert check_secret(SECRET.upper()) == SECRET


@pytest.mark.parametrize(
    "later",
    [
        SecretRow("k2", OTHER, WAITPOINT.created_at - 1, 1, None),  # its clock was behind
        SecretRow("k2", OTHER, WAITPOINT.created_at, 0, NOW + 1),
    ],
)
def test_a_key_that_came_after_a_waitpoint_signs_for_it(later: SecretRow) -> None:
    """So that links can be handed out when the waitpoint's own key is over."""
    assert verifies(text_of(WAITPOINT, later), WAITPOINT, [RETIRED, later], NOW)
