"""Append-only logs, declared once: a record's fields are its columns.

A rule with news of a new kind declares a log here and a migration beside it; writing, reading by
position, trimming by age, dumping and the search for values no engine writes then work on every
store. The store gives each event its position; neither ever changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar, get_origin, get_type_hints

from flowfabric.errors import Corruption, FlowFabricError
from flowfabric.limits import DURATION_MS_MAX
from flowfabric.model.event import (
    BudgetEvent,
    CompletionEvent,
    LeaseEvent,
    OperatorEvent,
    SignalEvent,
)
from flowfabric.model.failure import FailureEntry
from flowfabric.model.flow import FlowEvent
from flowfabric.model.record import Record
from flowfabric.model.statistic import WorkCount
from flowfabric.model.worker import WorkerEvent
from flowfabric.stores.spoiled import intact
from flowfabric.stores.tables import Layout

E = TypeVar("E", bound=Record)
# The number of an event. It is drawn while what the event is about is locked, so events about one
# thing have numbers in their order; readers wait for transactions that have drawn one.
Position = int
Mark = Callable[[int], str]  # the placeholder of the value with this number

BEFORE_ALL: Final[Position] = 0
AFTER_ALL: Final[Position] = (1 << 63) - 1


class LogQuery(Record, frozen=True, kw_only=True):
    """Some entries of a log, in their order."""

    after: Position = BEFORE_ALL
    until: Position = AFTER_ALL  # inclusive
    limit: int | None = None
    only: tuple[tuple[str, tuple[str, ...]], ...] = ()  # columns, and the values each may have


class LogTally(Record, frozen=True, kw_only=True):
    """Entries of a log to be counted: all between two places, by the values of some columns, by
    the step of time in which they happened, and by the bucket of a duration."""

    after: Position
    until: Position  # inclusive
    by: tuple[str, ...]
    step_ms: int
    duration: str  # a column
    bounds: tuple[
        int, ...
    ]  # of the buckets, inclusive; longer durations are in one behind the last


class LogCount(NamedTuple):
    """So many entries are alike."""

    values: tuple[str | None, ...]  # of the columns
    step: int  # how many steps of time after the epoch
    bucket: int | None  # None: without a duration
    entries: int
    total: int  # of their durations


class LogIndex(NamedTuple):
    """The events of a log by what they are about."""

    name: str
    on: str
    columns: tuple[str, ...]
    where: str | None = None  # only these events are in it
    also: tuple[str, ...] = ()


class Log(Layout[E]):
    """Events of one kind, which tell when they happened (`occurred_at`)."""

    def __init__(
        self,
        name: str,
        record: type[E],
        *,
        dumped_as: str,
        about: LogIndex | None = None,
    ) -> None:
        maps = [key for key, kind in get_type_hints(record).items() if get_origin(kind) is Mapping]
        super().__init__(name, record, absent={key: {} for key in maps})  # most events have no tags
        self.dumped_as = dumped_as
        self.about = about

    def entry(self, row: Sequence[Any]) -> tuple[Position, E]:
        """An event with its position, which comes first in the row; raises Corruption naming both
        if it cannot be decoded."""
        number, *values = row
        try:
            intact(row, "the event")
            return number, self.decoded(values)
        except FlowFabricError as error:
            raise Corruption(f"{self.name} {number}: {error.detail}") from None

    def page_sql(self, columns: Sequence[tuple[str, int]], mark: Mark) -> str:
        """A page of entries: the position it starts after, its last position, the values of the
        columns, and the limit are bound."""
        numbers = count(1)
        where = [f"event_id > {mark(next(numbers))}", f"event_id <= {mark(next(numbers))}"]
        for column, several in columns:
            marks = ", ".join(mark(next(numbers)) for _ in range(several))
            where.append(f"{column} IN ({marks})")
        return (
            f"SELECT event_id, {', '.join(self.names)} FROM {self.name} "
            f"WHERE {' AND '.join(where)} ORDER BY event_id LIMIT {mark(next(numbers))}"
        )

    def nth_sql(self, mark: Mark) -> str:
        """The position of the entry that comes so many behind the first between two places."""
        return (
            f"SELECT event_id FROM {self.name} WHERE {_between(mark)} "
            f"ORDER BY event_id LIMIT 1 OFFSET {mark(3)}"
        )

    def count_sql(self, tally: LogTally, mark: Mark) -> str:
        """Entries between two places that are alike. Numbers come first: most groups differ in
        them, and what sorts compares no further."""
        took = tally.duration
        is_sound = f"{took} BETWEEN 0 AND {DURATION_MS_MAX}"
        bucket = _bucket_sql(took, tally.bounds, 0, len(tally.bounds))
        names = [
            f"CASE WHEN {is_sound} THEN {bucket} END",
            f"occurred_at / {tally.step_ms}",
            *tally.by,
        ]
        groups = ", ".join(str(number) for number in range(1, len(names) + 1))
        return (
            f"SELECT {', '.join(names)}, count(*), "
            f"coalesce(sum(CASE WHEN {is_sound} THEN {took} END), 0) "
            f"FROM {self.name} WHERE {_between(mark)} GROUP BY {groups}"
        )

    def alike_sql(self, tally: LogTally, mark: Mark) -> str:
        """The values of the columns between two places, each once; two are enough to tell."""
        return (
            f"SELECT DISTINCT {', '.join(tally.by)} FROM {self.name} WHERE {_between(mark)} LIMIT 2"
        )

    def about_sql(self, mark: Mark) -> str:
        """The indexed events about one subject, at most so many. They are found first and sorted
        then: in the order of the log a database might walk through all of it."""
        if self.about is None:
            raise LookupError(f"{self.name} has no index of subjects")
        where = f"{self.about.columns[0]} = {mark(1)}"
        if self.about.where is not None:
            where += f" AND {self.about.where}"
        return (
            f"SELECT event_id, {', '.join(self.names)} FROM "
            f"(SELECT * FROM {self.name} WHERE {where} LIMIT {mark(2)}) AS t ORDER BY event_id"
        )

    def trim_sql(self, mark: Mark) -> str:
        """Deletes events from before an instant, of at most so many that come first; returns their
        positions."""
        return (
            f"DELETE FROM {self.name} WHERE occurred_at < {mark(1)} AND event_id IN "
            f"(SELECT event_id FROM {self.name} ORDER BY event_id LIMIT {mark(2)}) "
            # The newest stays: without it SQLite would count from one again.
            f"AND event_id < (SELECT max(event_id) FROM {self.name}) RETURNING event_id"
        )


LOGS: Final[tuple[Log[Any], ...]] = (
    Log(
        "ff_lease_event",
        LeaseEvent,
        dumped_as="lease_events",
        # Attempts tell of leases that were simply taken, so plain work enters nothing here.
        about=LogIndex(
            "ff_lease_event_execution",
            "ff_lease_event",
            ("execution_id",),
            "event_type <> 'acquired'",
        ),
    ),
    Log("ff_completion_event", CompletionEvent, dumped_as="completion_events"),
    Log(
        "ff_operator_event",
        OperatorEvent,
        dumped_as="operator_events",
        about=LogIndex("ff_operator_event_subject", "ff_operator_event", ("subject",)),
    ),
    Log(
        "ff_signal_event",
        SignalEvent,
        dumped_as="signal_events",
        about=LogIndex("ff_signal_event_execution", "ff_signal_event", ("execution_id",)),
    ),
    Log(
        "ff_flow_event",
        FlowEvent,
        dumped_as="flow_events",
        about=LogIndex("ff_flow_event_flow", "ff_flow_event", ("flow_id",)),
    ),
    Log("ff_budget_event", BudgetEvent, dumped_as="budget_events"),
    Log("ff_worker_registry_event", WorkerEvent, dumped_as="worker_events"),
    # Of no feed: statistics count it.
    Log("ff_work_count", WorkCount, dumped_as="work_counts"),
    Log(
        "ff_failure",
        FailureEntry,
        dumped_as="failures",
        about=LogIndex("ff_failure_execution", "ff_failure", ("execution_id",)),
    ),
)
LOG_INDEXES: Final = tuple(log.about for log in LOGS if log.about is not None)
LOG_OF: Final[dict[type[Record], Log[Any]]] = {log.record: log for log in LOGS}
WORK_COUNTS: Final[Log[WorkCount]] = LOG_OF[WorkCount]
FAILURES: Final[Log[FailureEntry]] = LOG_OF[FailureEntry]


def _between(mark: Mark) -> str:
    return f"event_id > {mark(1)} AND event_id <= {mark(2)}"


def _bucket_sql(column: str, bounds: Sequence[int], first: int, last: int) -> str:
    """The bucket of a duration that is in one of these, found by halves."""
    if first == last:
        return str(first)
    middle = (first + last) // 2
    lower = _bucket_sql(column, bounds, first, middle)
    upper = _bucket_sql(column, bounds, middle + 1, last)
    return f"CASE WHEN {column} <= {bounds[middle]} THEN {lower} ELSE {upper} END"


def counted(row: Sequence[Any]) -> LogCount:
    """A row of a count as read."""
    bucket, step, *values, entries, total = row
    return LogCount(tuple(values), step, bucket, entries, int(total))


def query_values(query: LogQuery, limit: int | None) -> list[Any]:
    """The values of a page's statement."""
    values: list[Any] = [query.after, query.until]
    for _, several in query.only:
        values += several
    return [*values, limit]


def columns_of(query: LogQuery) -> tuple[tuple[str, int], ...]:
    """The filtered columns, and how many values each may have."""
    return tuple((column, len(several)) for column, several in query.only)
