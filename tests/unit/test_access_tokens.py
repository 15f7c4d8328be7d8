"""The text of access tokens: what is none is known as none, and what is another opens nothing."""

from __future__ import annotations

from random import Random

import pytest

from flowfabric.kernel import access as rules
from flowfabric.model.access import (
    AccessTokenRow,
    Scope,
    granted,
    looks_like_token,
    read_token,
    token_text,
)
from tests.property.budget import budget
from tests.support.mutated import mutated

MUTATED = budget("FF_MUTATED_TOKENS", 2_000)
NOW = 1_700_000_000_000


def row_of(digest: bytes) -> AccessTokenRow:
    return AccessTokenRow(
        "0123456789", digest, "ci", (Scope.READ,), None, 0, NOW, "ann", NOW + 1_000
    )


def test_a_token_reads_as_it_was_made() -> None:
    text, digest = token_text("0123456789", bytes(range(32)))
    parts = read_token(text)
    assert parts is not None
    assert (parts.token_id, parts.digest) == ("0123456789", digest)
    assert len(text) == len("ff___") + 10 + 43 + 6
    assert rules.is_good(row_of(digest), parts.digest, NOW)
    assert looks_like_token(f"/v1/executions?x={text}")
    other, _ = token_text("0123456789", bytes(32))
    assert other.removeprefix("ff_0123456789_").startswith("0" * 43)


def test_no_mutated_token_opens_anything() -> None:
    random = Random(8)
    accepted = 0
    for number in range(MUTATED):
        secret = random.randbytes(32)
        text, digest = token_text("0123456789", secret)
        tried = mutated(text, random)
        if tried == text:
            continue
        parts = read_token(tried)
        # The checksum finds all but one in four thousand million.
        accepted += parts is not None
        if parts is not None:
            is_other = parts.token_id != "0123456789"
            assert is_other or not rules.is_good(row_of(digest), parts.digest, NOW), number
    assert accepted <= MUTATED / 10_000


@pytest.mark.parametrize("digest", [b"", bytes(32), b"x" * 32])
def test_an_unknown_token_is_no_better_than_a_wrong_one(digest: bytes) -> None:
    assert not rules.is_good(None, digest, NOW)
    assert not rules.is_good(row_of(b"y" * 32), digest, NOW)


def test_a_token_ends_with_its_time() -> None:
    row = row_of(bytes(32))
    assert rules.is_good(row, bytes(32), NOW + 999)
    assert not rules.is_good(row, bytes(32), NOW + 1_000)
    assert not rules.is_good(rules.revoked(row, "ann", NOW), bytes(32), NOW)


def test_operate_includes_read_and_approve_admin_includes_all_nothing_else_implies_anything() -> (
    None
):
    assert granted((Scope.OPERATE,)) == {Scope.OPERATE, Scope.READ, Scope.APPROVE}
    assert granted((Scope.ADMIN,)) == set(Scope)
    for scope in set(Scope) - {Scope.OPERATE, Scope.ADMIN}:
        assert granted((scope,)) == {scope}


def test_no_repr_shows_a_secret() -> None:
    text, digest = token_text("0123456789", bytes(range(32)))
    parts = read_token(text)
    for shown in (repr(row_of(digest)), repr(parts)):
        assert repr(digest) not in shown
        assert digest.hex() not in shown
