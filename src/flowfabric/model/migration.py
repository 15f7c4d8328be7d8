"""The state of a database's schema."""

from __future__ import annotations

from flowfabric.model.record import Record


class MigrationStatus(Record, frozen=True):
    """One migration and its state."""

    version: int
    name: str
    applied_at: int | None
    checksum_ok: bool
