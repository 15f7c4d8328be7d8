"""The checks of what ties an execution to others."""

from __future__ import annotations

from typing import Final

from flowfabric import limits
from flowfabric.api.executions import NewExecution, NewUnique
from flowfabric.errors import InvalidInput
from flowfabric.kernel.order.unique import count_items
from flowfabric.model.checks import check_integer, check_text
from flowfabric.model.fair import Fair
from flowfabric.model.limit_checks import check_word
from flowfabric.model.ties import UNTIED, Ties
from flowfabric.model.unique import Unique
from flowfabric.model.words import HeadFailure, OnConflict, UniqueWhile

_NEXT: Final = HeadFailure.NEXT  # reading a member of an enumeration costs more, for every create


def ties_of(request: NewExecution) -> Ties:
    """The ties that a request asks for; every problem names its field."""
    unique, fair, serial = _unique(request), request.fair_key, request.serial_key
    if serial is None:
        if request.on_head_failure != _NEXT:
            raise InvalidInput("on_head_failure: needs a serial_key", field="on_head_failure")
        if unique is None and fair is None:
            return UNTIED
    word = check_word(request.on_head_failure, HeadFailure, field="on_head_failure")
    return Ties(
        serial_key=None if serial is None else _key(serial, "serial_key"),
        holds_line=word is HeadFailure.HOLD,
        unique=unique,
        fair=None if fair is None else Fair(_key(fair, "fair_key")),
    )


def order_of(ties: Ties) -> Ties:
    """The ties that another run of the same work shares: its line, and its fair key."""
    if ties.serial_key is None and ties.fair is None:
        return UNTIED
    fair = None if ties.fair is None else Fair(ties.fair.key)
    return Ties(serial_key=ties.serial_key, holds_line=ties.holds_line, fair=fair)


def refuse_unique(request: NewExecution, what: str) -> None:
    """A member of a graph cannot be another execution than its own."""
    if request.unique is not None:
        raise InvalidInput(f"unique: is for single submits, not for {what}", field="unique")


def _key(value: object, field: str) -> str:
    return check_text(value, field=field, max_bytes=limits.IDEMPOTENCY_KEY_BYTES)


def _unique(request: NewExecution) -> Unique | None:
    asked = request.unique
    if asked is None:
        return None
    _check_kind(asked)
    debounce_ms = _duration(asked.debounce_ms, "debounce_ms")
    longest = _duration(asked.debounce_max_ms, "debounce_max_ms")
    if longest is not None and (debounce_ms is None or longest < debounce_ms):
        raise _wrong("debounce_max_ms", "needs a debounce_ms, and is not below it")
    if debounce_ms is not None and asked.batch_items is not None:
        raise _wrong("batch_items", "give it or debounce_ms, not both")
    items, batch_ms = _batch(asked, request.input_payload)
    gathers = debounce_ms is not None or items is not None
    on_conflict = check_word(asked.on_conflict, OnConflict, field="unique.on_conflict")
    if gathers:
        _refuse_beside(request, on_conflict)
    return Unique(
        key=_key(asked.key, "unique.key"),
        while_=_while(asked, gathers=gathers),
        on_conflict=on_conflict,
        debounce_ms=debounce_ms,
        debounce_max_ms=longest,
        batch_items=items,
        batch_ms=batch_ms,
    )


def _check_kind(asked: object) -> None:
    if not isinstance(asked, NewUnique):
        detail = f"unique: expected a NewUnique, got {type(asked).__name__}"
        raise InvalidInput(detail, field="unique")


def _wrong(name: str, what: str) -> InvalidInput:
    return InvalidInput(f"unique.{name}: {what}", field=f"unique.{name}")


def _while(asked: NewUnique, *, gathers: bool) -> UniqueWhile:
    """One that gathers takes no more once it runs, so the next submit begins another."""
    if asked.while_ is None:
        return UniqueWhile.WAITING if gathers else UniqueWhile.UNFINISHED
    word = check_word(asked.while_, UniqueWhile, field="unique.while_")
    if gathers and word is not UniqueWhile.WAITING:
        raise _wrong("while_", "with debounce_ms or batch_items it can only be waiting")
    return word


def _refuse_beside(request: NewExecution, on_conflict: OnConflict) -> None:
    """What contradicts a start that submits move."""
    if on_conflict is not OnConflict.EXISTING:
        raise _wrong("on_conflict", "with debounce_ms or batch_items a submit is taken in")
    for name in ("delay_ms", "delay_until"):
        if getattr(request, name) is not None:
            detail = f"{name}: debounce_ms or batch_ms says when it starts"
            raise InvalidInput(detail, field=name)


def _batch(asked: NewUnique, payload: object) -> tuple[int | None, int | None]:
    items, batch_ms = asked.batch_items, _duration(asked.batch_ms, "batch_ms")
    if items is None and batch_ms is None:
        return None, None
    if items is None or batch_ms is None:
        name = "batch_items" if items is None else "batch_ms"
        raise _wrong(name, "a batch has a number of items and a time")
    most = check_integer(items, field="unique.batch_items", least=1, most=limits.BATCH_ITEMS_MAX)
    count = count_items(payload) if isinstance(payload, bytes) else -1
    if not 1 <= count <= most:
        told = "no JSON object with one list" if count < 0 else f"a list of {count} items"
        detail = f"input_payload: {told}; a batch takes 1 to {most} items in one list"
        raise InvalidInput(detail, field="input_payload")
    return most, batch_ms


def _duration(value: object, name: str) -> int | None:
    if value is None:
        return None
    return check_integer(value, field=f"unique.{name}", least=1, most=limits.DURATION_MS_MAX)
