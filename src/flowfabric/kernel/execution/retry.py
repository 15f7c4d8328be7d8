"""The one retry decision, used by failures, timeouts and lost leases alike."""

from __future__ import annotations

import math

from flowfabric.model.attempt import FailureClass
from flowfabric.model.policy import ExponentialBackoff, FixedBackoff, RetryPolicy

_NEVER_RETRIED = (FailureClass.PERMANENT, FailureClass.CANCELLED)


def retry_delay_ms(
    policy: RetryPolicy | None,
    *,
    failure_class: FailureClass,
    category: str,
    retry_count: int,
    jitter: float,
) -> int | None:
    """How long to wait before the next attempt, or None when there is none.

    `retry_count` is the number of retries already used; `jitter` in [0, 1) is passed in.
    """
    if policy is None or failure_class in _NEVER_RETRIED:
        return None
    if retry_count >= policy.max_retries:
        return None
    if policy.retryable_categories and category not in policy.retryable_categories:
        return None
    return backoff_ms(policy.backoff, retry_count, jitter)


def backoff_ms(backoff: FixedBackoff | ExponentialBackoff, retry_count: int, jitter: float) -> int:
    """The pause before the next attempt, in whole milliseconds."""
    if isinstance(backoff, FixedBackoff):
        return backoff.delay_ms
    if backoff.initial_delay_ms == 0:
        return 0
    try:
        grown = backoff.initial_delay_ms * backoff.multiplier**retry_count
    except OverflowError:
        grown = math.inf
    delay = min(grown, float(backoff.max_delay_ms))
    return math.floor(delay * jitter) if backoff.jitter else math.floor(delay)
