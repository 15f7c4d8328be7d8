"""How far the schema of a database is."""

from __future__ import annotations

from flowfabric.model.record import Record


class MigrationStatus(Record, frozen=True):
    """One migration and how it stands."""

    version: int
    name: str
    applied_at: int | None
    checksum_ok: bool
