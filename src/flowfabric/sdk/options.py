"""Options of a task, and of one submission of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar, Unpack

from flowfabric.api.executions import NewUnique
from flowfabric.errors import InvalidInput
from flowfabric.limits import BATCH_ITEMS_MAX, IDEMPOTENCY_KEY_BYTES
from flowfabric.model.bounds import Bounds
from flowfabric.model.checks import (
    check_capabilities,
    check_flag,
    check_instant,
    check_integer,
    check_lane,
    check_name,
    check_text,
    clamp_priority,
)
from flowfabric.model.code import check_version, pin_of
from flowfabric.model.limit_checks import check_bounds, check_word
from flowfabric.model.policy import (
    ExecutionPolicy,
    ExponentialBackoff,
    FixedBackoff,
    RetryPolicy,
    RoutingRequirements,
    TimeoutPolicy,
)
from flowfabric.model.record import replace as changed
from flowfabric.model.shown import shown
from flowfabric.model.words import HeadFailure, OnConflict, UniqueWhile
from flowfabric.sdk.durations import Duration, Moment, instant_ms, to_ms

T = TypeVar("T")

HookTask: TypeAlias = Any  # a task, one with options, or a name: what is known of tasks checks it
HOOK_NAMES: Final = ("on_success", "on_failure", "on_end")
ConcurrencyKey = str | Callable[..., str | int | None]
SerialKey = str | Callable[..., str | int | None]
OnHeadFailure = Literal["next", "hold"]
While = Literal["unfinished", "waiting"]
Conflict = Literal["existing", "refuse", "replace"]
LogLevel = str | int | None
OnMismatch = Literal["hold", "fail"]
Backoff = FixedBackoff | ExponentialBackoff | str | int | float
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_LEVEL_MAX: Final = 100
_ON_MISMATCH: Final = ("hold", "fail")
_TIMEOUT_CATEGORY: Final = "timeout"  # the category of an attempt that timed out


@dataclass(frozen=True, slots=True)
class TaskCode:
    """The version of a task's code; the capabilities of its workers, and those that its executions
    need."""

    version: str | None
    offers: tuple[str, ...]
    pins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """How executions of a task are ordered among others; a computed key is not known yet."""

    serial: str | None
    on_head_failure: HeadFailure
    unique: str | None
    settings: NewUnique  # with another key
    fair: str | None

    def meaning(self, key: str) -> NewUnique:
        """What a key means."""
        return changed(self.settings, key=key)


class TaskKeywords(TypedDict, total=False):
    """The fields of `TaskOptions`, as type checkers see the arguments of `@ff.task(...)`."""

    name: str | None
    lane: str
    needs: Iterable[str]
    retries: int | RetryPolicy
    retry_on: Iterable[type[BaseException] | str]
    backoff: Backoff | None
    timeout: Duration | None
    deadline: Duration | None
    start_within: Duration | None
    priority: int
    recoveries: int
    retention: Duration | None
    failed_retention: Duration | None
    budgets: Iterable[str]
    quota: str | None
    concurrency_key: ConcurrencyKey | None
    fair: SerialKey | None
    serial: SerialKey | None
    on_head_failure: OnHeadFailure
    unique: SerialKey | None
    while_: While | None
    on_conflict: Conflict
    debounce: Duration | None
    debounce_max: Duration | None
    batch: tuple[int, Duration] | None
    log_level: LogLevel
    version: str | None
    pin: bool
    accepts: Iterable[str]
    on_mismatch: OnMismatch
    on_success: HookTask | None
    on_failure: HookTask | None
    on_end: HookTask | None
    undo_stops: bool
    mailboxes: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The arguments of `@ff.task(...)`."""

    name: str | None = None
    lane: str = "default"
    needs: Iterable[str] = ()
    retries: int | RetryPolicy = 0
    retry_on: Iterable[type[BaseException] | str] = ()
    backoff: Backoff | None = None
    timeout: Duration | None = None
    deadline: Duration | None = None
    start_within: Duration | None = None
    priority: int = 0
    recoveries: int = 20
    retention: Duration | None = None
    failed_retention: Duration | None = None
    budgets: Iterable[str] = ()
    quota: str | None = None
    concurrency_key: ConcurrencyKey | None = None
    fair: SerialKey | None = None
    serial: SerialKey | None = None
    on_head_failure: OnHeadFailure = "next"
    unique: SerialKey | None = None
    while_: While | None = None
    on_conflict: Conflict = "existing"
    debounce: Duration | None = None
    debounce_max: Duration | None = None
    batch: tuple[int, Duration] | None = None
    log_level: LogLevel = "info"
    version: str | None = None
    pin: bool = False
    accepts: Iterable[str] = ()
    on_mismatch: OnMismatch = "hold"
    on_success: HookTask | None = None
    on_failure: HookTask | None = None
    on_end: HookTask | None = None
    undo_stops: bool = False
    mailboxes: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Refuse values no engine would accept, where the task is written."""
        self.code("task")
        self.order()
        if self.name is not None:
            check_name(self.name, field="name")
        check_lane(self.lane, field="lane")
        clamp_priority(self.priority)
        check_flag(self.undo_stops, field="undo_stops")

    def bounds(self) -> Bounds:
        """The bounds of every execution of the task; a computed key is not known yet."""
        key = None if callable(self.concurrency_key) else self.concurrency_key
        return check_bounds(names_of(self.budgets, "budgets"), self.quota, key)

    def order(self) -> TaskOrder:
        """How its executions are ordered among others, and what may exist once."""
        keys = {"fair": self.fair, "serial": self.serial, "unique": self.unique}
        for name, key in keys.items():
            if not callable(key) and key is not None:
                check_text(key, field=name, max_bytes=IDEMPOTENCY_KEY_BYTES)
        word = check_word(self.on_head_failure, HeadFailure, field="on_head_failure")
        if self.serial is None and word is not HeadFailure.NEXT:
            raise InvalidInput("on_head_failure: needs serial", field="on_head_failure")
        items, batch_ms = self._batch()
        order = TaskOrder(
            None if callable(self.serial) else self.serial,
            word,
            None if callable(self.unique) else self.unique,
            NewUnique(
                key="",
                while_=None
                if self.while_ is None
                else check_word(self.while_, UniqueWhile, field="while_"),
                on_conflict=check_word(self.on_conflict, OnConflict, field="on_conflict"),
                debounce_ms=_optional_ms(self.debounce, "debounce"),
                debounce_max_ms=_optional_ms(self.debounce_max, "debounce_max"),
                batch_items=items,
                batch_ms=batch_ms,
            ),
            None if callable(self.fair) else self.fair,
        )
        if self.unique is None:
            for name in ("while_", "debounce", "debounce_max", "batch"):
                if getattr(self, name) is not None:
                    raise InvalidInput(f"{name}: needs unique", field=name)
            if order.settings.on_conflict is not OnConflict.EXISTING:
                raise InvalidInput("on_conflict: needs unique", field="on_conflict")
        _check_gathering(order.settings)
        return order

    def _batch(self) -> tuple[int | None, int | None]:
        """How many items, and how long they are waited for."""
        if self.batch is None:
            return None, None
        if not isinstance(self.batch, tuple | list) or len(self.batch) != 2:
            raise InvalidInput("batch: expected (items, time), as (100, '2s')", field="batch")
        items, wait = self.batch
        most = check_integer(items, field="batch", least=1, most=BATCH_ITEMS_MAX)
        return most, to_ms(wait, field="batch")

    def code(self, kind: str) -> TaskCode:
        """Which versions of the code there are."""
        if self.on_mismatch not in _ON_MISMATCH:
            words = ", ".join(_ON_MISMATCH)
            detail = f"on_mismatch: {shown(self.on_mismatch, 80)} is not one of {words}"
            raise InvalidInput(detail, field="on_mismatch")
        version = None
        if self.version is not None:
            version = check_version(self.version, field="version")
        accepts = [
            check_version(each, field="accepts") for each in names_of(self.accepts, "accepts")
        ]
        if version is None and (accepts or check_flag(self.pin, field="pin")):
            field = "accepts" if accepts else "pin"
            raise InvalidInput(f"{field}: needs a version", field=field)
        check_flag(self.pin, field="pin")
        known = () if version is None else tuple(sorted({version, *accepts}))
        offers = check_capabilities([pin_of(kind, each) for each in known], field="version")
        pins = (pin_of(kind, version),) if self.pin and version is not None else ()
        return TaskCode(version, offers, pins)

    def policy(self, kind: str) -> ExecutionPolicy:
        """The policy of every execution of the task, which has this name."""
        needs = check_capabilities(self.needs, field="needs")
        return ExecutionPolicy(
            retry_policy=retry_policy(self.retries, self.backoff, self.retry_on),
            timeout_policy=TimeoutPolicy(
                attempt_timeout_ms=_optional_ms(self.timeout, "timeout"),
                execution_deadline_ms=_optional_ms(self.deadline, "deadline"),
                start_within_ms=_optional_ms(self.start_within, "start_within"),
            ),
            max_reclaim_count=self.recoveries,
            routing_requirements=RoutingRequirements(
                required_capabilities=check_capabilities(
                    (*needs, *self.code(kind).pins), field="needs"
                )
            ),
            retention_ttl_ms=_optional_ms(self.retention, "retention"),
            failed_retention_ttl_ms=_optional_ms(self.failed_retention, "failed_retention"),
        )

    def lowest_level(self) -> int | None:
        """The level from which on its log is kept, as `logging` counts; None: none of it is."""
        level: object = self.log_level
        if level is None:
            return None
        if isinstance(level, str) and level.lower() in _LEVELS:
            return _LEVELS[level.lower()]
        if isinstance(level, int) and not isinstance(level, bool) and 0 <= level <= _LEVEL_MAX:
            return int(level)
        words = ", ".join(_LEVELS)
        detail = f"log_level: {shown(level, 80)} is not one of {words}, a number or None"
        raise InvalidInput(detail, field="log_level")


def retry_policy(
    retries: int | RetryPolicy,
    backoff: Backoff | None,
    retry_on: Iterable[type[BaseException] | str],
) -> RetryPolicy | None:
    """The policy that these options say; None without retries."""
    if isinstance(retries, RetryPolicy):
        if backoff is not None or retry_on:
            detail = "retries: a RetryPolicy says backoff and retry_on itself"
            raise InvalidInput(detail, field="retries")
        return retries
    policy = RetryPolicy(
        max_retries=retries,
        backoff=_backoff(backoff),
        retryable_categories=_categories(retry_on),
    )
    return None if policy.max_retries == 0 else policy


def _backoff(value: Backoff | None) -> FixedBackoff | ExponentialBackoff:
    if value is None:
        return ExponentialBackoff()
    if isinstance(value, FixedBackoff | ExponentialBackoff):
        return value
    return FixedBackoff(delay_ms=to_ms(value, field="backoff"))


def _categories(kinds: Iterable[type[BaseException] | str]) -> tuple[str, ...]:
    """Names of exception classes. `Retry` asks for another attempt and is always among them."""
    if isinstance(kinds, type):
        raise InvalidInput(f"retry_on: write [{kinds.__name__}]", field="retry_on")
    names = {_category(kind) for kind in names_of(kinds, "retry_on")}
    if not names:
        return ()
    if TimeoutError.__name__ in names:
        names.add(_TIMEOUT_CATEGORY)
    return tuple(sorted(names | {"Retry"}))


def _category(kind: object) -> str:
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return kind.__name__
    if not isinstance(kind, str):
        raise InvalidInput(f"retry_on: {shown(kind)} is no exception class", field="retry_on")
    return check_name(kind, field="retry_on")


def _check_gathering(settings: NewUnique) -> None:
    """What contradicts a start that submits move: refused where the task is written, and not only
    at each submit."""
    debounce, longest = settings.debounce_ms, settings.debounce_max_ms
    if longest is not None and (debounce is None or longest < debounce):
        detail = "debounce_max: needs a debounce, and is not below it"
        raise InvalidInput(detail, field="debounce_max")
    if debounce is not None and settings.batch_items is not None:
        raise InvalidInput("batch: give it or debounce, not both", field="batch")
    if debounce is None and settings.batch_items is None:
        return
    if settings.on_conflict is not OnConflict.EXISTING:
        detail = "on_conflict: with debounce or batch a submit is taken in"
        raise InvalidInput(detail, field="on_conflict")
    if settings.while_ is UniqueWhile.UNFINISHED:
        raise InvalidInput("while_: with debounce or batch it can only be waiting", field="while_")


def _optional_ms(value: Duration | None, field: str) -> int | None:
    return None if value is None else to_ms(value, field=field)


class SubmitKeywords(TypedDict, total=False):
    """The fields of `SubmitOptions`, as type checkers see the arguments of `task.options(...)`."""

    key: str | None
    priority: int | None
    delay: Moment | None
    start_at: datetime | None
    lane: str | None
    tags: Mapping[str, str] | None
    deadline: Moment | None
    connection: Any
    budgets: Iterable[str] | None
    quota: str | None
    concurrency_key: str | None
    fair: str | None
    serial: str | None
    unique: str | None
    on_success: HookTask | None
    on_failure: HookTask | None
    on_end: HookTask | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """The options of one submission; those left out are the task's."""

    key: str | None = None
    priority: int | None = None
    delay: Moment | None = None
    start_at: datetime | None = None
    lane: str | None = None
    tags: Mapping[str, str] | None = None
    deadline: Moment | None = None
    connection: Any = None
    budgets: Iterable[str] | None = None
    quota: str | None = None
    concurrency_key: str | None = None
    fair: str | None = None
    serial: str | None = None
    unique: str | None = None
    on_success: HookTask | None = None
    on_failure: HookTask | None = None
    on_end: HookTask | None = None

    def __post_init__(self) -> None:
        """Options may be used for many submits: an iterator would serve the first only."""
        if self.budgets is not None:
            object.__setattr__(self, "budgets", names_of(self.budgets, "budgets"))
        if self.start_at is not None and self.delay is not None:
            raise InvalidInput("start_at: give it or delay, not both", field="start_at")

    def but(self, **changes: Unpack[SubmitKeywords]) -> SubmitOptions:
        """A copy with some options changed; an unknown one is named."""
        for name in changes:
            if name not in OPTION_NAMES:
                known = ", ".join(sorted(OPTION_NAMES))
                raise InvalidInput(f"{name}: no such option; there are {known}", field=name)
        return replace(self, **changes)

    def under(self, others: SubmitOptions) -> SubmitOptions:
        """These, where the others say nothing."""
        given = {name: getattr(others, name) for name in OPTION_NAMES}
        return replace(self, **{name: each for name, each in given.items() if each is not None})

    def delay_until(self) -> int | None:
        """The instant from which on it may start, if it was given as one."""
        if isinstance(self.delay, datetime):
            return _instant(self.delay, "delay")
        return None if self.start_at is None else _instant(self.start_at, "start_at")

    def delay_ms(self) -> int | None:
        """The delay after which it may start, if one was given."""
        if self.delay is None or isinstance(self.delay, datetime):
            return None
        return to_ms(self.delay, field="delay")

    def deadline_at(self) -> int | None:
        """A deadline given as an instant."""
        if isinstance(self.deadline, datetime):
            return _instant(self.deadline, "deadline")
        return None

    def applied_to(self, policy: ExecutionPolicy) -> ExecutionPolicy:
        """The task's policy, with this submission's own deadline instead of the task's."""
        if self.deadline is None:
            return policy
        relative = None
        if not isinstance(self.deadline, datetime):
            relative = to_ms(self.deadline, field="deadline")
        timeouts = changed(policy.timeout_policy, execution_deadline_ms=relative)
        return changed(policy, timeout_policy=timeouts)


def _instant(value: object, field: str) -> int:
    return check_instant(instant_ms(value, field=field), field=field)


def names_of(value: Iterable[T], field: str) -> tuple[T, ...]:
    """Several names; a single text is mostly a forgotten pair of brackets."""
    if isinstance(value, str):
        raise InvalidInput(f"{field}: write [{shown(value)}]", field=field)
    try:
        return tuple(value)
    except TypeError:
        raise InvalidInput(f"{field}: expected a list of names", field=field) from None


TASK_OPTION_NAMES: Final = frozenset(field.name for field in fields(TaskOptions))
OPTION_NAMES: Final = frozenset(field.name for field in fields(SubmitOptions))
NO_OPTIONS: Final = SubmitOptions()
