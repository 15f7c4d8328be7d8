"""Policies frozen at creation. Every field here changes behaviour; any other is refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import (
    check_capabilities,
    check_flag,
    check_integer,
    check_list,
    check_name,
)
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import Record, convert, force_setattr
from flowfabric.model.shown import shown
from flowfabric.model.words import StreamMode, TimeoutBehavior


def _check_part(value: object, kind: type | UnionType, field: str) -> None:
    """Give a policy built by hand parts of their own types, as one read from plain data has."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{field}: expected its own type, got {shown(value)}", field=field)


def _keep_integer(
    record: Record, name: str, *, field: str, least: int, most: int, optional: bool = False
) -> None:
    """Check a number of a record under construction, and keep it as a plain one."""
    value = getattr(record, name)
    if value is None and optional:
        return
    checked = check_integer(value, field=field, least=least, most=most)
    if type(value) is not int:
        force_setattr(record, name, checked)


def _keep_names(record: Record, name: str, *, field: str) -> None:
    """Check a list of names likewise. Any other value could be stored, but never read again."""
    value = getattr(record, name)
    if type(value) is tuple and not value:
        return
    names = tuple(check_name(each, field=field) for each in check_list(value, field=field))
    force_setattr(record, name, names)


class FixedBackoff(Record, frozen=True, kw_only=True, tag="fixed", tag_field="type"):
    """The same pause before every retry."""

    delay_ms: int = 1000

    def __post_init__(self) -> None:
        most = limits.RETRY_DELAY_MS_MAX
        _keep_integer(self, "delay_ms", field="backoff.delay_ms", least=0, most=most)


class ExponentialBackoff(Record, frozen=True, kw_only=True, tag="exponential", tag_field="type"):
    """min(initial · multiplier^retries, max), optionally spread over [0, that] by jitter."""

    initial_delay_ms: int = 1000
    max_delay_ms: int = 60_000
    multiplier: float = 2.0
    jitter: bool = False

    def __post_init__(self) -> None:
        most = limits.RETRY_DELAY_MS_MAX
        for name in ("initial_delay_ms", "max_delay_ms"):
            _keep_integer(self, name, field=f"backoff.{name}", least=0, most=most)
        is_number = isinstance(self.multiplier, int | float)
        if not is_number or not 1.0 <= self.multiplier <= 1000.0:  # also refuses NaN
            raise InvalidInput(
                "backoff.multiplier: must be between 1 and 1000", field="backoff.multiplier"
            )
        if type(self.multiplier) not in (int, float):
            force_setattr(self, "multiplier", float(self.multiplier))
        check_flag(self.jitter, field="backoff.jitter")


class RetryPolicy(Record, frozen=True, kw_only=True):
    """How often and how soon a failed attempt is retried."""

    max_retries: int = 3
    backoff: FixedBackoff | ExponentialBackoff = ExponentialBackoff()
    retryable_categories: tuple[str, ...] = ()  # empty: every category that may be retried at all

    def __post_init__(self) -> None:
        field, most = "retry_policy.max_retries", limits.RETRIES_MAX
        _keep_integer(self, "max_retries", field=field, least=0, most=most)
        _check_part(self.backoff, FixedBackoff | ExponentialBackoff, "retry_policy.backoff")
        _keep_names(self, "retryable_categories", field="retry_policy.retryable_categories")


class TimeoutPolicy(Record, frozen=True, kw_only=True):
    """Bounds on one attempt, on the whole execution and on the wait for its start, as durations."""

    attempt_timeout_ms: int | None = None
    execution_deadline_ms: int | None = None
    start_within_ms: int | None = None  # after it could begin: its delay and dependencies are over

    def __post_init__(self) -> None:
        for name in ("attempt_timeout_ms", "execution_deadline_ms", "start_within_ms"):
            field = f"timeout_policy.{name}"
            most = limits.DURATION_MS_MAX
            _keep_integer(self, name, field=field, least=1, most=most, optional=True)


class SuspensionPolicy(Record, frozen=True, kw_only=True):
    """The timeout of suspensions that give none."""

    default_timeout_ms: int | None = None
    timeout_behavior: TimeoutBehavior = TimeoutBehavior.FAIL

    def __post_init__(self) -> None:
        field, most = "suspension_policy.default_timeout_ms", limits.DURATION_MS_MAX
        _keep_integer(self, "default_timeout_ms", field=field, least=1, most=most, optional=True)
        if type(self.timeout_behavior) is not TimeoutBehavior:
            field = "suspension_policy.timeout_behavior"
            word = check_word(self.timeout_behavior, TimeoutBehavior, field=field)
            force_setattr(self, "timeout_behavior", word)


class StreamPolicy(Record, frozen=True, kw_only=True):
    """How frames are kept that say nothing else."""

    durability_mode: StreamMode = StreamMode.DURABLE  # of frames that name no mode
    retention_maxlen: int = limits.DURABLE_FRAMES_DEFAULT  # durable frames of one attempt
    retention_ttl_ms: int | None = None  # how old durable and summary frames become; None: any age

    def __post_init__(self) -> None:
        field, most = "stream_policy.retention_maxlen", limits.DURABLE_FRAMES_MAX
        _keep_integer(self, "retention_maxlen", field=field, least=1, most=most)
        field, most = "stream_policy.retention_ttl_ms", limits.DURATION_MS_MAX
        _keep_integer(self, "retention_ttl_ms", field=field, least=1, most=most, optional=True)
        if type(self.durability_mode) is not StreamMode:
            field = "stream_policy.durability_mode"
            word = check_word(self.durability_mode, StreamMode, field=field)
            force_setattr(self, "durability_mode", word)


class RoutingRequirements(Record, frozen=True, kw_only=True):
    """The capabilities a worker needs to run this."""

    required_capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        field = "routing_requirements.required_capabilities"
        checked = check_capabilities(self.required_capabilities, field=field)
        if any(type(each) is not str for each in self.required_capabilities):
            force_setattr(self, "required_capabilities", checked)


class ExecutionPolicy(Record, frozen=True, kw_only=True, cache_hash=True):
    """The rules one execution lives by. Each create looks up its text, so a policy keeps its hash.

    >>> ExecutionPolicy(retry_policy=RetryPolicy(max_retries=2)).max_replay_count
    10
    """

    priority: int | None = None  # used when the create call gives none
    delay_until: int | None = None  # used when the create call gives none
    retry_policy: RetryPolicy | None = None  # None: no retries
    timeout_policy: TimeoutPolicy = TimeoutPolicy()
    max_reclaim_count: int | None = None  # precedence: call, then this, then 1000
    max_replay_count: int = limits.REPLAY_COUNT_DEFAULT
    routing_requirements: RoutingRequirements = RoutingRequirements()
    dedup_window_ms: int = limits.DEDUP_WINDOW_MS_DEFAULT
    # how long it is kept after its end; None: the engine's setting
    retention_ttl_ms: int | None = None
    budget_ids: tuple[str, ...] = ()  # attached beside those the create call names
    suspension_policy: SuspensionPolicy = SuspensionPolicy()
    max_signals_per_execution: int = limits.SIGNALS_MAX_DEFAULT  # 0: no limit
    delay_ms: int | None = None  # instead of an instant: this long after it may start
    stream_policy: StreamPolicy = StreamPolicy()
    # the same of one that failed or expired; None: the engine's setting for those
    failed_retention_ttl_ms: int | None = None
    renewal_events: bool = False  # write an event for each renewal of its leases

    def __post_init__(self) -> None:
        check_flag(self.renewal_events, field="policy.renewal_events")
        _check_part(self.retry_policy, RetryPolicy | None, "policy.retry_policy")
        _check_part(self.timeout_policy, TimeoutPolicy, "policy.timeout_policy")
        _check_part(self.routing_requirements, RoutingRequirements, "policy.routing_requirements")
        _check_part(self.suspension_policy, SuspensionPolicy, "policy.suspension_policy")
        _check_part(self.stream_policy, StreamPolicy, "policy.stream_policy")
        for name, least, most in (
            ("priority", -limits.PRIORITY_GIVEN_MAX, limits.PRIORITY_GIVEN_MAX),
            ("delay_until", 0, limits.INSTANT_MS_MAX),
            ("max_reclaim_count", 0, limits.RETRIES_MAX),
            ("retention_ttl_ms", 0, limits.DURATION_MS_MAX),
            ("failed_retention_ttl_ms", 0, limits.DURATION_MS_MAX),
            ("delay_ms", 0, limits.DURATION_MS_MAX),
        ):
            field = f"policy.{name}"
            _keep_integer(self, name, field=field, least=least, most=most, optional=True)
        for name, least, most in (
            ("max_replay_count", 0, limits.RETRIES_MAX),
            ("dedup_window_ms", 1, limits.DURATION_MS_MAX),
            ("max_signals_per_execution", 0, limits.RETRIES_MAX),
        ):
            _keep_integer(self, name, field=f"policy.{name}", least=least, most=most)
        _keep_names(self, "budget_ids", field="policy.budget_ids")
        if self.delay_ms is not None and self.delay_until is not None:
            detail = "policy.delay_ms: give it or delay_until, not both"
            raise InvalidInput(detail, field="policy.delay_ms")


DEFAULT_POLICY = ExecutionPolicy()


def policy_from(value: ExecutionPolicy | Mapping[str, Any] | None) -> ExecutionPolicy:
    """A checked policy from any form the caller uses; unknown fields are refused by name."""
    if value is None:
        return DEFAULT_POLICY
    if isinstance(value, ExecutionPolicy):
        return value
    return convert(value, ExecutionPolicy, field="policy")
