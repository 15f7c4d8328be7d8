"""Migrations and the words behind the numbers: only SQL stores have a schema to disagree with."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import asyncpg
import pytest

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.errors import ConfigurationMismatch, SchemaMismatch
from flowfabric.model.state import VECTOR_OF_ID
from flowfabric.stores.migrations import migrations_of
from tests.support.databases import PostgresServer
from tests.support.lab import DURABLE_STORES, Lab

QUIET = EngineConfig(loops=False)


async def query(url: str, statement: str) -> list[Any]:
    """Behind the engine's back."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            return connection.execute(statement).fetchall()
    postgres = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await postgres.fetch(statement)]
    finally:
        await postgres.close()


@pytest.fixture(params=DURABLE_STORES)
def empty_url(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.empty_database() as url:
        yield url


def test_the_table_of_states_says_what_the_model_says(durable_lab: Lab) -> None:
    """An illegal vector has no number, so it cannot be stored."""

    async def compare() -> None:
        rows = await query(durable_lab.url, "SELECT * FROM ff_state ORDER BY state_id")
        stored = {row[0]: tuple(row)[1:] for row in rows}
        assert stored == {
            number: (
                vector.lifecycle_phase.value,
                vector.ownership_state.value,
                vector.eligibility_state.value,
                vector.blocking_reason.value,
                vector.terminal_outcome.value,
                vector.attempt_state.value,
                vector.public_state.value,
            )
            for number, vector in VECTOR_OF_ID.items()
        }

    durable_lab.run(compare())


def test_a_new_database_is_migrated_once_and_says_so(empty_url: str) -> None:
    async def story() -> None:
        engine = open_engine(empty_url, config=QUIET)
        await engine.start(migrate=True)
        status = await engine.store.migration_status()
        assert [each.version for each in status] == [
            migration.version for migration in migrations_of(engine.backend_label())
        ]
        assert all(each.applied_at is not None and each.checksum_ok for each in status)
        assert (await engine.prepare()).applied == ()
        await engine.close()

    asyncio.run(story())


def test_an_empty_database_is_refused_unless_migration_is_asked_for(empty_url: str) -> None:
    async def story() -> None:
        engine = open_engine(empty_url, config=QUIET)
        with pytest.raises(SchemaMismatch, match="ff db migrate"):
            await engine.start(migrate=False)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("spoil", "advice"),
    [
        ("INSERT INTO ff_migration_annotation VALUES (9999, 'future', 'x', 1)", "upgrade"),
        ("UPDATE ff_migration_annotation SET checksum = 'other' WHERE version = 1", "different"),
    ],
)
def test_a_newer_or_changed_schema_is_refused_with_advice(
    empty_url: str, spoil: str, advice: str
) -> None:
    async def story() -> None:
        engine = open_engine(empty_url, config=QUIET)
        await engine.start(migrate=True)
        await engine.close()
        await query(empty_url, spoil)
        with pytest.raises(SchemaMismatch, match=advice):
            await open_engine(empty_url, config=QUIET).start(migrate=True)

    asyncio.run(story())


def test_two_processes_may_migrate_at_once(empty_url: str) -> None:
    async def story() -> None:
        engines = [open_engine(empty_url, config=QUIET) for _ in range(4)]
        await asyncio.gather(*(engine.start(migrate=True) for engine in engines))
        created = [await engine.create_execution(execution_kind="k") for engine in engines]
        assert len({each.execution_id for each in created}) == 4
        await asyncio.gather(*(engine.close() for engine in engines))

    asyncio.run(story())


def test_another_number_of_partitions_is_refused(durable_lab: Lab) -> None:
    """One stored configuration, checked by every process."""

    async def story() -> None:
        other = open_engine(durable_lab.url, config=EngineConfig(loops=False, partitions=7))
        with pytest.raises(ConfigurationMismatch, match="partitions"):
            await other.start()

    durable_lab.run(story())


def test_the_printed_sql_makes_the_same_schema(durable_lab: Lab) -> None:
    """`ff db sql` shows what migration runs."""
    text = durable_lab.engine.store.migration_sql()
    for table in ("ff_exec_core", "ff_attempt", "ff_lease_event", "ff_worker_registry"):
        assert f"CREATE TABLE {table}" in text


@pytest.mark.parametrize("column", ["priority", "retry_count", "open_group", "signal_bytes"])
def test_postgres_refuses_a_number_that_can_never_be_right(postgres_url: str, column: str) -> None:
    """Only PostgreSQL: see docs/design/005. Old rows are left to be read as corrupt."""

    async def story() -> None:
        async with open_engine(postgres_url, config=QUIET) as engine:
            await engine.create_execution(execution_kind="work")
        for value in (-1, 1 << 30) if column == "priority" else (-1,):
            with pytest.raises(asyncpg.CheckViolationError, match="ff_exec_core_ranges"):
                await query(postgres_url, f"UPDATE ff_exec_core SET {column} = {value}")

    asyncio.run(story())


HOT = "autovacuum_vacuum_cost_limit=2000"
EAGER = {HOT, "autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=1000"}
VACUUMED = {
    "ff_exec_core": {HOT, "autovacuum_vacuum_scale_factor=0.02", "fillfactor=80"},
    "ff_budget_policy": EAGER,
    "ff_budget_usage": EAGER,
    "ff_quota_gate": EAGER,
    "ff_flow_core": EAGER | {"fillfactor=80"},
}


@pytest.mark.parametrize("table", VACUUMED)
def test_postgres_vacuums_hot_tables_early_and_fast(postgres_url: str, table: str) -> None:
    """Only PostgreSQL leaves dead rows behind."""
    sql = f"SELECT reloptions FROM pg_class WHERE oid = '{table}'::regclass"
    ((options,),) = asyncio.run(query(postgres_url, sql))
    assert set(options) == VACUUMED[table]
