"""Named statements: those every SQL store shares, then the store's own `queries.sql`.

Column lists are filled in from the codec.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

from flowfabric.stores.codec import (
    ATTEMPT_COLUMNS,
    BODY_COLUMNS,
    CORE_COLUMNS,
    FIRST_COLUMNS,
    FREED_COLUMNS,
    HOT_COLUMNS,
    STATE_COLUMNS,
)

_BLOCK: Final = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)

# The source of a full record: the hot row, then policy, tags and bounds of the body.
RECORD_COLUMNS: Final = ", ".join(
    [*(f"c.{name}" for name in CORE_COLUMNS), "b.policy", "b.tags", "b.bounds"]
)

_BODY_PARTS: Final = "b.payload, b.payload_encoding, b.creator_identity, b.idempotency_key"

_LISTS: Final = {
    "record": RECORD_COLUMNS,
    "first": ", ".join(FIRST_COLUMNS),
    "body_parts": _BODY_PARTS,
    # The same without inputs above the given size, and with that size (Postgres).
    "light_parts": _BODY_PARTS.replace(
        "b.payload,", "CASE WHEN octet_length(b.payload) <= $4 THEN b.payload END,"
    )
    + ", octet_length(b.payload)",
    "body": ", ".join(BODY_COLUMNS),
    "attempt": ", ".join(ATTEMPT_COLUMNS),
    "attempt_of_a": ", ".join(f"a.{name}" for name in ATTEMPT_COLUMNS),
    "set_hot": ", ".join(f"{name} = v.{name}" for name in HOT_COLUMNS),
    "hot": ", ".join(HOT_COLUMNS),
    "set_freed": ", ".join(f"{name} = v.{name}" for name in FREED_COLUMNS),
    "freed": ", ".join(FREED_COLUMNS),
    "set_state": ", ".join(f"{name} = v.{name}" for name in STATE_COLUMNS),
    "state": ", ".join(STATE_COLUMNS),
}


@cache
def queries_of(family: str, extra: tuple[tuple[str, str], ...] = ()) -> dict[str, str]:
    """Every statement of a store by name."""
    folder = resources.files("flowfabric.stores")
    text = "".join(
        (folder / name).read_text("utf-8") for name in ("common.sql", f"{family}/queries.sql")
    )
    lists = {**_LISTS, **dict(extra)}
    return {
        name: re.sub(r"\[\[(\w+)\]\]", lambda match: lists[match[1]], body).strip()
        for name, body in _BLOCK.findall(text)
    }
