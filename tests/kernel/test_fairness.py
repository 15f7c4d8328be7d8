"""How places are shared: always all of them, by weight over time, unused parts to the others."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.kernel.limit.fairness import (
    Credits,
    Line,
    credits_after,
    divided,
    parts_of,
    settled,
    shares_of,
)
from flowfabric.model.route import Catalog, Lane, LaneState, Route

LINES: list[Line] = [(name, "") for name in "abcdefgh"]
WEIGHTS = st.lists(st.integers(1, 20), min_size=1, max_size=6)


def lines(*weights: int) -> dict[Line, int]:
    return dict(zip(LINES, weights, strict=False))


def run(weights: dict[Line, int], claims: list[int]) -> Counter[Line]:
    """What each line got over several claims, when all have enough work."""
    credits: Credits = {}
    total: Counter[Line] = Counter()
    for places in claims:
        parts = divided(weights, credits, places)
        credits = settled(weights, credits, parts, parts)
        total.update(parts)
    return total


@pytest.mark.parametrize(
    ("weights", "places", "expected"),
    [
        ((1,), 5, (5,)),
        ((1, 1), 4, (2, 2)),
        ((3, 1), 8, (6, 2)),
        ((1, 1), 1, (1, 0)),
        ((2, 1), 0, (0, 0)),
        ((1000, 1), 1, (1, 0)),
    ],
)
def test_places_are_divided_by_weight(
    weights: tuple[int, ...], places: int, expected: tuple[int, ...]
) -> None:
    assert tuple(divided(lines(*weights), {}, places).values()) == expected


def test_an_unused_share_is_given_next() -> None:
    weights = lines(1, 1)
    a, b = weights
    credits: Credits = {a: -0.5, b: 0.5}
    assert divided(weights, credits, 1) == {a: 0, b: 1}
    assert divided(weights, credits, 3) == {a: 1, b: 2}


def test_a_line_far_over_its_share_gets_none_and_all_slots_are_given() -> None:
    weights = lines(1, 1, 1)
    a, b, c = weights
    parts = divided(weights, {a: -50.0, b: 25.0, c: 25.0}, 8)
    assert parts == {a: 0, b: 4, c: 4}
    one_sided = divided(weights, {a: -50.0}, 8)  # the others have left: nobody owes anybody
    assert sum(one_sided.values()) == 8


def test_an_unused_part_is_neither_saved_nor_charged() -> None:
    weights = lines(1, 1)
    a, b = weights
    parts = divided(weights, {}, 4)
    assert settled(weights, {}, parts, {a: 4, b: 0}) == {a: 0.0, b: 0.0}


def test_a_line_that_was_not_asked_keeps_its_share() -> None:
    weights = lines(3, 1)
    a, b = weights
    assert settled(weights, {}, {a: 1, b: 0}, {a: 1}) == {a: -0.25, b: 0.25}


@settings(max_examples=300)
@given(
    WEIGHTS,
    st.lists(st.floats(-60, 60), min_size=6, max_size=6),
    st.integers(0, 100),
)
def test_exactly_the_places_are_handed_out(
    weights: list[int], credits: list[float], places: int
) -> None:
    given_weights = lines(*weights)
    owed = dict(zip(LINES, credits, strict=False))
    parts = divided(given_weights, owed, places)
    assert sum(parts.values()) == places
    assert min(parts.values()) >= 0
    assert parts.keys() == given_weights.keys()


@settings(max_examples=200)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
    st.lists(st.integers(1, 12), min_size=1, max_size=60),
)
def test_up_to_three_lines_get_their_share_within_one(
    weights: list[int], claims: list[int]
) -> None:
    """However the places come, one at a time or many."""
    shared = lines(*weights)
    got = run(shared, claims)
    for line, weight in shared.items():
        assert abs(got[line] - sum(claims) * weight / sum(weights)) <= 1 + 1e-6


@settings(max_examples=200)
@given(WEIGHTS, st.lists(st.integers(1, 12), min_size=1, max_size=60))
def test_any_number_of_lines_get_their_share_within_two(
    weights: list[int], claims: list[int]
) -> None:
    shared = lines(*weights)
    got = run(shared, claims)
    for line, weight in shared.items():
        assert abs(got[line] - sum(claims) * weight / sum(weights)) < 2


@settings(max_examples=200)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.lists(
        st.tuples(st.integers(1, 9), st.lists(st.booleans(), min_size=4, max_size=4)),
        min_size=1,
        max_size=60,
    ),
)
def test_lines_that_come_and_go_leave_no_debt(
    weights: list[int], claims: list[tuple[int, list[bool]]]
) -> None:
    """What is owed stays small, so nobody waits long for what happened before."""
    shared = lines(*weights)
    credits: Credits = {}
    for places, present in claims:
        parts = divided(shared, credits, places)
        busy = [line for line, here in zip(shared, present, strict=False) if here]
        taken = {line: parts[line] if line in busy else 0 for line in shared}
        if busy:  # the others use what is left
            taken[busy[0]] += places - sum(taken.values())
        credits = settled(shared, credits, parts, taken)
        assert all(abs(credit) <= 18 for credit in credits.values())
        assert sum(divided(shared, credits, places).values()) == places
    total = run_from(shared, credits, [1] * 200)
    for line, weight in shared.items():
        share = 200 * weight / sum(weights)
        assert abs(total[line] - share) <= 2 + sum(abs(credit) for credit in credits.values())


def run_from(weights: dict[Line, int], credits: Credits, claims: list[int]) -> Counter[Line]:
    total: Counter[Line] = Counter()
    for places in claims:
        parts = divided(weights, credits, places)
        credits = settled(weights, credits, parts, parts)
        total.update(parts)
    return total


# --- lanes and their tenants -------------------------------------------------------------------


def catalog(**weights: int) -> Catalog:
    lanes = {name: Lane(name, LaneState.ACTIVE, 0, 0, weight=w) for name, w in weights.items()}
    return Catalog(1, (), lanes)


ROUTES = [
    Route("t2", "b", "x"),
    Route("t1", "a", "x"),
    Route("t1", "b", "x"),
    Route("t1", "a", "y", ("gpu",)),
]


def test_a_share_is_one_tenant_on_one_lane() -> None:
    shares = shares_of(ROUTES, catalog(a=3))
    assert [(each.key, each.weight, len(each.routes)) for each in shares] == [
        (("a", "t1"), 3, 2),
        (("b", "t1"), 1, 1),
        (("b", "t2"), 1, 1),
    ]


def test_tenants_divide_what_their_lane_gets() -> None:
    shares = shares_of(ROUTES, catalog(a=1, b=1))
    assert parts_of(shares, {}, 8) == {("a", "t1"): 4, ("b", "t1"): 2, ("b", "t2"): 2}


def test_one_place_at_a_time_comes_out_the_same() -> None:
    shares = shares_of(ROUTES, catalog(a=1, b=1))
    credits: Credits = {}
    total: Counter[Line] = Counter()
    for _ in range(8):
        parts = parts_of(shares, credits, 1)
        credits = credits_after(shares, credits, parts, parts)
        total.update(parts)
    assert total == {("a", "t1"): 4, ("b", "t1"): 2, ("b", "t2"): 2}


@settings(max_examples=100)
@given(st.integers(1, 9), st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_lanes_with_tenants_get_their_share(a: int, b: int, claims: list[int]) -> None:
    shares = shares_of(ROUTES, catalog(a=a, b=b))
    credits: Credits = {}
    total: Counter[Line] = Counter()
    for places in claims:
        parts = parts_of(shares, credits, places)
        assert sum(parts.values()) == places
        credits = credits_after(shares, credits, parts, parts)
        total.update(parts)
    assert abs(total["a", "t1"] - sum(claims) * a / (a + b)) <= 1 + 1e-6
    assert abs(total["b", "t1"] - total["b", "t2"]) <= 1
