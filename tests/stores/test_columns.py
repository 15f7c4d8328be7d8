"""Which columns a transition writes: what changed always, what did not change hardly ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from flowfabric.kernel.decision import Moment
from flowfabric.kernel.execution.claim import Claim, NewIds, claim
from flowfabric.kernel.execution.complete import Complete, complete
from flowfabric.kernel.execution.own import Renew, renew
from flowfabric.kernel.execution.routing import Offer
from flowfabric.model.attempt import AttemptType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import Record, replace
from flowfabric.model.route import Route
from flowfabric.model.state import AttemptState, waiting
from flowfabric.stores.base import Changes
from flowfabric.stores.execution_columns import (
    ALL,
    ATTEMPT,
    COLD_FIELDS,
    CORE,
    NEW_BODY,
    NEW_CORE,
    TAG,
    TAKEN_FIELDS,
)
from flowfabric.stores.postgres.arrays import types_of
from flowfabric.stores.postgres.declared import declared_schema
from flowfabric.stores.postgres.usual import CONSTANT
from flowfabric.stores.tables import COLUMNWISE_FROM_ROWS, Column, Layout, Part

WAITING = Execution(
    "{fp:1}:00000000-0000-7000-8000-000000000000",
    Route("n", "l", "k"),
    waiting(AttemptState.PENDING_FIRST_ATTEMPT),
    0,
    1,
    1,
    1,
    1,
)
OFFER = Claim(
    offer=Offer(("n",), ("l",), (), None),
    worker_id="w",
    worker_instance_id="i",
    lease_ttl_ms=30_000,
    limit=1,
    backend="sqlite",
)


def leased() -> Any:
    return claim(WAITING, OFFER, NewIds("lease", "attempt"), Moment(1_000)).execution


def noticed(before: Execution, after: Execution) -> set[str]:
    """The kinds of fields that differ."""
    changes = Changes()
    changes.update(before, after)
    assert changes.updated == {after.execution_id: after}
    kinds = {"cold": changes.cold, "freed": changes.freed, "taken": changes.taken}
    return {kind for kind, ids in kinds.items() if ids}


def test_every_column_is_written_by_the_widest_update_or_only_once() -> None:
    once = {"partition_key", "route_id", "created_at", "aging_ms"}
    assert set(ALL.names) == set(CORE.names) - once
    assert len(ALL.names) == len(set(ALL.names))
    assert once < {column.name for column in NEW_CORE}


TABLES: dict[str, Sequence[Column]] = {
    "ff_exec_core": CORE.columns,
    "ff_exec_body": NEW_BODY,
    "ff_exec_tag": TAG,
    "ff_attempt": ATTEMPT.columns,
}


@pytest.mark.parametrize("table", TABLES)
def test_columns_and_their_types_are_those_of_the_schema(table: str) -> None:
    start = f"column {table}."
    words = {"int": "integer"}
    declared = {
        part.removeprefix(start): definition.split()[0]
        for part, definition in declared_schema().items()
        if part.startswith(start)
    }
    types = types_of(TABLES[table])
    derived = {
        column.name: words.get(kind, kind)
        for column, kind in zip(TABLES[table], types, strict=True)
    }
    assert derived == declared


def test_a_column_that_is_not_written_with_the_new_row_has_the_default_of_its_field() -> None:
    written = {column.name for column in NEW_CORE}
    fields = dict(
        zip(CORE.names, (column[0] for column in CORE.to_columns([WAITING])), strict=True)
    )
    for name in set(CORE.names) - written:
        definition = declared_schema()[f"column ff_exec_core.{name}"]
        _, _, default = definition.partition(" DEFAULT ")
        value = None if name in CONSTANT else fields[name]
        assert (default or "None") in (f"{value}", f"'{value}'::text"), name


class Noted(Record, frozen=True):
    key: str
    kind: AttemptType | None = None
    document: Mapping[str, object] = {}
    tags: Mapping[str, str] = {}


NOTED = Layout("noted", Noted, absent={"tags": {}})
ONE = {"n": 1}
KINDS = (AttemptType.INITIAL, None, AttemptType.RETRY, AttemptType.INITIAL)
SEVERAL: dict[str, tuple[Part, list[Record]]] = {
    "one execution": (CORE, [WAITING]),
    "executions": (CORE, [WAITING, leased(), WAITING]),
    "bounded executions": (CORE, [replace(WAITING, deadline_at=at) for at in (None, 5, None)]),
    "equal documents": (NOTED, [Noted("k", document=d) for d in (ONE, {"n": 1.0}, ONE)]),
    "words": (NOTED, [Noted("k", kind) for kind in KINDS]),
    "no words": (NOTED, [Noted("k")]),
    "some tags": (NOTED, [Noted("k", tags=tags) for tags in ({}, {"t": "1"}, {})]),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_many_records_are_stored_as_each_is_alone(name: str) -> None:
    part, some = SEVERAL[name]
    many = [*some * COLUMNWISE_FROM_ROWS, some[0]]
    rows = list(zip(*part.to_columns(many), strict=True))
    assert rows == [tuple(part.to_row(each)) for each in many]


@pytest.mark.parametrize("name", COLD_FIELDS)
def test_a_change_of_a_cold_field_is_noticed(name: str) -> None:
    kind = "freed" if name in ("blocking_detail", "open_group") else "cold"
    assert noticed(WAITING, replace(WAITING, **{name: object()})) == {kind}


@pytest.mark.parametrize("name", TAKEN_FIELDS)
def test_a_change_of_a_taken_field_is_noticed(name: str) -> None:
    assert noticed(WAITING, replace(WAITING, **{name: object()})) == {"taken"}


def test_a_change_of_another_cold_field_counts_more_than_a_freed_one() -> None:
    assert noticed(WAITING, replace(WAITING, open_group=1, priority=1)) == {"cold"}


def test_a_claim_writes_nothing_cold() -> None:
    assert noticed(WAITING, leased()) == {"taken"}


def test_renewals_and_ends_write_nothing_but_the_step() -> None:
    mine = leased()
    fence = Fence("lease", 1, "attempt")
    renewed: Any = renew(
        mine, Renew(execution_id=mine.execution_id, fence=fence, lease_ttl_ms=30_000), Moment(2_000)
    ).execution
    ended: Any = complete(
        mine,
        Complete(execution_id=mine.execution_id, fence=fence, source="lease_holder"),
        Moment(2_000),
    ).execution
    for after in (renewed, ended):
        assert noticed(mine, after) == set()
