"""How events of every kind are shown in a feed, and which of them a filter lets pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flowfabric.model.event import (
    BudgetEvent,
    CompletionEvent,
    LeaseEvent,
    OperatorEvent,
    SignalEvent,
)
from flowfabric.model.feed import Event, EventFilter, EventKind
from flowfabric.model.flow import FlowEvent
from flowfabric.model.record import Record
from flowfabric.model.worker import WorkerEvent

# The record of each kind, and the field that says what an event is about.
SUBJECTS: Final[Mapping[EventKind, tuple[type[Record], str]]] = {
    EventKind.COMPLETION: (CompletionEvent, "execution_id"),
    EventKind.LEASE: (LeaseEvent, "execution_id"),
    EventKind.SIGNAL: (SignalEvent, "execution_id"),
    EventKind.OPERATOR: (OperatorEvent, "subject"),
    EventKind.FLOW: (FlowEvent, "flow_id"),
    EventKind.BUDGET: (BudgetEvent, "budget_id"),
    EventKind.WORKER: (WorkerEvent, "worker_instance_id"),
}
# The field with the word of each kind.
_WORDS: Final[Mapping[EventKind, str]] = {
    EventKind.COMPLETION: "outcome",
    EventKind.LEASE: "event_type",
    EventKind.SIGNAL: "effect",
    EventKind.OPERATOR: "event_type",
    EventKind.FLOW: "event_type",
    EventKind.BUDGET: "event_type",
    EventKind.WORKER: "event_type",
}
_OWN: Final = frozenset(("namespace", "tags", "occurred_at"))
# The fields that are told as details.
_DETAILS: Final[Mapping[EventKind, tuple[str, ...]]] = {
    kind: tuple(
        name
        for name in record.__struct_fields__
        if name not in _OWN and name not in (subject, _WORDS[kind])
    )
    for kind, (record, subject) in SUBJECTS.items()
}


def word_column(kind: EventKind) -> str:
    """The column with the word of a kind."""
    return _WORDS[kind]


def shown(kind: EventKind, event: Any, cursor: str) -> Event:
    """An event as its readers see it; fields without a value are left out."""
    subject, word = SUBJECTS[kind][1], _WORDS[kind]
    details = {
        name: value for name in _DETAILS[kind] if (value := getattr(event, name)) is not None
    }
    return Event(
        kind,
        str(getattr(event, word)),
        getattr(event, subject),
        event.namespace,
        event.occurred_at,
        cursor,
        details,
        getattr(event, "tags", {}),
    )


def passes(event: Any, wanted: EventFilter) -> bool:
    """Whether an event has the tag that a filter asks for; all else is asked of the store."""
    if wanted.tag is None:
        return True
    key, value = wanted.tag
    tags: Mapping[str, str] = getattr(event, "tags", {})
    return tags.get(key) == value
