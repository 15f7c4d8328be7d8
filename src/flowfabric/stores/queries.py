"""Named statements: those every SQL store shares, then the store's own `queries.sql`.

Column lists are filled in from the codec.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

from flowfabric.model.columns import Written
from flowfabric.stores.execution_columns import ATTEMPT, BODY_PARTS, FREED, RECORD, STEP
from flowfabric.stores.indexes import READY
from flowfabric.stores.standing import CONDITIONS
from flowfabric.stores.tables import Part

_BLOCK: Final = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)

# The source of a full record: the hot row and some columns of the body.
RECORD_COLUMNS: Final = ", ".join(
    f"{'b' if each.written is Written.BODY else 'c'}.{each.column.name}" for each in RECORD
)

_BODY_PARTS: Final = ", ".join(f"b.{column.name}" for column in BODY_PARTS)


def _marks(part: Part) -> str:
    """Assignments to all columns but the key, which comes first (SQLite)."""
    return ", ".join(f"{name} = ?" for name in part.names[1:])


_LISTS: Final = {
    "record": RECORD_COLUMNS,
    # Rows that may be taken at the instant that is the second parameter.
    "claimable": f"c.{READY.where} AND (c.grant_expires_at IS NULL OR c.grant_expires_at < ?2)"
    " AND (c.deadline_at IS NULL OR c.deadline_at > ?2)",
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
    **CONDITIONS,
    "step_marks": _marks(STEP),
    "freed_marks": _marks(FREED),
}


@cache
def queries_of(family: str, extra: tuple[tuple[str, str], ...] = ()) -> dict[str, str]:
    """Every statement of a store by name."""
    folder = resources.files("flowfabric.stores")
    text = "".join(
        (folder / name).read_text("utf-8") for name in ("common.sql", f"{family}/queries.sql")
    )
    lists = {**_LISTS, **dict(extra)}
    filled = re.sub(r"\[\[(\w+)\]\]", lambda match: lists[match[1]], text)
    if family == "postgres":
        filled = re.sub(r"\?(\d)", r"$\1", filled)
    return {name: body.strip() for name, body in _BLOCK.findall(filled)}
