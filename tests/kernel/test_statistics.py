"""The rules of minute statistics: what is counted where, and how far it is complete."""

from __future__ import annotations

import random

import pytest

from flowfabric.kernel.statistics import Tally, advanced, spend_row, spent_since
from flowfabric.limits import INSTANT_MS_MAX, STATISTIC_SETTLED_MS
from flowfabric.model.budget import AMOUNT_MAX, UsageRow
from flowfabric.model.record import replace
from flowfabric.model.statistic import (
    BUCKETS_MS,
    MINUTE_MS,
    Counted,
    Histogram,
    RollUpRow,
    SeenUsage,
    Spending,
    WorkCount,
    added_up,
    bucket_of,
)

NOW = 100 * MINUTE_MS
ROW = RollUpRow("minutes", {}, 0, 0)


def histogram(durations: list[int]) -> Histogram:
    counts = [0] * (len(BUCKETS_MS) + 1)
    for each in durations:
        counts[bucket_of(each)] += 1
    return Histogram(tuple(counts), sum(durations))


@pytest.mark.parametrize("seed", range(20))
def test_an_estimated_percentile_lies_in_the_bucket_of_the_true_one(seed: int) -> None:
    chance = random.Random(seed)
    most = chance.choice((3, 100, 90_000, 80_000_000))
    durations = sorted(chance.randint(0, most) for _ in range(chance.randint(1, 300)))
    found = histogram(durations)
    for percent in (1, 50, 95, 99, 100):
        true = durations[max(0, -(-len(durations) * percent // 100) - 1)]
        estimate = found.percentile_ms(percent)
        assert estimate is not None
        bucket = bucket_of(true)
        assert (BUCKETS_MS[bucket - 1] if bucket else 0) <= estimate <= BUCKETS_MS[bucket]
    assert found.mean_ms == sum(durations) / len(durations)


def test_durations_beyond_the_last_bound_count_as_the_last_bound() -> None:
    assert histogram([BUCKETS_MS[-1] * 3]).percentile_ms(50) == BUCKETS_MS[-1]


def test_nothing_has_no_percentile() -> None:
    assert Histogram().percentile_ms(50) is None
    assert Histogram().mean_ms is None


def test_histograms_of_different_length_are_added() -> None:
    assert Histogram((1,), 1).plus(Histogram((0, 2), 4)) == Histogram((1, 2), 5)
    assert Histogram((0, 2), 4).plus(Histogram((1,), 1)) == Histogram((1, 2), 5)


def test_lines_of_one_key_are_added_up() -> None:
    first = Spending(begins_at=2, budget_id="b", dimension="d", spent=1)
    second = Spending(begins_at=1, budget_id="b", dimension="d", spent=5)
    again = replace(first, spent=2, given_back=4)
    assert added_up([first, second, again]) == [second, replace(first, spent=3, given_back=4)]


@pytest.mark.parametrize(
    "count",
    [
        WorkCount("n", "l", "k", Counted.CREATED, 1, -7),
        WorkCount("n", "l", "k", Counted.CREATED, 1, INSTANT_MS_MAX),
        WorkCount("n", "l", "k", Counted.CREATED, 1 << 62, NOW),
    ],
)
def test_an_entry_that_no_engine_wrote_is_not_counted(count: WorkCount) -> None:
    tally = Tally()
    tally.add_counts([count])
    assert tally.keys == []


def test_events_without_lane_and_kind_are_counted_under_empty_names() -> None:
    tally = Tally()
    tally.add_completions(("failed", "n", None, None), 100, None, 3, 0)
    (key,) = tally.keys
    assert key == (NOW, "n", "", "")
    assert tally.row(key, None).failed == 3
    assert tally.row(key, None).run == Histogram()


def test_words_that_count_nothing_leave_no_line() -> None:
    tally = Tally()
    for word, reason in (("released", "suspend"), ("released", "worker_delay"), ("?", "claim")):
        tally.add_leases((word, reason, "n", "l", "k"), 100, 1, 1, 1)
    tally.add_completions(("none", "n", "l", "k"), 100, None, 1, 0)
    assert tally.keys == []


# --- complete until ------------------------------------------------------------------------------


def test_where_commits_are_serial_it_is_complete_now() -> None:
    moved = advanced(ROW, {"a": 7}, now=NOW, front=0, is_all=True)
    assert (moved.complete_until, moved.counted_at) == (NOW, NOW)


def test_a_stretch_that_is_not_the_last_proves_nothing() -> None:
    moved = advanced(ROW, {"a": 7}, now=NOW, front=0, is_all=False)
    assert moved.complete_until == 0
    assert moved.places == {"a": 7}


def test_an_instant_is_complete_when_every_transaction_from_before_it_is_counted() -> None:
    first = advanced(ROW, {"a": 90}, now=NOW, front=100, is_all=True)
    assert (first.complete_until, first.probe_number) == (0, 100)
    held_back = advanced(first, {"a": 99}, now=NOW + 10, front=120, is_all=True)
    assert (held_back.complete_until, held_back.probe_number) == (0, 100)
    passed = advanced(held_back, {"a": 100}, now=NOW + 20, front=130, is_all=True)
    assert passed.complete_until == NOW - STATISTIC_SETTLED_MS
    assert (passed.probe_number, passed.probe_at) == (130, NOW + 20 - STATISTIC_SETTLED_MS)


def test_the_log_that_is_furthest_behind_decides() -> None:
    first = advanced(ROW, {"a": 90}, now=NOW, front=100, is_all=True)
    places = {"a": 200, "b": 99}
    assert advanced(first, places, now=NOW, front=300, is_all=True).complete_until == 0


# --- spending ------------------------------------------------------------------------------------


def test_an_amount_is_spent_or_given_back() -> None:
    usage = UsageRow("b", "d", 5, 0, NOW, used_before=20)
    assert spent_since(usage, None) == 25
    assert spent_since(usage, SeenUsage("b", "d", 30)) == -5
    row = spend_row(None, usage, 25, NOW + 7)
    assert (row.minute_at, row.spent, row.given_back) == (NOW, 25, 0)
    assert spend_row(row, usage, -5, NOW + 7).given_back == 5


def test_no_sum_outgrows_the_store() -> None:
    usage = UsageRow("b", "d", AMOUNT_MAX, 0, NOW, used_before=AMOUNT_MAX)
    assert usage.total == AMOUNT_MAX
    row = spend_row(None, usage, AMOUNT_MAX, NOW)
    assert spend_row(row, usage, AMOUNT_MAX, NOW).spent == AMOUNT_MAX
