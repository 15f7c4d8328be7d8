"""Runs one handler and judges how it ended. Nothing here waits for the store."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from flowfabric.errors import JournalFull
from flowfabric.model.attempt import FailureClass
from flowfabric.model.checks import clip_text
from flowfabric.sdk import codec
from flowfabric.sdk.context.context import Context, SyncContext
from flowfabric.sdk.errors import (
    BudgetExceeded,
    ChildFailed,
    Fatal,
    JournaledCallError,
    JournalMismatch,
    Parked,
    Retry,
    StepFailed,
    Stopped,
)
from flowfabric.sdk.worker import telling
from flowfabric.sdk.worker.held import Held
from flowfabric.sdk.worker.reports import Failed, Postponed, Report, Succeeded

_LOGGER = logging.getLogger("flowfabric.worker")
_REASON_BYTES: Final = 16_384  # a traceback people still read
_FRAMES: Final = 20
_OWN_CODE: Final = __file__
E = TypeVar("E", bound=BaseException)
# another attempt would fail in the same way
_FINAL: Final = (BudgetExceeded, ChildFailed, JournalFull, JournaledCallError)


async def run_async(held: Held) -> Report | None:
    """Run an async handler; None when its end no longer counts."""
    held.begin()
    Held.current.set(held)
    try:
        if held.may_have_journal:
            await held.load_journal()
        args, kwargs = _arguments(held)
        if held.task.signature.takes_context:
            if held.may_have_waited:
                await held.load_wait()
            value = await held.task.function(Context(held), *args, **kwargs)
        else:
            value = await held.task.function(*args, **kwargs)
        return _succeeded(held, value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
        if (mismatch := _first(error, JournalMismatch)) is not None:
            return await _held(held, mismatch)
        return judge(held, error)


def run_sync(held: Held) -> Report | None:
    """Run a sync handler in the thread this is called in, which runs others after it."""
    held.begin()
    token = Held.current.set(held)
    try:
        if held.may_have_journal:
            held.wait_for(held.load_journal())
        args, kwargs = _arguments(held)
        if held.task.signature.takes_context:
            if held.may_have_waited:
                held.wait_for(held.load_wait())
            value = held.task.function(SyncContext(held), *args, **kwargs)
        else:
            value = held.task.function(*args, **kwargs)
        return _succeeded(held, value)
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
        if (mismatch := _first(error, JournalMismatch)) is not None:
            report: Report | None = held.wait_for(_held(held, mismatch))
            return report
        return judge(held, error)
    finally:
        Held.current.reset(token)


def _first(error: BaseException, kind: type[E]) -> E | None:
    """The exception, or a member of it, if it is of this kind: a group of tasks raises what its
    members raised in a group of exceptions."""
    if isinstance(error, kind):
        return error
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((found for each in members if (found := _first(each, kind)) is not None), None)


async def _held(held: Held, mismatch: JournalMismatch) -> Report | None:
    """The code does not fit the journal: the execution waits for an operator, as it stands; or it
    fails, where its task says so."""
    detail = await held.explained(mismatch)
    if held.task.on_mismatch == "fail" and not held.is_suspended:
        return Failed(
            held=held,
            error=mismatch,
            reason=clip_text(detail, _REASON_BYTES, field="reason"),
            failure_class=FailureClass.PERMANENT,
            category=mismatch.code,
        )
    _LOGGER.error("%s: %s; it is held", telling.name_of(held), detail)
    try:
        await held.hold(detail)
    except BaseException as error:  # noqa: BLE001 - the lease may be gone
        return judge(held, error)
    return None


def _arguments(held: Held) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The decoded arguments; ones that do not fit the function never will."""
    if held.is_stopped:
        raise Stopped(held.claimed.execution_id)
    encoding, payload = held.claimed.payload_encoding, held.arguments
    if payload is None:
        if encoding not in (None, codec.JSON):
            raise Fatal(f"the payload is {encoding}, not JSON")
        payload = held.claimed.payload
    try:
        return held.task.signature.arguments(payload)
    except codec.DecodeErrors as error:
        raise Fatal(f"the arguments do not fit {held.task.name}: {error}") from None


def _succeeded(held: Held, value: Any) -> Report | None:
    if held.is_suspended:
        text = "%s: the handler went on after it suspended; what it returned is dropped"
        _LOGGER.warning(text, telling.name_of(held))
        return None
    if held.is_stopped and not held.is_drained:
        return None
    try:
        return Succeeded(held, codec.encode(value))
    except codec.EncodeErrors as error:
        raise Fatal(f"the result cannot be written as JSON: {error}") from error


def judge(held: Held, error: BaseException) -> Report | None:
    """The meaning of an exception for the execution."""
    if held.is_suspended or (held.is_stopped and not held.is_drained):
        return None
    if (parked := _first(error, Parked)) is not None:
        return Postponed(held, parked.until)
    if held.is_drained:
        return Postponed(held, None)
    if isinstance(error, Fatal):
        return Failed(
            held=held,
            error=error,
            reason=_reason(error),
            failure_class=FailureClass.PERMANENT,
            category=Fatal.__name__,
        )
    if isinstance(error, StepFailed):
        return _step_failed(held, error)
    if isinstance(error, _FINAL) and type(error).__name__ not in held.task.retry_on:
        return Failed(
            held=held,
            error=error,
            reason=clip_text(error.detail, _REASON_BYTES, field="reason"),
            failure_class=FailureClass.PERMANENT,
            category=error.code,
        )
    after_ms = error.after_ms if isinstance(error, Retry) else None
    category = _category(_names(error), held.task.retry_on)
    return Failed(
        held=held,
        error=error,
        reason=_reason(error),
        category=category,
        retry_after_ms=after_ms,
    )


def _step_failed(held: Held, error: StepFailed) -> Failed:
    """The failure of a step ended the handler: its own class says whether another attempt helps."""
    permanent = FailureClass.PERMANENT
    return Failed(
        held=held,
        error=error,
        reason=clip_text(f"step {error.step}: {error.reason}", _REASON_BYTES, field="reason"),
        failure_class=permanent if error.is_permanent else FailureClass.TRANSIENT,
        category=_category(error.names or (error.category,), held.task.retry_on),
    )


def _names(error: BaseException) -> tuple[str, ...]:
    return tuple(kind.__name__ for kind in type(error).__mro__)


def _category(names: Sequence[str], known: frozenset[str]) -> str:
    """The name of the class, or of the nearest ancestor that `retry_on` names."""
    return next((name for name in names if name in known), names[0])


def _reason(error: BaseException) -> str:
    """The error in a line, and below it its place, without the worker's own frames."""
    headline = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, Retry | Fatal) and error.__cause__ is None:
        return clip_text(error.reason or headline, _REASON_BYTES, field="reason")
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == _OWN_CODE:
        frames = frames.tb_next
    where = "".join(traceback.format_tb(frames, limit=-_FRAMES)).rstrip()
    return clip_text(f"{headline}\n{where}" if where else headline, _REASON_BYTES, field="reason")
