"""Failures of steps: how they are recorded, and how a handler meets them, in every run alike."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from flowfabric import limits
from flowfabric.ids import jitter
from flowfabric.kernel.execution.retry import retry_delay_ms
from flowfabric.model.attempt import FailureClass
from flowfabric.model.budget import HardBreach
from flowfabric.model.checks import clip_text
from flowfabric.model.journal import EntryError, EntryKind
from flowfabric.sdk import codec
from flowfabric.sdk.errors import (
    BudgetExceeded,
    Fatal,
    ResultTooLarge,
    Retry,
    StepFailed,
    StepInterrupted,
)
from flowfabric.sdk.journal.paying import Unaffordable
from flowfabric.sdk.journal.plan import Plan

TIMEOUT: Final = "timeout"
UNAFFORDABLE: Final = BudgetExceeded.code  # no class of a step's own exceptions is called so
_REASON_BYTES: Final = 16_384
_NAMES_MAX: Final = 32
_FRAMES: Final = 20
_OWN_CODE: Final = os.path.dirname(__file__)  # noqa: PTH120 - compared with names of files
_OWN: Final = {each.__name__: each for each in (ResultTooLarge, StepInterrupted)}
_FIELDS: Final[msgspec.json.Decoder[dict[str, Any]]] = msgspec.json.Decoder(dict[str, Any])
_ARGUMENTS: Final[msgspec.json.Decoder[list[Any]]] = msgspec.json.Decoder(list[Any])


class Failure:
    """A failed call, and the exceptions by which the handler met it."""

    __slots__ = ("asked", "digest", "error", "exception", "key", "kind", "tries")

    def __init__(
        self,
        key: str,
        asked: int,
        digest: bytes | None,
        error: EntryError,
        tries: int,
        exception: BaseException,
        kind: EntryKind = EntryKind.STEP,
    ) -> None:
        self.kind = kind
        self.key = key
        self.asked = asked
        self.digest = digest
        self.error = error
        self.tries = tries
        self.exception = exception


class TimedOut(Exception):
    """A try took longer than its step allows."""


class Unrecordable(Exception):
    """The step returned something that cannot be recorded; another try would, too."""

    def __init__(self, detail: str, **fields: int) -> None:
        super().__init__(detail)
        self.fields = fields


def pause_ms(plan: Plan, error: Exception, tries: int) -> int | None:
    """How long to wait before the next try of a step, or None when there is none."""
    if isinstance(error, Fatal | Unrecordable):
        return None
    names = _names(error)
    pause = retry_delay_ms(
        plan.retry,
        failure_class=FailureClass.TRANSIENT,
        category=next((name for name in names if name in plan.retry_on), names[0]),
        retry_count=tries - 1,
        jitter=jitter(),
    )
    if pause is not None and isinstance(error, Retry) and error.after_ms is not None:
        return error.after_ms
    return pause


def recorded(plan: Plan, error: Exception) -> EntryError:
    """An exception as its entry keeps it."""
    names = _names(error)
    arguments = None
    if any(name in plan.raises for name in names):
        arguments = _arguments(error)
    return EntryError(
        names[0],
        clip_text(_reason(error), _REASON_BYTES, field="reason"),
        names[:_NAMES_MAX],
        arguments,
        plan.is_once or isinstance(error, Fatal | Unrecordable),
    )


def unaffordable(key: str, error: Unaffordable) -> EntryError:
    """A refused reservation as its entry keeps it."""
    return refused(key, exceeded(error.budget, error.breach, error.amounts))


def refused(key: str, error: BudgetExceeded) -> EntryError:
    """A spend that people refused, as its entry keeps it."""
    arguments = codec.encode({**error.fields, "step": key}).decode()
    return EntryError(UNAFFORDABLE, error.detail, (BudgetExceeded.__name__,), arguments)


def exceeded(budget: str, breach: HardBreach, amounts: Mapping[str, int]) -> BudgetExceeded:
    """A refused reservation as the handler sees it."""
    name = breach.dimension
    return BudgetExceeded(
        f"{budget}: {name} {breach.current_usage} of {breach.hard_limit} is used or reserved, "
        f"{amounts.get(name, 0)} more were asked for",
        budget=budget,
        dimension=name,
        current_usage=breach.current_usage,
        hard_limit=breach.hard_limit,
    )


def raised(plan: Plan, key: str, error: EntryError) -> Exception:
    """A recorded failure as the handler gets it: a class that the step names in `raises`, or
    `StepFailed`."""
    if error.category == UNAFFORDABLE and error.arguments is not None:
        return BudgetExceeded(error.reason, **_FIELDS.decode(error.arguments))
    if error.arguments is not None:
        for name in error.names:
            if (kind := plan.raises.get(name)) is not None:
                return kind(*_ARGUMENTS.decode(error.arguments))
    headline = error.reason.strip().partition("\n")[0]
    kind_raised = _OWN.get(error.category, StepFailed)
    return kind_raised(
        f"{key}: {headline}",
        step=key,
        category=error.category,
        reason=error.reason,
        names=list(error.names),
        is_permanent=error.is_permanent,
    )


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An exception and everything it came from: causes, contexts and members of groups."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _names(error: Exception) -> tuple[str, ...]:
    if isinstance(error, TimedOut):
        return (TIMEOUT,)
    if isinstance(error, Unrecordable):
        return (ResultTooLarge.__name__ if error.fields else "InvalidResult",)
    return tuple(kind.__name__ for kind in type(error).__mro__ if kind is not object)


def _arguments(error: Exception) -> str | None:
    try:
        text = codec.encode(list(error.args)).decode()
    except codec.EncodeErrors:
        return None
    return text if len(text) <= limits.FAILURE_REASON_BYTES // 4 else None


def _reason(error: Exception) -> str:
    """The error in a line, and below it its place, without our own frames."""
    if isinstance(error, TimedOut | Unrecordable):
        return str(error)
    headline = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, Retry | Fatal) and error.__cause__ is None:
        return error.reason or headline
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OWN_CODE):
        frames = frames.tb_next
    where = "".join(traceback.format_tb(frames, limit=-_FRAMES)).rstrip()
    return f"{headline}\n{where}" if where else headline
