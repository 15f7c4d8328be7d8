"""Columns of PostgreSQL's hot row are empty while they hold their usual value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_type_hints

import asyncpg
import pytest

from flowfabric.model.columns import held
from flowfabric.model.execution import Execution
from flowfabric.model.record import defaults_of
from flowfabric.stores.postgres.arrays import INSERTS, UPDATES
from flowfabric.stores.postgres.declared import declared_schema
from flowfabric.stores.postgres.usual import CONSTANT, SAME, TABLE
from tests.support.history import history
from tests.support.lab import Lab

USUAL = {**CONSTANT, **SAME}


@pytest.fixture
def postgres_lab(postgres_url: str) -> Iterator[Lab]:
    lab = Lab(postgres_url)
    lab.open()
    yield lab
    lab.close()


async def rows_of(lab: Lab, sql: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(lab.url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


@pytest.mark.parametrize("name", CONSTANT)
def test_the_usual_value_is_the_default_of_the_record(name: str) -> None:
    default = defaults_of(Execution)[name]
    assert str(getattr(default, "value", default)) == CONSTANT[name].strip("'")


@pytest.mark.parametrize("name", USUAL)
def test_an_empty_column_has_one_meaning(name: str) -> None:
    """A field that may be None has to be empty for that."""
    assert not held(get_type_hints(Execution, include_extras=True)[name]).is_optional


# Columns that released databases have without a value: another usual value needs a migration.
NARROWED = {
    *("attempt_spent_ms", "retry_count", "replay_count", "reclaim_count", "aging_ms"),
    *("side_holds", "signal_count", "signal_bytes", "open_group", "next_attempt_type"),
    *("blocking_detail", "eligible_at", "last_mutation_at", "journal_index", "chapter_index"),
    *("is_watched", "line_place"),
}


def test_the_usual_columns_are_those_the_schema_lets_be_empty() -> None:
    assert set(USUAL) == NARROWED
    columns = declared_schema()
    assert not [name for name in USUAL if "NOT NULL" in columns[f"column {TABLE}.{name}"]]


WRITES = {**INSERTS, **UPDATES}
OF_CORE = {name: write.columns for name, write in WRITES.items() if write.table == TABLE}


@pytest.mark.parametrize("name", OF_CORE)
def test_a_write_never_changes_what_an_empty_column_means(name: str) -> None:
    """With the column that gives the usual value, the one that is empty for it is written too."""
    columns = set(OF_CORE[name])
    taken_from = {usual for usual in USUAL.values() if usual in columns}
    referring = {each for each, usual in USUAL.items() if usual in taken_from}
    assert referring <= columns


def test_a_usual_life_leaves_the_columns_empty(postgres_lab: Lab) -> None:
    """When it is created, when it runs, and at its end."""
    lab = postgres_lab
    empty = f"SELECT state_id, num_nulls({', '.join(USUAL)}) FROM ff_exec_core"

    async def story() -> None:
        await lab.create()
        assert await rows_of(lab, empty) == [(1, len(USUAL))]
        claimed = await lab.claim()
        assert await rows_of(lab, empty) == [(60, len(USUAL))]
        await lab.engine.complete(claimed.handle)
        assert await rows_of(lab, empty) == [(80, len(USUAL))]

    lab.run(story())


def test_many_at_once_are_as_narrow_as_one(postgres_lab: Lab) -> None:
    """Values that many rows share travel in a form of their own."""
    lab = postgres_lab

    async def story() -> None:
        for priority in range(30):
            await lab.create(priority=priority)
        for claimed in await lab.claims(limit=30):
            await lab.engine.complete(claimed.handle)
        sql = f"SELECT DISTINCT state_id, num_nulls({', '.join(USUAL)}) FROM ff_exec_core"
        assert await rows_of(lab, sql) == [(80, len(USUAL))]

    lab.run(story())


def test_rows_from_before_are_read_as_the_narrow_ones_are(postgres_lab: Lab) -> None:
    """Work in every state, first as it is written now, then with every value spelled out."""
    lab = postgres_lab

    async def story() -> None:
        await history(lab, "here")
        before = await lab.engine.store.dump()
        some = f"SELECT count(*) FROM ff_exec_core WHERE num_nulls({', '.join(USUAL)}) > 0"
        assert (await rows_of(lab, some))[0][0] > 0
        values = ", ".join(f"{name} = coalesce({name}, {usual})" for name, usual in USUAL.items())
        await lab.sql(f"UPDATE ff_exec_core SET {values}")
        assert await rows_of(lab, some) == [(0,)]
        assert await lab.engine.store.dump() == before

    lab.run(story())


def test_unusual_values_are_stored_as_they_are(postgres_lab: Lab) -> None:
    lab = postgres_lab

    async def story() -> None:
        await lab.create(delay_until=lab.now + 60_000)
        await lab.engine.configure_lane(lane_id="other", aging_ms=1_000)
        await lab.create(lane_id="other")
        sql = "SELECT eligible_at > created_at, aging_ms FROM ff_exec_core ORDER BY route_id"
        assert await rows_of(lab, sql) == [(True, None), (None, 1_000)]

    lab.run(story())


def test_the_view_for_people_shows_usual_values(postgres_lab: Lab) -> None:
    lab = postgres_lab

    async def story() -> None:
        await lab.create()
        sql = "SELECT retry_count, blocking_detail, eligible_at = created_at FROM ff_execution"
        assert await rows_of(lab, sql) == [(0, "", True)]

    lab.run(story())
