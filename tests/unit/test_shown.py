"""Whatever a caller passes, an error text about it is short and is made without an accident."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.errors import FlowFabricError
from flowfabric.model import checks
from flowfabric.model.limit_checks import check_amounts, check_word
from flowfabric.model.policy import (
    ExecutionPolicy,
    ExponentialBackoff,
    RetryPolicy,
    RoutingRequirements,
)
from flowfabric.model.record import to_json
from flowfabric.model.shown import shown
from flowfabric.sdk.durations import to_ms


def nested(depth: int, kind: type[list[Any]] | type[tuple[Any, ...]] = list) -> Any:
    value: Any = kind()
    for _ in range(depth):
        value = kind([value])
    return value


class Silent:
    """It cannot be shown."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error

    __str__ = __repr__


class Loud:
    def __repr__(self) -> str:
        return "loud " * 1_000_000


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Word(enum.StrEnum):
    ONE = "one"


LOOP: list[Any] = []
LOOP.append(LOOP)
STRANGE = (
    10**5000,
    -(10**5000),
    nested(1_000),
    nested(1_000, tuple),
    {"a": nested(1_000)},
    LOOP,
    Silent(RecursionError),
    Silent(ValueError),
    Loud(),
    "x" * 10_000_000,
    b"\x00" * 10_000_000,
    list(range(1_000_000)),
    "\ud800",
    float("nan"),
)


@pytest.mark.parametrize("at", range(len(STRANGE)))
def test_any_value_is_shown_in_few_characters(at: int) -> None:
    text = shown(STRANGE[at], 60)
    assert 0 < len(text) <= 60


@given(st.recursive(st.integers() | st.text() | st.none(), st.lists))
def test_a_short_value_is_shown_as_it_is(value: Any) -> None:
    full = repr(value)
    if len(full) <= 60 and full.count("[") <= 3:
        assert shown(value, 60) == full or "..." in shown(value, 60)


@pytest.mark.parametrize("at", range(len(STRANGE)))
def test_no_check_of_an_argument_fails_on_showing_it(at: int) -> None:
    value: Any = STRANGE[at]
    for check in (
        lambda: checks.check_execution_id(value, partitions=256),
        lambda: checks.check_integer(value, field="field", least=0, most=1),
        lambda: checks.check_name(value, field="field"),
        lambda: checks.check_capabilities([value, ","], field="field"),
        lambda: checks.check_capabilities(value, field="field"),
        lambda: checks.check_tag_key(value),
        lambda: checks.check_tags(value),
        lambda: checks.check_tags({_hashable(value): "x"}),
        lambda: checks.check_tags({"a.b": value}),
        lambda: checks.clamp_priority(value),
        lambda: check_amounts({_hashable(value): value}),
        lambda: check_word(value, Word, field="field"),
        lambda: ExecutionPolicy(retry_policy=value),
        lambda: RetryPolicy(max_retries=value),
        lambda: to_ms(value, field="field"),
    ):
        with pytest.raises(FlowFabricError) as caught:
            check()
        assert len(str(caught.value)) < 400


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except (TypeError, RecursionError):
        return "key"
    return value


def test_a_kind_of_text_or_number_is_kept_as_a_plain_one() -> None:
    """What drivers make of the others differs from store to store."""
    for made in (
        checks.check_name(Text("x"), field="field"),
        checks.check_name(Word.ONE, field="field"),
        checks.check_lane(Text("x")),
        checks.clip_text(Text("x"), 5, field="field"),
        checks.check_tag_key(Text("a.b")),
        *checks.check_capabilities([Text("gpu")], field="field"),
    ):
        assert type(made) is str
    assert type(checks.check_integer(Number(1), field="field", least=0, most=1)) is int
    assert type(check_amounts({"a": Number(1)})["a"]) is int
    policy = ExecutionPolicy(
        priority=Number(1),
        max_replay_count=Number(2),
        retry_policy=RetryPolicy(
            max_retries=Number(3), backoff=ExponentialBackoff(multiplier=True)
        ),
        routing_requirements=RoutingRequirements(required_capabilities=(Text("gpu"),)),
    )
    assert b'"max_retries":3' not in to_json(policy)  # the default is left out
    assert b'"multiplier":1.0' in to_json(policy)
    assert type(policy.priority) is int


@pytest.mark.parametrize("name", ["max_replay_count", "dedup_window_ms"])
def test_a_number_a_policy_needs_cannot_be_nothing(name: str) -> None:
    with pytest.raises(FlowFabricError, match=f"policy.{name}"):
        ExecutionPolicy(**{name: None})  # type: ignore[arg-type]
