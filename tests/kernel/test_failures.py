"""By what failures are alike."""

from __future__ import annotations

import pytest

from flowfabric.kernel.failures import fingerprint_of, headline, shape_of
from flowfabric.limits import FAILURE_MESSAGE_BYTES
from flowfabric.model.failure import FailureOrigin

HERE = FailureOrigin(exception="ValueError", frame="shop:charge", line=7, version="1")


def test_lines_versions_and_messages_make_no_other_failure() -> None:
    moved = FailureOrigin(exception="ValueError", frame="shop:charge", line=9, version="2")
    assert fingerprint_of("c", HERE, "order 1") == fingerprint_of("c", moved, "no card")


@pytest.mark.parametrize(
    ("category", "origin"),
    [
        ("d", HERE),
        ("c", FailureOrigin(exception="KeyError", frame="shop:charge")),
        ("c", FailureOrigin(exception="ValueError", frame="shop:ship")),
        ("c", FailureOrigin(exception="ValueError")),
        ("c", None),
    ],
)
def test_another_category_class_or_frame_does(category: str, origin: FailureOrigin | None) -> None:
    assert fingerprint_of(category, origin, "x") != fingerprint_of("c", HERE, "x")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 failed", "order 18 failed"),
        ("no such key 'a b'", "no such key 'c'"),
        ("run 0190a1b2-77ff is gone", "run 0190c1b2-00ff is gone"),
        ("after 2.5 s", "after 13.25 s"),
    ],
)
def test_without_an_origin_the_shape_of_the_message_tells(one: str, other: str) -> None:
    assert fingerprint_of("c", None, one) == fingerprint_of("c", None, other)
    assert shape_of(one) != shape_of("refused")


def test_the_headline_is_the_first_line_and_no_longer_than_it_may_be() -> None:
    assert headline("\n  no card \n  File x") == "no card"
    assert len(headline("ü" * 1_000).encode()) <= FAILURE_MESSAGE_BYTES
