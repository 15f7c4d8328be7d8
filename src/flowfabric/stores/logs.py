"""Append-only logs, declared once: a record's fields are its columns.

A rule with news of a new kind declares a log here and a migration beside it; writing, reading by
position, trimming by age, dumping and the search for values no engine writes then work on every
store. The store gives each event its position; neither ever changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_origin, get_type_hints

from flowfabric.errors import Corruption, FlowFabricError
from flowfabric.model.event import CompletionEvent, LeaseEvent, OperatorEvent, SignalEvent
from flowfabric.model.flow import FlowEvent
from flowfabric.model.record import Record
from flowfabric.model.worker import WorkerEvent
from flowfabric.stores.spoiled import intact
from flowfabric.stores.tables import Layout

E = TypeVar("E", bound=Record)

BEFORE_ALL: Final = -(1 << 63)  # a position before the first
ENTRIES_MAX: Final = (1 << 63) - 1  # more than a log can have


class Log(Layout[E]):
    """Events of one kind, which tell when they happened (`occurred_at`)."""

    def __init__(self, name: str, record: type[E], *, dumped_as: str) -> None:
        maps = [key for key, kind in get_type_hints(record).items() if get_origin(kind) is Mapping]
        super().__init__(name, record, absent={key: {} for key in maps})  # most events have no tags
        self.dumped_as = dumped_as

    def entry(self, row: Sequence[Any]) -> tuple[int, E]:
        """An event with its position, which comes first in the row; raises Corruption naming both
        if it cannot be decoded."""
        position, *values = row
        try:
            intact(row, "the event")
            return position, self.decoded(values)
        except FlowFabricError as error:
            raise Corruption(f"{self.name} {position}: {error.detail}") from None

    def page_sql(self, mark: Callable[[int], str]) -> str:
        """Entries after a position, and at most so many."""
        return (
            f"SELECT event_id, {', '.join(self.names)} FROM {self.name} "
            f"WHERE event_id > {mark(1)} ORDER BY event_id LIMIT {mark(2)}"
        )

    def trim_sql(self, mark: Callable[[int], str]) -> str:
        """Deletes events from before an instant, of at most so many that come first."""
        return (
            f"DELETE FROM {self.name} WHERE occurred_at < {mark(1)} AND event_id IN "
            f"(SELECT event_id FROM {self.name} ORDER BY event_id LIMIT {mark(2)}) "
            # The newest stays: without it SQLite would count from one again.
            f"AND event_id < (SELECT max(event_id) FROM {self.name})"
        )


LOGS: Final[tuple[Log[Any], ...]] = (
    Log("ff_lease_event", LeaseEvent, dumped_as="lease_events"),
    Log("ff_completion_event", CompletionEvent, dumped_as="completion_events"),
    Log("ff_operator_event", OperatorEvent, dumped_as="operator_events"),
    Log("ff_signal_event", SignalEvent, dumped_as="signal_events"),
    Log("ff_flow_event", FlowEvent, dumped_as="flow_events"),
    Log("ff_worker_registry_event", WorkerEvent, dumped_as="worker_events"),
)
LOG_OF: Final[dict[type[Record], Log[Any]]] = {log.record: log for log in LOGS}
