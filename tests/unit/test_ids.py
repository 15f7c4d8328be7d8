"""Minted ids: ordered, of their version, and never twice."""

from __future__ import annotations

from uuid import UUID

import pytest

from flowfabric import ids


@pytest.mark.parametrize("counts", [[1] * 50, [3, 5_000, 1, 4_096, 4_095, 4_097, 2]])
def test_ids_of_one_process_sort_in_the_order_of_minting(counts: list[int]) -> None:
    """More than 4,096 in a row borrow from the milliseconds that follow."""
    minted = [text for count in counts for text in ids.new_uuid7s(count)]
    assert len(minted) == sum(counts)
    assert minted == sorted(set(minted))
    for text in minted:
        uuid = UUID(text)
        assert str(uuid) == text
        assert (uuid.version, uuid.variant) == (7, "specified in RFC 4122")


def test_none_are_minted_when_none_are_wanted() -> None:
    assert ids.new_uuid7s(0) == []
