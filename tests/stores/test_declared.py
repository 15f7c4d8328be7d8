"""Doctor compares the schema of a database with what the migrations make."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric.stores.postgres.declared import declared_schema as postgres_schema
from flowfabric.stores.schema import differences
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
