"""Journals in tests: entries, and what a reader finds."""

from __future__ import annotations

from typing import Any

from flowfabric.model.journal import EntryError, EntryKind, EntryState, JournalEntry, NewEntry
from flowfabric.model.results import Claimed
from tests.support.lab import Lab


def entry(position: int, key: str = "", value: bytes | None = b"1", **more: Any) -> NewEntry:
    """One entry."""
    return NewEntry(
        position=position, key=key or f"step#{position + 1}", asked=position, value=value, **more
    )


def failed(position: int, key: str = "") -> NewEntry:
    """An entry of a step that failed."""
    error = EntryError("Declined", "no funds", ("Declined", "Exception"))
    return entry(position, key, None, state=EntryState.FAILED, error=error)


def published(position: int, value: bytes = b"1") -> NewEntry:
    """What is published with the entries before it."""
    return NewEntry(position=position, key="state", kind=EntryKind.STATE, value=value)


async def record(lab: Lab, claimed: Claimed, *entries: NewEntry, **more: Any) -> int:
    """Add entries; the position of the last."""
    reply = await lab.engine.checkpoint(claimed.handle, entries=entries, **more)
    return reply.position


async def journal(lab: Lab, execution_id: str, **more: Any) -> tuple[JournalEntry, ...]:
    """What a reader finds."""
    page = await lab.engine.read_journal(execution_id=execution_id, **more)
    return page.entries


async def keys(lab: Lab, execution_id: str, **more: Any) -> list[str]:
    """The keys of the entries."""
    return [each.key for each in await journal(lab, execution_id, **more)]
