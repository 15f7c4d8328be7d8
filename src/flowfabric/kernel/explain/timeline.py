"""The life of one execution, told in order from its records and events. For people attempts count
from 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from flowfabric.model.attempt import Attempt
from flowfabric.model.event import LeaseEvent, OperatorEvent, OperatorEventType, SignalEvent
from flowfabric.model.execution import Execution
from flowfabric.model.feed import TimelineEntry
from flowfabric.model.record import Record
from flowfabric.model.suspension import SuspensionRow


class Traces(Record, frozen=True):
    """What is kept of an execution's life, each in its own order."""

    attempts: Sequence[Attempt] = ()
    suspensions: Sequence[SuspensionRow] = ()
    leases: Sequence[LeaseEvent] = ()  # without those that were simply taken
    signals: Sequence[SignalEvent] = ()
    operators: Sequence[OperatorEvent] = ()


def timeline(execution: Execution, traces: Traces) -> list[TimelineEntry]:
    """Every entry by its time; at the same time in the order in which things follow each other."""
    parts: tuple[Iterable[TimelineEntry], ...] = (
        [TimelineEntry(execution.created_at, "created", f"on lane {execution.lane_id}")],
        map(_operator, traces.operators),
        _attempts(execution, traces.attempts),
        map(_lease, traces.leases),
        _suspensions(traces.suspensions),
        map(_signal, traces.signals),
        _end(execution),
    )
    entries = [entry for part in parts for entry in part]
    # The end of an execution comes after all else of its instant.
    return sorted(entries, key=lambda entry: (entry.occurred_at, entry.what == "finished"))


def _attempts(execution: Execution, ended: Sequence[Attempt]) -> Iterator[TimelineEntry]:
    for each in ended:
        yield _started(each.started_at, each.attempt_index, each.attempt_type, each.worker_id)
        reason = f": {each.failure_reason}" if each.failure_reason else ""
        outcome = each.outcome.value.removeprefix("ended_").replace("_", " ")
        detail = f"attempt {each.attempt_index + 1} {outcome}{reason}"
        yield TimelineEntry(each.ended_at, "ended", detail, each.attempt_index)
    index, started = execution.attempt_index, execution.attempt_started_at
    if index is not None and started is not None and index not in {e.attempt_index for e in ended}:
        yield _started(started, index, execution.attempt_type, execution.worker_id)


def _started(when: int, index: int, kind: Any, worker: str | None) -> TimelineEntry:
    by = f" by {worker}" if worker else ""
    word = kind.value if kind is not None else "initial"
    return TimelineEntry(when, "started", f"attempt {index + 1} ({word}){by}", index)


def _lease(event: LeaseEvent) -> TimelineEntry:
    worker = f" of {event.worker_id}" if event.worker_id else ""
    detail = f"lease {event.lease_epoch}{worker} {event.event_type.value}: {event.reason}"
    return TimelineEntry(event.occurred_at, "lease", detail, event.attempt_index)


def _suspensions(episodes: Sequence[SuspensionRow]) -> Iterator[TimelineEntry]:
    for each in episodes:
        detail = f"suspended: {each.reason_code.value.replace('_', ' ')}"
        yield TimelineEntry(each.created_at, "suspended", detail, each.attempt_index)
        if each.closed_at is not None:
            detail = f"wait ended: {(each.close_reason or '').replace('_', ' ')}"
            yield TimelineEntry(each.closed_at, "resumed", detail, each.attempt_index)


def _signal(event: SignalEvent) -> TimelineEntry:
    source = event.source_identity or event.source_type
    detail = f"signal {event.signal_name} from {source}: {event.effect}"
    return TimelineEntry(event.occurred_at, "signal", detail)


def _operator(event: OperatorEvent) -> TimelineEntry:
    detail = event.event_type.value.replace("_", " ")
    if event.event_type is OperatorEventType.FORKED:
        detail += f" as {event.details.get('fork')}"
    if event.event_type is OperatorEventType.RETRIED:
        detail += f" with another input as {event.details.get('retry')}"
    if event.actor:
        detail += f" by {event.actor}"
    return TimelineEntry(
        event.occurred_at, "operator", detail, actor=event.actor, fields=event.details
    )


def _end(execution: Execution) -> Iterator[TimelineEntry]:
    if execution.completed_at is not None:
        yield TimelineEntry(execution.completed_at, "finished", execution.public_state.value)
