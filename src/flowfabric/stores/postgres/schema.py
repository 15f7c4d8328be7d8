"""Bringing the schema up to date, one process at a time."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.errors import ConfigurationMismatch
from flowfabric.stores.migrations import Applied, migrations_of

MIGRATION_LOCK: Final = 0x46_46_4D_49  # "FFMI"
MIGRATION_S_MAX: Final = 86_400.0  # building an index over a large table has no bound
_ANNOTATION_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS ff_migration_annotation (version INTEGER PRIMARY KEY, "
    "name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)"
)


async def applied_migrations(connection: Any) -> dict[int, Applied]:
    """The steps recorded in the database."""
    if await connection.fetchval("SELECT to_regclass('ff_migration_annotation')") is None:
        return {}
    rows = await connection.fetch(
        "SELECT version, checksum, applied_at FROM ff_migration_annotation"
    )
    return {row[0]: Applied(row[1], row[2]) for row in rows}


async def apply_migrations(
    connection: Any, now: int, *, partitions: int, lock_timeout_ms: int
) -> list[str]:
    """Apply the missing steps in the open transaction; returns their names.

    Another process that migrates is waited for, however long that takes; a table in use only for
    the lock timeout, because every statement queued behind ours would wait as well.
    """
    await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
    await connection.execute(
        "SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK, timeout=MIGRATION_S_MAX
    )
    await connection.execute(f"SET LOCAL lock_timeout = {int(lock_timeout_ms)}")
    await connection.execute(_ANNOTATION_TABLE)
    applied = await applied_migrations(connection)
    done = []
    for migration in migrations_of("postgres"):
        if migration.version in applied:
            continue
        await connection.execute(migration.sql, timeout=MIGRATION_S_MAX)
        await connection.execute(
            "INSERT INTO ff_migration_annotation VALUES ($1, $2, $3, $4)",
            migration.version,
            migration.name,
            migration.checksum,
            now,
        )
        done.append(f"{migration.version:04d}_{migration.name}")
    await connection.execute(
        "INSERT INTO ff_partition_config (singleton, num_flow_partitions) VALUES (1, $1) "
        "ON CONFLICT DO NOTHING",
        partitions,
    )
    return done


async def check_partitions(connection: Any, partitions: int) -> None:
    """Refuse a database made with another number of partitions: ids would lead nowhere."""
    stored = await connection.fetchval("SELECT num_flow_partitions FROM ff_partition_config")
    if stored != partitions:
        raise ConfigurationMismatch(
            f"the database was made with {stored} partitions, the configuration says "
            f"{partitions}: set partitions={stored}"
        )
