"""Unique keys: at most one live execution of a kind for each."""

from __future__ import annotations

from flowfabric.model.columns import Counter, Instant
from flowfabric.model.record import Record
from flowfabric.model.words import OnConflict, UniqueWhile


class Unique(Record, frozen=True, kw_only=True):
    """What a key means to the next submit under it, while an execution has it."""

    key: str
    while_: UniqueWhile = UniqueWhile.UNFINISHED
    on_conflict: OnConflict = OnConflict.EXISTING
    debounce_ms: int | None = None  # it starts so long after the last submit
    debounce_max_ms: int | None = None  # but never later than this after the first
    batch_items: int | None = None  # so many are handed to one execution
    batch_ms: int | None = None  # which starts at the latest so long after the first


class UniqueRow(Record, frozen=True):
    """The execution that has a unique key. Rivals for a free key collide when they insert it."""

    namespace: str
    execution_kind: str
    unique_key: str
    execution_id: str
    opened_at: Instant
    items: Counter = 0  # of a batch
