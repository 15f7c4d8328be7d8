"""The schema of a database, compared with the one the migrations make.

A schema is a map of parts to their definitions: `column ff_exec_core.priority` is `integer NOT
NULL`. Missing and changed parts are always wrong. Parts added by hand are reported only if they can
refuse a write of the engine: a plain index of one's own is fine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Schema = Mapping[str, str]
Finding = tuple[str, str]  # the part, and its defect

# Kinds of parts that can refuse or change a write.
_HARMFUL: Final = ("constraint", "unique index", "trigger")


def differences(declared: Schema, real: Schema) -> list[Finding]:
    """Parts a database lacks, has changed, or has added so that they can do harm."""
    found = []
    for part, definition in declared.items():
        if part not in real:
            if not _belongs_to_missing_table(part, real):
                found.append((part, "is missing"))
        elif real[part] != definition:
            found.append((part, f"is {real[part]!r}, should be {definition!r}"))
    for part, definition in real.items():
        if part not in declared and _can_refuse(part, definition):
            found.append((part, f"was added: {definition}"))
    return found


def _belongs_to_missing_table(part: str, real: Schema) -> bool:
    """Whether the part's whole table is missing: then only the table is reported."""
    kind, _, name = part.rpartition(" ")
    table, _, inner = name.partition(".")
    return kind != "table" and inner != "" and f"table {table}" not in real


def _can_refuse(part: str, definition: str) -> bool:
    if part.startswith(_HARMFUL):
        return True
    needs_value = "NOT NULL" in definition and "DEFAULT" not in definition
    return part.startswith("column ") and needs_value
