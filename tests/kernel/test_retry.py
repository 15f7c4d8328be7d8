"""The one retry decision and its pauses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.errors import InvalidInput
from flowfabric.kernel.execution.retry import backoff_ms, retry_delay_ms
from flowfabric.limits import RETRY_DELAY_MS_MAX
from flowfabric.model.attempt import FailureClass
from flowfabric.model.policy import ExponentialBackoff, FixedBackoff, RetryPolicy
from flowfabric.model.results import RetryScheduled, TerminalFailed
from flowfabric.model.state import BlockingReason, PublicState
from tests.support import builders as make
from tests.support.builders import NOW, decide, fence_of

CATEGORIES = st.text("Ab é", min_size=1, max_size=3)  # names, few enough to meet

delays = st.integers(0, RETRY_DELAY_MS_MAX)
multipliers = st.floats(1.0, 1000.0)
counts = st.integers(0, 10_000)
jitters = st.floats(0.0, 1.0, exclude_max=True)


def plain(initial: int, most: int, multiplier: float) -> ExponentialBackoff:
    return ExponentialBackoff(initial_delay_ms=initial, max_delay_ms=most, multiplier=multiplier)


@given(delays, delays, multipliers, counts, jitters)
def test_a_pause_is_a_whole_number_between_zero_and_the_maximum(
    initial: int, most: int, multiplier: float, count: int, jitter: float
) -> None:
    """Floor, never fractional, never over the cap, however large the exponent."""
    pause = backoff_ms(plain(initial, most, multiplier), count, jitter)
    assert isinstance(pause, int)
    assert 0 <= pause <= most


@given(delays, delays, multipliers, st.integers(0, 500), jitters)
def test_pauses_never_get_shorter(
    initial: int, most: int, multiplier: float, count: int, jitter: float
) -> None:
    backoff = plain(initial, most, multiplier)
    assert backoff_ms(backoff, count, jitter) <= backoff_ms(backoff, count + 1, jitter)


@given(delays, delays, multipliers, jitters)
def test_the_first_retry_waits_the_initial_pause(
    initial: int, most: int, multiplier: float, jitter: float
) -> None:
    """The exponent is the number of retries already used."""
    assert backoff_ms(plain(initial, most, multiplier), 0, jitter) == min(initial, most)


@given(delays, multipliers, counts)
def test_no_initial_pause_is_no_pause_ever(most: int, multiplier: float, count: int) -> None:
    """Zero times any power is zero, also where the power is too large for a float."""
    assert backoff_ms(plain(0, most, multiplier), count, 0.5) == 0


@given(delays, delays, multipliers, counts, jitters)
def test_full_jitter_spreads_over_the_whole_pause(
    initial: int, most: int, multiplier: float, count: int, jitter: float
) -> None:
    """Optional full jitter, scaled by the random number that is handed in."""
    fixed = backoff_ms(plain(initial, most, multiplier), count, jitter)
    spread = ExponentialBackoff(
        initial_delay_ms=initial, max_delay_ms=most, multiplier=multiplier, jitter=True
    )
    jittered = backoff_ms(spread, count, jitter)
    assert 0 <= jittered <= fixed
    assert jittered <= math.ceil((fixed + 1) * jitter)
    assert backoff_ms(spread, count, 0.0) == 0


@given(delays, counts, jitters)
def test_a_fixed_pause_is_fixed(delay_ms: int, count: int, jitter: float) -> None:
    assert backoff_ms(FixedBackoff(delay_ms=delay_ms), count, jitter) == delay_ms


@pytest.mark.parametrize(
    ("count", "expected"), [(0, 1000), (1, 2000), (5, 32_000), (6, 60_000), (7, 60_000)]
)
def test_the_default_backoff_doubles_up_to_a_minute(count: int, expected: int) -> None:
    assert backoff_ms(ExponentialBackoff(), count, 0.9) == expected


def test_a_fractional_multiplier_is_floored() -> None:
    assert backoff_ms(plain(1001, 60_000, 1.5), 1, 0.0) == 1501


@pytest.mark.parametrize("multiplier", [0.99, 0.0, -1.0, 1000.1, math.inf, math.nan])
def test_a_multiplier_outside_its_bounds_is_refused(multiplier: float) -> None:
    with pytest.raises(InvalidInput, match=r"backoff\.multiplier"):
        ExponentialBackoff(multiplier=multiplier)


def decide_retry(
    policy: RetryPolicy | None,
    failure_class: FailureClass = FailureClass.TRANSIENT,
    category: str = "transient",
    retry_count: int = 0,
) -> int | None:
    return retry_delay_ms(
        policy, failure_class=failure_class, category=category, retry_count=retry_count, jitter=0.5
    )


@given(st.integers(0, 50), st.integers(0, 60))
def test_exactly_max_retries_retries_are_given(most: int, used: int) -> None:
    """I5: used < max is retried, used == max is not."""
    assert (decide_retry(make.retries(most), retry_count=used) is not None) == (used < most)


def test_without_a_policy_nothing_is_retried() -> None:
    """The documented default."""
    assert decide_retry(None) is None


@given(st.integers(1, 10), st.sampled_from(FailureClass))
def test_permanent_and_cancelled_are_never_retried(most: int, kind: FailureClass) -> None:
    never = kind in (FailureClass.PERMANENT, FailureClass.CANCELLED)
    assert (decide_retry(make.retries(most), kind) is None) == never


@given(st.lists(CATEGORIES, max_size=4), CATEGORIES)
def test_categories_narrow_what_is_retried(categories: list[str], category: str) -> None:
    """An empty list names none and so allows every category."""
    policy = make.retries(3, retryable_categories=tuple(categories))
    retried = decide_retry(policy, category=category) is not None
    assert retried == (not categories or category in categories)


def test_a_matching_category_does_not_save_a_permanent_failure() -> None:
    policy = make.retries(3, retryable_categories=("permanent",))
    assert decide_retry(policy, FailureClass.PERMANENT, "permanent") is None


def test_a_failed_attempt_waits_out_its_backoff() -> None:
    """Runnable, delayed, waiting_for_retry_backoff; eligible_at is written."""
    running = make.leased(policy=make.policy(retry_policy=make.retries(1, 700)))
    decision = decide(running, make.fail_with(fence_of(running)))
    waiting = decision.execution
    assert waiting is not None
    assert decision.reply == RetryScheduled(NOW + 700, 1)
    assert waiting.public_state is PublicState.DELAYED
    assert waiting.state.blocking_reason is BlockingReason.WAITING_FOR_RETRY_BACKOFF
    assert waiting.eligible_at == NOW + 700
    assert waiting.retry_count == 1


def test_no_backoff_means_waiting_at_once() -> None:
    running = make.leased(policy=make.policy(retry_policy=make.retries(1, 0)))
    decision = decide(running, make.fail_with(fence_of(running)))
    assert decision.execution is not None
    assert decision.execution.public_state is PublicState.WAITING


@given(st.integers(0, 4))
def test_the_number_of_attempts_is_retries_plus_one(most: int) -> None:
    """I5: indexes 0..max, then the end."""
    execution = make.created(policy=make.policy(retry_policy=make.retries(most, 0)))
    indexes = []
    while not execution.is_terminal:
        running = make.claimed(execution)
        indexes.append(running.attempt_index)
        decision = decide(running, make.fail_with(fence_of(running)))
        assert decision.execution is not None
        execution = decision.execution
    assert execution.public_state is PublicState.FAILED
    assert indexes == list(range(most + 1))
    assert execution.total_attempt_count == most + 1


def test_the_handlers_own_pause_replaces_the_policys_but_not_its_limit() -> None:
    running = make.leased(policy=make.policy(retry_policy=make.retries(1, 700)))
    decision = decide(running, make.fail_with(fence_of(running), retry_after_ms=5))
    assert decision.reply == RetryScheduled(NOW + 5, 1)
    alone = make.leased()
    ended = decide(alone, make.fail_with(fence_of(alone), retry_after_ms=5))
    assert ended.reply == TerminalFailed()
