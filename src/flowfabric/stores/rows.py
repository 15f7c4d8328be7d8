"""Rows of the smaller tables to records and back, for every SQL store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from flowfabric.errors import Corruption, InvalidInput
from flowfabric.model.event import (
    CompletionEvent,
    LeaseEvent,
    LeaseEventType,
    OperatorEvent,
    OperatorEventType,
    SignalEvent,
)
from flowfabric.model.execution import IdempotencyRecord
from flowfabric.model.flow import FlowEvent, FlowEventType
from flowfabric.model.record import from_json, to_json
from flowfabric.model.route import Lane, Route
from flowfabric.model.state import PUBLIC_STATE_OF_ID, TerminalOutcome
from flowfabric.model.worker import Worker, WorkerEvent, WorkerEventType
from flowfabric.stores.codec import (
    attempt_from_row,
    body_from_row,
    bounds_text,
    capabilities_from_text,
    capabilities_text,
    execution_id_of,
    tags_from_text,
    tags_text,
)
from flowfabric.stores.spoiled import intact

LEASE_EVENT_COLUMNS: Final = LeaseEvent.__struct_fields__
COMPLETION_EVENT_COLUMNS: Final = CompletionEvent.__struct_fields__
SIGNAL_EVENT_COLUMNS: Final = SignalEvent.__struct_fields__
FLOW_EVENT_COLUMNS: Final = FlowEvent.__struct_fields__
WORKER_EVENT_COLUMNS: Final = WorkerEvent.__struct_fields__
OPERATOR_EVENT_COLUMNS: Final = OperatorEvent.__struct_fields__
KEY_RECORD_COLUMNS: Final = IdempotencyRecord.__struct_fields__
TAG_COLUMNS: Final = ("execution_id", "tag_key", "tag_value")

Row = Sequence[Any]
T = TypeVar("T")


def lease_event_row(event: LeaseEvent) -> tuple[Any, ...]:
    return (
        event.execution_id,
        event.event_type._value_,
        event.reason,
        event.lease_epoch,
        event.attempt_index,
        event.worker_id,
        event.worker_instance_id,
        event.namespace,
        tags_text(event.tags),
        event.occurred_at,
    )


def completion_event_row(event: CompletionEvent) -> tuple[Any, ...]:
    return (
        event.execution_id,
        event.outcome._value_,
        event.attempt_index,
        event.flow_id,
        event.namespace,
        tags_text(event.tags),
        event.occurred_at,
    )


def signal_event_row(event: SignalEvent) -> tuple[Any, ...]:
    return (
        event.execution_id,
        event.waitpoint_id,
        event.signal_id,
        event.signal_name,
        event.source_type,
        event.source_identity,
        event.effect,
        event.namespace,
        tags_text(event.tags),
        event.occurred_at,
    )


def flow_event_row(event: FlowEvent) -> tuple[Any, ...]:
    return (
        event.flow_id,
        event.event_type._value_,
        event.namespace,
        tags_text(event.tags),
        event.occurred_at,
    )


def operator_event_row(event: OperatorEvent) -> tuple[Any, ...]:
    return (
        event.subject,
        event.event_type._value_,
        tags_text(event.details),
        event.namespace,
        tags_text(event.tags),
        event.occurred_at,
        event.actor,
    )


def worker_row(worker: Worker) -> tuple[Any, ...]:
    """In the order of the insert and update statements: the key last."""
    return (
        worker.worker_id,
        to_json(worker.lanes).decode(),
        capabilities_text(worker.capabilities),
        None if worker.kinds is None else to_json(worker.kinds).decode(),
        worker.last_heartbeat_at,
        worker.liveness_ttl_ms,
        worker.registered_at,
        worker.expires_at,
        worker.namespace,
        worker.worker_instance_id,
    )


def worker_from_row(row: Row) -> Worker:
    """A registered worker; raises Corruption naming the row if it cannot be decoded."""
    name = f"worker {row[1]}"
    try:
        return _worker(intact(row, name))
    except InvalidInput as error:  # not a caller's input: it was stored
        raise Corruption(f"{name}: {error.detail}") from None


def readable_workers(rows: Iterable[Row]) -> list[Worker]:
    """Registered workers without those that cannot be decoded."""
    found = []
    for row in rows:
        with suppress(Corruption):
            found.append(worker_from_row(row))
    return found


def _worker(row: Row) -> Worker:
    kinds = None if row[5] is None else from_json(row[5], tuple[str, ...], field="kinds")
    return Worker(
        row[0],
        row[1],
        row[2],
        from_json(row[3], tuple[str, ...], field="lanes"),
        capabilities_from_text(row[4]),
        kinds,
        row[6],
        row[7],
        row[8],
    )


def worker_event_row(event: WorkerEvent) -> tuple[Any, ...]:
    return (
        event.namespace,
        event.worker_instance_id,
        event.event_type._value_,
        event.reason,
        event.occurred_at,
    )


def lane_row(lane: Lane) -> tuple[Any, ...]:
    return (
        lane.lane_id,
        lane.lane_state.value,
        lane.registered_at,
        lane.changed_at,
        lane.reason,
        lane.weight,
        lane.aging_ms,
        bounds_text(lane.bounds),
    )


def key_record_row(record: IdempotencyRecord) -> tuple[Any, ...]:
    return (
        record.namespace,
        record.idempotency_key,
        record.execution_id,
        record.fingerprint,
        record.expires_at,
    )


def key_record_from_row(row: Row) -> IdempotencyRecord:
    intact(row, f"idempotency key {row[1]}")
    return IdempotencyRecord(row[0], row[1], row[2], bytes(row[3]), row[4])


def counts_by_state(
    routes: Mapping[int, Route], rows: Iterable[Row]
) -> list[tuple[Route, str, int]]:
    """(route number, state number, count) rows, by route and public state."""
    counted: dict[tuple[Route, str], int] = {}
    for route_id, state_id, number in rows:
        if route_id in routes and state_id in PUBLIC_STATE_OF_ID:
            key = (routes[route_id], PUBLIC_STATE_OF_ID[state_id])
            counted[key] = counted.get(key, 0) + number
    return [(route, state, number) for (route, state), number in counted.items()]


def members_by_state(rows: Iterable[Row]) -> list[tuple[str, int]]:
    """(state number, count) rows, by public state."""
    counted: dict[str, int] = {}
    for state_id, number in rows:
        state = PUBLIC_STATE_OF_ID[state_id]
        counted[state] = counted.get(state, 0) + number
    return sorted(counted.items())


# The tables of a dump and the statements that read them whole.
DUMPED: Final = {
    "bodies": "all_bodies",
    "attempts": "all_attempts",
    "lease_events": "all_lease_events",
    "completion_events": "all_completion_events",
    "operator_events": "all_operator_events",
    "signal_events": "all_signal_events",
    "flow_events": "all_flow_events",
    "idempotency": "all_keys",
    "workers": "workers",
    "worker_events": "all_worker_events",
}


def _record(kind: Callable[..., T], row: Row, word: object, *, tags: int) -> T:
    """A record with fields in the row's order, its enumeration and tags decoded."""
    fields = list(row)
    fields[1], fields[tags] = word, tags_from_text(row[tags])
    return kind(*fields)


def dump_of(tables: Mapping[str, Iterable[Row]], executions: Iterable[Any]) -> dict[str, list[Any]]:
    """Everything stored as records in a comparable order."""
    bodies = [
        body_from_row(execution_id_of(row[1], str(row[0])), row[2:]) for row in tables["bodies"]
    ]
    attempts = [
        attempt_from_row(execution_id_of(row[14], str(row[0])), row) for row in tables["attempts"]
    ]
    return {
        "executions": sorted(executions, key=lambda record: record.execution_id),
        "bodies": sorted(bodies, key=lambda body: body.execution_id),
        "attempts": sorted(attempts, key=lambda each: (each.execution_id, each.attempt_index)),
        "lease_events": [
            _record(LeaseEvent, row, LeaseEventType(row[1]), tags=8)
            for row in tables["lease_events"]
        ],
        "completion_events": [
            _record(CompletionEvent, row, TerminalOutcome(row[1]), tags=5)
            for row in tables["completion_events"]
        ],
        "signal_events": [
            _record(SignalEvent, row, row[1], tags=8) for row in tables["signal_events"]
        ],
        "flow_events": [
            _record(FlowEvent, row, FlowEventType(row[1]), tags=3) for row in tables["flow_events"]
        ],
        "operator_events": [
            OperatorEvent(
                row[0],
                OperatorEventType(row[1]),
                from_json(row[2], dict[str, Any], field="details") if row[2] else {},
                row[3],
                tags_from_text(row[4]),
                row[5],
                row[6],
            )
            for row in tables["operator_events"]
        ],
        "idempotency": [key_record_from_row(row) for row in tables["idempotency"]],
        "workers": [worker_from_row(row) for row in tables["workers"]],
        "worker_events": [
            WorkerEvent(row[0], row[1], WorkerEventType(row[2]), row[3], row[4])
            for row in tables["worker_events"]
        ],
    }
