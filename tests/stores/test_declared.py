"""Doctor compares the schema of a database with what the migrations make."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import asyncpg
import pytest

from flowfabric.stores.indexes import EVERY_INDEX
from flowfabric.stores.postgres import upkeep
from flowfabric.stores.postgres.declared import declared_schema as postgres_schema
from flowfabric.stores.schema import Schema, differences
from flowfabric.stores.sqlite.declared import declared_schema as sqlite_schema
from tests.support.databases import PostgresServer
from tests.support.lab import Lab
from tools.declare_schema import DECLARATION, written

# What was done behind the engine's back, the part that is named, and a word of what is said.
DAMAGE = {
    "an index dropped": ("DROP INDEX ff_exec_due", "ff_exec_core.ff_exec_due", "missing"),
    "a column added": (
        "ALTER TABLE ff_route ADD COLUMN mine INTEGER NOT NULL DEFAULT 3",
        "",
        "",
    ),
    "a table dropped": ("DROP TABLE ff_exec_tag", "table ff_exec_tag", "missing"),
    "a column renamed": (
        "ALTER TABLE ff_exec_tag RENAME COLUMN tag_value TO word",
        "column ff_exec_tag.tag_value",
        "missing",
    ),
    "a unique index added": (
        "CREATE UNIQUE INDEX mine ON ff_exec_body (creator_identity)",
        "unique index ff_exec_body.mine",
        "added",
    ),
    "an index of one's own": ("CREATE INDEX mine ON ff_exec_body (creator_identity)", "", ""),
}
POSTGRES_DAMAGE = {
    "a type changed": (
        "ALTER TABLE ff_exec_body ALTER COLUMN bounds TYPE varchar(10)",
        "column ff_exec_body.bounds",
        "character varying(10)",
    ),
    "a condition dropped": (
        "ALTER TABLE ff_quota_gate DROP CONSTRAINT ff_quota_gate_active_check",
        "constraint ff_quota_gate.ff_quota_gate_active_check",
        "missing",
    ),
    "a condition added": (
        "ALTER TABLE ff_exec_body ADD CHECK (length(tags) < 3)",
        "constraint ff_exec_body.",
        "added",
    ),
}


def check(lab: Lab, statement: str, part: str, word: str) -> None:
    async def story() -> None:
        assert (await lab.engine.doctor()).healthy
        await lab.sql(statement)
        told = [each for each in (await lab.engine.doctor()).problems if each.code == "schema"]
        if not part:
            assert not told
            return
        assert [each for each in told if part in each.subject and word in each.detail], told
        assert all("ff db sql" in each.advice for each in told)

    lab.run(story())


@pytest.mark.parametrize("what", DAMAGE)
def test_doctor_finds_a_schema_that_differs(fresh_lab: Lab, what: str) -> None:
    check(fresh_lab, *DAMAGE[what])


@pytest.mark.parametrize("what", POSTGRES_DAMAGE)
def test_doctor_finds_types_and_conditions_that_differ(fresh_lab: Lab, what: str) -> None:
    """SQLite cannot change these without making the table anew."""
    if fresh_lab.engine.backend_label() == "postgres":
        check(fresh_lab, *POSTGRES_DAMAGE[what])


def test_a_check_that_fails_is_a_finding_and_the_others_are_made(fresh_lab: Lab) -> None:
    """A table is gone: doctor says which checks that stopped, and finds all the rest."""
    lab = fresh_lab

    async def story() -> None:
        await lab.create()
        await lab.sql("UPDATE ff_exec_core SET started_at = -7")
        await lab.sql("DROP TABLE ff_flow_task")
        report = await lab.engine.doctor()
        told = {(each.code, each.subject) for each in report.problems}
        assert ("schema", "table ff_flow_task") in told
        assert ("check_failed", "flows") in told
        assert "looked_at" in report.facts
        assert report.facts["bytes"] > 0

    lab.run(story())


def test_doctor_finds_an_index_that_lacks_rows(postgres: PostgresServer) -> None:
    """SQLite compares its indexes itself. A prepared count would keep the plan of its first time,
    and never look past the index."""
    switch = (
        "UPDATE pg_index SET indisready = {0}, indisvalid = {0} "
        "WHERE indexrelid = 'ff_exec_waiting'::regclass"
    )

    async def story(lab: Lab) -> None:
        await lab.create()
        await lab.sql(switch.format("false"))
        await lab.create(kind="new to every cache")
        await lab.sql(switch.format("true"))
        await lab.configure()
        (found,) = (await lab.engine.doctor()).problems
        assert (found.code, found.subject) == ("index", "ff_exec_waiting")
        assert found.detail == "1 in the index, 2 rows"

    with postgres.empty_database() as url:
        lab = Lab(url)
        lab.open()
        lab.run(story(lab))
        lab.close()


def test_doctor_reports_the_upkeep_of_a_server(postgres_url: str) -> None:
    """Dead rows, the last vacuum, the oldest transaction; indexes that are larger than needed."""
    lab = Lab(postgres_url)
    lab.open()

    async def story() -> None:
        await lab.create()
        holder = await asyncpg.connect(postgres_url)
        await holder.execute("VACUUM")  # earlier tests may have left dead rows in this database
        await holder.execute("BEGIN")
        await holder.execute("SELECT 1")
        facts = (await lab.engine.doctor()).facts
        assert {"dead_rows", "last_vacuum_at", "autovacuum"} <= facts.keys()
        assert facts["oldest_transaction_s"] >= 0
        await holder.close()
        assert (await lab.engine.doctor()).notices == ()

    lab.run(story())
    lab.close()


def test_upkeep_for_an_operator_is_a_notice(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bounds so low that a young database is past them all; nothing is wrong with it."""
    for name in ("DEAD_ROWS", "DEAD_SHARE", "TRANSACTION_S", "BLOAT_BYTES", "BLOAT_SHARE"):
        monkeypatch.setattr(upkeep, name, 0)
    lab = Lab(postgres_url)
    lab.open()

    async def story() -> None:
        await lab.completed()
        holder = await asyncpg.connect(postgres_url)
        await holder.execute("BEGIN")
        await holder.execute("SELECT 1")
        report = await lab.engine.doctor()
        await holder.close()
        assert report.healthy, report.problems
        codes = {each.code for each in report.notices}
        assert codes == {"dead_rows", "old_transaction", "index_bloat"}
        assert all(each.advice for each in report.notices)

    lab.run(story())
    lab.close()


def test_the_declaration_is_what_the_migrations_make(postgres: PostgresServer) -> None:
    """`tools/declare_schema.py` writes it anew after a migration was added."""
    with postgres.database() as url:
        assert asyncio.run(written(url)) == DECLARATION.read_text(encoding="utf-8")


def test_both_stores_declare_the_same_tables_and_columns() -> None:
    """Types are each store's own; the names are one set, but for what Postgres orders events by
    and for SQLite's clock, which Postgres has in its server."""

    def names(schema: object) -> set[str]:
        assert isinstance(schema, dict)
        kinds, own = ("table ", "column "), ("xact_id", "ff_clock")
        return {
            part
            for part in schema
            if part.startswith(kinds) and not any(word in part for word in own)
        }

    assert names(postgres_schema()) == names(sqlite_schema())


def test_a_schema_does_not_differ_from_itself() -> None:
    for schema in (postgres_schema(), sqlite_schema()):
        assert differences(schema, schema) == []


def indexes_of(schema: Schema) -> dict[str, tuple[tuple[str, ...], str]]:
    """The columns of every index that is no constraint, and whether it leaves rows out."""
    found = {}
    for part, definition in schema.items():
        if part.startswith("index "):
            columns, _, condition = definition.partition("(")[2].partition(")")
            name = part.rpartition(".")[2]
            found[name] = tuple(columns.split(", ")), re.sub(r"[()]| WHERE ", "", condition)
    return found


@pytest.mark.parametrize("schema", [sqlite_schema, postgres_schema], ids=["sqlite", "postgres"])
def test_every_index_of_the_schema_is_declared_and_every_declared_one_is_there(
    schema: Callable[[], Schema],
) -> None:
    """A search by an index that is missing would read the whole table."""
    real = indexes_of(schema())
    declared = {each.name: (*each.columns, *each.also) for each in EVERY_INDEX}
    assert declared == {name: columns for name, (columns, _) in real.items()}
    partial = {each.name for each in EVERY_INDEX if each.where is not None}
    assert partial == {name for name, (_, condition) in real.items() if condition}


def test_the_rows_of_an_index_are_those_its_declaration_says() -> None:
    """The condition in SQL and the one the overlay evaluates."""
    real = indexes_of(sqlite_schema())
    for index in EVERY_INDEX:
        if index.where is not None:
            assert re.sub(r"[()]", "", index.where) == real[index.name][1].strip()


def test_doctor_names_every_declared_index_that_is_gone(fresh_lab: Lab) -> None:
    async def story() -> None:
        for index in EVERY_INDEX:
            await fresh_lab.sql(f"DROP INDEX {index.name}")
        problems = (await fresh_lab.engine.doctor()).problems
        gone = {each.subject.rpartition(".")[2] for each in problems if each.code == "schema"}
        assert gone == {each.name for each in EVERY_INDEX}
        assert ("check_failed", "indexes") not in [(each.code, each.subject) for each in problems]

    fresh_lab.run(story())
