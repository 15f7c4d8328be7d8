"""What people type is understood, or refused with a hint."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from flowfabric.cli import values
from flowfabric.ids import new_execution_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30", 30_000), ("1.5s", 1500), ("250ms", 250), ("1h30m", 5_400_000), ("2d", 172_800_000)],
)
def test_a_duration_is_read_with_its_unit(text: str, expected: int) -> None:
    assert values.duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "-5s", "10 parsecs", "1h30"])
def test_a_malformed_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="write 30s"):
        values.duration_ms(text)


def test_since_takes_a_duration_or_a_date() -> None:
    assert values.ago_or_instant("1h") == ("ago", 3_600_000)
    assert values.ago_or_instant("1970-01-01T00:01") == ("at", 60_000)
    assert values.ago_or_instant("1970-01-01T01:00+01:00") == ("at", 0)
    with pytest.raises(ArgumentTypeError, match="yesterday"):
        values.ago_or_instant("yesterday")


def test_an_argument_is_text_or_json() -> None:
    assert values.argument("name=ada=1") == ("name", "ada=1")
    assert values.argument('data:={"a": [1, null]}') == ("data", {"a": [1, None]})
    assert values.argument("empty=") == ("empty", "")


@pytest.mark.parametrize("text", ["name", "1x=2", "=2", "a:=nope", "a:=NaN", "a b=1"])
def test_a_malformed_argument_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.argument(text)


def test_an_id_is_taken_whole_in_part_or_by_a_word() -> None:
    full = new_execution_id()
    uuid = full[-36:]
    for text in (full, uuid, uuid[:4], uuid[-8:], uuid.replace("-", ""), "latest", "-"):
        assert values.reference(f" {text.upper()} ") == text


@pytest.mark.parametrize(
    "text", ["", "abc", "latests", "zzzzzzzz", "--", "{fp:1}", "0" * 33, "a-b"]
)
def test_a_malformed_id_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="latest, or -"):
        values.reference(text)


def test_a_mistyped_state_meets_its_nearest() -> None:
    assert values.states("failed,Active") == ["failed", "active"]
    with pytest.raises(ArgumentTypeError, match="did you mean completed"):
        values.states("complete")
    with pytest.raises(ArgumentTypeError, match="states are waiting"):
        values.states("xyzzy")
