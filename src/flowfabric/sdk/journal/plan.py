"""A step as it will be run: its function and its options, checked once."""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from types import FunctionType
from typing import Any, Final, TypedDict, Unpack

import msgspec

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_flag, check_list
from flowfabric.model.journal import EntryKind
from flowfabric.model.policy import RetryPolicy
from flowfabric.model.shown import shown
from flowfabric.sdk import codec
from flowfabric.sdk.durations import Duration, to_ms
from flowfabric.sdk.errors import InvalidTask
from flowfabric.sdk.journal.paying import check_spend
from flowfabric.sdk.journal.scopes import check_step_key, check_step_name
from flowfabric.sdk.options import Backoff, retry_policy
from flowfabric.stores.callers.pools import check_pool

_COMPARES: Final = {"arguments": True, "name": False}
_INTERRUPTED: Final = {"raise": False, "ask": True}
_DIGEST_BYTES: Final = 8
_PLAIN: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()
# What JSON does not change. A float may be no number, which is written as null.
_SCALARS: Final = frozenset({str, int, bool, type(None)})


class StepKeywords(TypedDict, total=False):
    """The fields of `StepOptions`, as type checkers see the arguments of `@ff.step(...)`."""

    name: str | None
    key: str | None
    retries: int | RetryPolicy
    backoff: Backoff | None
    retry_on: Iterable[type[BaseException] | str]
    timeout: Duration | None
    effects: bool
    once: bool
    on_interrupted: str
    raises: Iterable[type[Exception]]
    compare: str
    secret: bool
    spend: Mapping[str, Mapping[str, int]] | None
    actual: Callable[[Any], Mapping[str, int]] | None
    was: str | None


class EveryKeyword(StepKeywords, total=False):
    """With the one that changes what the function is called with."""

    transaction: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """The arguments of `@ff.step(...)` and of `ctx.step.options(...)`.

    `name`: of the step, the function's unless given. `key`: tells this call from others of its
    name, instead of a number. `retries`, `backoff`, `retry_on`: as of a task, for the step alone.
    `timeout`: of one try. `effects`: whether another system can see what it does; False for a step
    that only reads, computes or asks, which then need not wait until earlier ones are durable.
    `once`: the function begins at most once in a life of the execution; a step that was begun and
    whose end is not known raises `StepInterrupted`. `on_interrupted`: `raise`, or `ask` to wait
    until people tell what it returned.
    `raises`: exceptions that the handler gets as themselves. `compare`: `arguments`, or `name` for
    a step that may be found again with other arguments. `secret`: what it returns is shown in no
    listing. `spend`: amounts by budget that are reserved before it begins, and charged with the
    entry of its end: `{"gpt": {"tokens": 1000}}`. `actual`: the amounts that a result has cost, by
    dimension; without it, those that were reserved. `transaction`: a pool, an engine, or a function
    that returns a connection; the function of the step gets a connection as its first argument, in
    a transaction that is committed with the record of its end. `was`: the name it had before.
    """

    name: str | None = None
    key: str | None = None
    retries: int | RetryPolicy = 0
    backoff: Backoff | None = None
    retry_on: Iterable[type[BaseException] | str] = ()
    timeout: Duration | None = None
    effects: bool = True
    once: bool = False
    on_interrupted: str = "raise"
    raises: Iterable[type[Exception]] = ()
    compare: str = "arguments"
    secret: bool = False
    spend: Mapping[str, Mapping[str, int]] | None = None
    actual: Callable[[Any], Mapping[str, int]] | None = None
    transaction: Any = None
    was: str | None = None

    def but(self, **changes: Unpack[EveryKeyword]) -> StepOptions:
        """The same with some changed."""
        for name in changes.keys() - STEP_OPTION_NAMES:
            known = ", ".join(sorted(STEP_OPTION_NAMES))
            raise InvalidTask(f"step: has no option {name!r}; options are {known}", field=name)
        if changes.get("transaction", self) is None:
            detail = "transaction: None is no pool; for one that is made later give a function"
            raise InvalidInput(f"{detail}, as transaction=lambda: app.pool", field="transaction")
        return replace(self, **changes)


STEP_OPTION_NAMES: Final = frozenset(each.name for each in fields(StepOptions))
NO_STEP_OPTIONS: Final = StepOptions()
_OF_VALUES: Final = StepOptions(effects=False, compare="name")


class Plan:
    """How a step is run."""

    __slots__ = (
        "actual",
        "asks",
        "compares",
        "compares_closure",
        "decoder",
        "function",
        "has_effects",
        "is_async",
        "is_inline",
        "is_once",
        "is_secret",
        "key",
        "kind",
        "name",
        "pool",
        "raises",
        "retry",
        "retry_on",
        "spend",
        "timeout_s",
        "was",
    )

    def __init__(self, name: str, function: Callable[..., Any], options: StepOptions) -> None:
        self.name = check_step_name(name)
        self.kind = EntryKind.STEP
        self.is_inline = False  # a plain function runs where the handler does
        self.function = function
        self.is_async = is_async(function)
        self.decoder = result_decoder(function)
        self.key = None if options.key is None else check_step_key(options.key)
        self.was = None if options.was is None else check_step_name(options.was, field="was")
        self.retry = retry_policy(options.retries, options.backoff, options.retry_on)
        self.retry_on = frozenset(self.retry.retryable_categories if self.retry else ())
        self.timeout_s = (
            None if options.timeout is None else to_ms(options.timeout, field="timeout") / 1000
        )
        self.has_effects = check_flag(options.effects, field="effects")
        self.is_once = check_flag(options.once, field="once")
        self.asks = _word(options.on_interrupted, _INTERRUPTED, "on_interrupted")
        self.is_secret = check_flag(options.secret, field="secret")
        self.raises = _exceptions(options.raises)
        self.spend = check_spend(options.spend, options.actual)
        self.actual = options.actual
        self.pool = options.transaction
        if self.pool is not None:
            check_pool(self.pool, is_async=self.is_async)
        self.compares = _word(options.compare, _COMPARES, "compare")
        self.compares_closure = False  # of a function that is written where it is called
        self._check_together()

    def _check_together(self) -> None:
        """Options that contradict each other."""
        if self.is_once and self.retry is not None:
            raise InvalidTask("once: a step that runs once has no retries", field="once")
        if self.is_once and not self.has_effects:
            detail = "once: a step without effects may run again; leave out effects=False"
            raise InvalidTask(detail, field="once")
        if self.is_once and self.pool is not None:
            detail = "once: a transaction is done exactly once; leave out once=True"
            raise InvalidTask(detail, field="once")
        if self.pool is not None and not self.has_effects:
            detail = "effects: a transaction has effects; leave out effects=False"
            raise InvalidTask(detail, field="effects")
        if self.asks and not self.is_once:
            detail = 'on_interrupted: "ask" is for a step with once=True'
            raise InvalidTask(detail, field="on_interrupted")

    @property
    def result_type(self) -> Any:
        """The annotated type of its result; `Any` without one."""
        return result_type(self.function)

    def compared(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bytes | None, bytes | None]:
        """A digest of the arguments, or of what a function without any holds; None where that is no
        JSON. Beside it the arguments themselves, if people may see them and they are short."""
        if not self.compares:
            return None, None
        if not (args or kwargs):
            held = held_by(self.function) if self.compares_closure else None
            return (None if held is None else digest_of(held)), None
        try:
            data = _SAME_ORDER.encode([args, kwargs])
        except codec.EncodeErrors:
            return None, None
        is_shown = not self.is_secret and len(data) <= limits.ENTRY_ARGUMENTS_BYTES
        digest = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
        return digest, data if is_shown else None


def plan_of_value(name: str, function: Callable[[], Any]) -> Plan:
    """The plan of a choice: it is quick, and no other system sees it."""
    plan = Plan(name, _callable(function), _OF_VALUES)
    plan.kind, plan.is_inline = EntryKind.VALUE, True
    return plan


def digest_of(value: Any) -> bytes | None:
    """The same bytes for the same value, in every process; None for one that is no JSON."""
    try:
        data = _SAME_ORDER.encode(value)
    except codec.EncodeErrors:
        return None
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


_SAME_ORDER: Final = codec.encoder(order="deterministic")


def plan_of(function: Callable[..., Any], options: StepOptions) -> Plan:
    """The plan of a decorated function."""
    own: str = getattr(_callable(function), "__name__", "")
    return Plan(own if options.name is None else options.name, function, options)


def plan_of_call(name: str, function: Callable[..., Any], options: StepOptions) -> Plan:
    """The plan of a function that is named where it is called."""
    is_usual = options is NO_STEP_OPTIONS and getattr(function, "__closure__", None) is None
    if is_usual and isinstance(function, FunctionType):
        return _kept_plan(name, function)  # few functions are used again and again
    plan = Plan(name, _callable(function), options)
    plan.compares_closure = True
    return plan


def _callable(function: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(function):
        raise InvalidTask(f"{shown(function, 80)} is not a function", field="function")
    return function


@lru_cache(maxsize=1_000)
def _kept_plan(name: str, function: Callable[..., Any]) -> Plan:
    plan = Plan(name, function, NO_STEP_OPTIONS)
    plan.compares_closure = True
    return plan


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    call = getattr(function, "__call__", None)  # noqa: B004 - of an object with that method
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def result_decoder(function: Callable[..., Any]) -> msgspec.json.Decoder[Any]:
    """Reads results as the annotated type."""
    notes = getattr(function, "__annotations__", None)
    if not notes or "return" not in notes:
        return _PLAIN
    return codec.decoder_of(result_type(function), field=f"result of {function.__name__}")


def result_type(function: Callable[..., Any]) -> Any:
    """The annotation of what it returns."""
    notes = getattr(function, "__annotations__", None)
    if not notes or "return" not in notes:
        return Any
    try:
        return typing.get_type_hints(function, include_extras=True).get("return", Any)
    except NameError as error:
        detail = f"{function.__name__}: {error}; its types must be defined in its module"
        raise InvalidTask(detail, field=str(error.name)) from None


def settled(plan: Plan, value: Any, data: bytes) -> Any:
    """A result as every later run will see it: what JSON changes, it changes at once. Raises
    `codec.DecodeErrors`."""
    if plan.decoder is _PLAIN and type(value) in _SCALARS:
        return value
    return plan.decoder.decode(data)


def held_by(function: Callable[..., Any]) -> Any:
    """What a function without arguments depends on: the values in its closure and its defaults."""
    cells = getattr(function, "__closure__", None) or ()
    defaults = getattr(function, "__defaults__", None) or ()
    held = [each for cell in cells if digest_of(each := _content(cell)) is not None]
    return [held, list(defaults)] if held or defaults else None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _word(value: object, words: Mapping[str, bool], field: str) -> bool:
    if isinstance(value, str) and value in words:
        return words[value]
    known = ", ".join(words)
    raise InvalidInput(f"{field}: {shown(value, 80)} is not one of {known}", field=field)


def _exceptions(kinds: object) -> dict[str, type[Exception]]:
    found: dict[str, type[Exception]] = {}
    for kind in check_list(kinds, field="raises"):
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            detail = f"raises: {shown(kind, 80)} is no class of exceptions"
            raise InvalidInput(detail, field="raises")
        found[kind.__name__] = kind
    return found
