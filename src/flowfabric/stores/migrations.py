"""Numbered SQL files with checksums: read here, applied by each store under its own lock."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

from flowfabric.errors import SchemaMismatch
from flowfabric.model.migration import MigrationStatus
from flowfabric.model.record import Record

_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


class Migration(Record, frozen=True):
    """One step of the schema."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Tells a changed file from the applied one."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


class Applied(Record, frozen=True):
    """A step recorded in the database."""

    checksum: str
    applied_at: int


@cache
def migrations_of(family: str) -> tuple[Migration, ...]:
    """Every step this program knows, in order."""
    folder = resources.files("flowfabric.stores") / family / "migrations"
    found = []
    for file in folder.iterdir():
        match = _NAME.fullmatch(file.name)
        if match:
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.version))


def schema_version_of(family: str) -> int:
    """The last step this program knows: an open store has it, or it would have refused."""
    return migrations_of(family)[-1].version


def status_of(family: str, applied: Mapping[int, Applied]) -> list[MigrationStatus]:
    """The state of each known step."""
    status = []
    for migration in migrations_of(family):
        known = applied.get(migration.version)
        same = known is None or known.checksum == migration.checksum
        status.append(
            MigrationStatus(
                migration.version, migration.name, known.applied_at if known else None, same
            )
        )
    return status


def refuse_unfit(family: str, applied: Mapping[int, Applied], *, migrate: bool) -> list[int]:
    """The missing steps; refuses a schema this program cannot work with, and says what to do."""
    known = {migration.version: migration for migration in migrations_of(family)}
    newer = sorted(set(applied) - set(known))
    if newer:
        raise SchemaMismatch(
            f"the database has migration {newer[-1]}, this program knows only up to "
            f"{max(known)}: upgrade FlowFabric, or point it at another database",
            found=newer[-1],
            known=max(known),
        )
    for version, row in sorted(applied.items()):
        if known[version].checksum != row.checksum:
            raise SchemaMismatch(
                f"migration {version} ({known[version].name}) was applied from a different file: "
                "restore the release that made this database",
                version=version,
            )
    missing = sorted(set(known) - set(applied))
    if missing and not migrate:
        raise SchemaMismatch(
            f"migration {missing[0]} ({known[missing[0]].name}) is not applied: "
            "run `ff db migrate`",
            missing=missing,
        )
    return missing


def all_sql(family: str) -> str:
    """The whole schema as text."""
    return "\n".join(
        f"-- {migration.version:04d} {migration.name}\n{migration.sql}"
        for migration in migrations_of(family)
    )
