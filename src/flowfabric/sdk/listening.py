"""Functions that are called with events: what `@ff.on` makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from flowfabric.model.checks import check_integer, check_name
from flowfabric.model.feed import EventFilter, EventKind
from flowfabric.model.record import replace
from flowfabric.model.shown import shown
from flowfabric.model.state import TerminalOutcome
from flowfabric.sdk.errors import InvalidTask

TRIES_DEFAULT: Final = 10
_TRIES_MAX: Final = 1_000_000
# Words for the ends of executions; every kind of events is a word, too.
_ENDS: Final[dict[str, tuple[TerminalOutcome, ...]]] = {
    "completed": (TerminalOutcome.SUCCESS,),
    "failed": (TerminalOutcome.FAILED,),
    "cancelled": (TerminalOutcome.CANCELLED,),
    "expired": (TerminalOutcome.EXPIRED,),
    "skipped": (TerminalOutcome.SKIPPED,),
    "ended": (),
}


@dataclass(frozen=True, slots=True)
class Listener:
    """A function, the events it is called with, and the group that shares them."""

    function: Callable[[Any], Any]
    group: str
    kind: EventKind
    filter: EventFilter
    after: str | None
    tries: int

    @property
    def is_async(self) -> bool:
        """Whether it runs in the event loop; otherwise it has a thread."""
        return inspect.iscoroutinefunction(self.function)


def listener(
    function: object,
    what: object,
    wanted: EventFilter,
    *,
    group: str | None,
    after: str | None,
    tries: int,
) -> Listener:
    """A listener from the arguments of `@ff.on`."""
    if not (inspect.isroutine(function) and callable(function)):
        raise InvalidTask(f"{shown(function, 80)} is not a function", field="function")
    name = group or getattr(function, "__name__", "")
    try:
        inspect.signature(function).bind("event")
    except TypeError:
        detail = f"{name}: write it with one argument, the event"
        raise InvalidTask(detail, field="function") from None
    kind, types = _heard(what)
    return Listener(
        function=function,
        group=check_name(name, field="group"),
        kind=kind,
        filter=replace(wanted, event_types=types),
        after=after,
        tries=check_integer(tries, field="tries", least=1, most=_TRIES_MAX),
    )


def _heard(what: object) -> tuple[EventKind, tuple[str, ...]]:
    if isinstance(what, str):
        if what in _ENDS:
            return EventKind.COMPLETION, tuple(each.value for each in _ENDS[what])
        if what in list(EventKind):
            return EventKind(what), ()
    words = ", ".join([*_ENDS, *EventKind])
    raise InvalidTask(f"what: give one of {words}, not {shown(what, 80)}", field="what")
