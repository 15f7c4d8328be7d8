"""Counts and dumps of executions, for every SQL store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from flowfabric.model.route import Route
from flowfabric.model.state import PUBLIC_STATE_OF_ID
from flowfabric.stores.codec import (
    attempt_from_row,
    body_from_row,
    execution_id_of,
)

Row = Sequence[Any]


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
}


def dump_of(tables: Mapping[str, Iterable[Row]], executions: Iterable[Any]) -> dict[str, list[Any]]:
    """Everything stored as records in a comparable order."""
    bodies = [
        body_from_row(execution_id_of(row[1], str(row[0])), row[2:]) for row in tables["bodies"]
    ]
    attempts = [
        attempt_from_row(execution_id_of(row[-1], str(row[0])), row) for row in tables["attempts"]
    ]
    return {
        "executions": sorted(executions, key=lambda record: record.execution_id),
        "bodies": sorted(bodies, key=lambda body: body.execution_id),
        "attempts": sorted(attempts, key=lambda each: (each.execution_id, each.attempt_index)),
    }
