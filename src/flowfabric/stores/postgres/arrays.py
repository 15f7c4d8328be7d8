"""Column types for `unnest`: whole batches travel as one array per column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric.stores.codec import (
    ATTEMPT_COLUMNS,
    BODY_COLUMNS,
    FIRST_COLUMNS,
    HOT_COLUMNS,
    STATE_COLUMNS,
)

_INTEGERS: Final = frozenset(
    {
        "attempt_index",
        "total_attempt_count",
        "retry_count",
        "replay_count",
        "reclaim_count",
        "priority",
        "progress_pct",
        "route_id",
        "partition_key",
        "state_id",
    }
)


def _type(column: str) -> str:
    if column == "execution_id":
        return "uuid"
    if column in ("payload", "result"):
        return "bytea"
    if column in _INTEGERS:
        return "int"
    if column.endswith(("_at", "_ms", "_epoch")):
        return "bigint"
    return "text"


def arrays(columns: Sequence[str]) -> str:
    """$1::type[], $2::type[], …"""
    return ", ".join(f"${n}::{_type(name)}[]" for n, name in enumerate(columns, start=1))


ARRAYS: Final = (
    ("first_arrays", arrays(FIRST_COLUMNS)),
    ("body_arrays", arrays(BODY_COLUMNS)),
    ("attempt_arrays", arrays(ATTEMPT_COLUMNS)),
    ("hot_arrays", arrays((*HOT_COLUMNS, "execution_id"))),
    ("state_arrays", arrays((*STATE_COLUMNS, "execution_id"))),
)
