"""Rows of the smaller tables to records and back, for every SQL store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from flowfabric.errors import Corruption, InvalidInput
from flowfabric.model.execution import IdempotencyRecord
from flowfabric.model.record import from_json, to_json
from flowfabric.model.route import Lane, Route
from flowfabric.model.state import PUBLIC_STATE_OF_ID
from flowfabric.model.worker import Worker
from flowfabric.stores.codec import (
    attempt_from_row,
    body_from_row,
    bounds_text,
    capabilities_from_text,
    capabilities_text,
    execution_id_of,
)
from flowfabric.stores.spoiled import intact

KEY_RECORD_COLUMNS: Final = IdempotencyRecord.__struct_fields__
TAG_COLUMNS: Final = ("execution_id", "tag_key", "tag_value")

Row = Sequence[Any]


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
    "idempotency": "all_keys",
    "workers": "workers",
}


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
        "idempotency": [key_record_from_row(row) for row in tables["idempotency"]],
        "workers": [worker_from_row(row) for row in tables["workers"]],
    }
