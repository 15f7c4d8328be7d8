"""Named statements: those every SQL store shares, then the store's own `queries.sql`.

Column lists are filled in from the codec.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

from flowfabric.model.columns import Written
from flowfabric.stores.execution_columns import (
    ALL,
    ATTEMPT,
    BODY_PARTS,
    FREED,
    HOT,
    RECORD,
    STEP,
)
from flowfabric.stores.indexes import READY
from flowfabric.stores.tables import Part

_BLOCK: Final = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)

# The source of a full record: the hot row and some columns of the body.
RECORD_COLUMNS: Final = ", ".join(
    f"{'b' if each.written is Written.BODY else 'c'}.{each.column.name}" for each in RECORD
)

_BODY_PARTS: Final = ", ".join(f"b.{column.name}" for column in BODY_PARTS)


def _set(part: Part, value: str) -> str:
    """Assignments to all columns but the key, which comes first."""
    return ", ".join(f"{name} = {value.format(name)}" for name in part.names[1:])


_LISTS: Final = {
    "record": RECORD_COLUMNS,
    "waiting": f"{READY.where}",
    "body_parts": _BODY_PARTS,
    # The same without inputs above the given size, and with that size (Postgres).
    "light_parts": _BODY_PARTS.replace(
        "b.payload,", "CASE WHEN octet_length(b.payload) <= $4 THEN b.payload END,"
    )
    + ", octet_length(b.payload)",
    "attempt": ", ".join(ATTEMPT.names),
    "attempt_without_result": ", ".join(
        "NULL" if name in ("result", "result_encoding") else name for name in ATTEMPT.names
    ),
    "attempt_of_a": ", ".join(f"a.{name}" for name in ATTEMPT.names),
    "step_marks": _set(STEP, "?"),
    "freed_marks": _set(FREED, "?"),
    "set_hot": _set(HOT, "v.{}"),
    "hot": ", ".join(HOT.names),
    "set_freed": _set(FREED, "v.{}"),
    "freed": ", ".join(FREED.names),
    "set_all": _set(ALL, "v.{}"),
    "all": ", ".join(ALL.names),
}


@cache
def queries_of(family: str, extra: tuple[tuple[str, str], ...] = ()) -> dict[str, str]:
    """Every statement of a store by name."""
    folder = resources.files("flowfabric.stores")
    shared = (folder / "common.sql").read_text("utf-8")
    if family == "postgres":
        shared = re.sub(r"\?(\d)", r"$\1", shared)
    text = shared + (folder / family / "queries.sql").read_text("utf-8")
    lists = {**_LISTS, **dict(extra)}
    return {
        name: re.sub(r"\[\[(\w+)\]\]", lambda match: lists[match[1]], body).strip()
        for name, body in _BLOCK.findall(text)
    }
