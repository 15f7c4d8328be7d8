"""Rows that cannot be decoded: set apart, so that the rest of a batch still loads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from flowfabric.errors import Corruption
from flowfabric.model.record import Record
from flowfabric.stores.tables import Key, Table

R = TypeVar("R", bound=Record)


async def readable(
    load: Callable[[Table[R], Sequence[Key]], Awaitable[dict[Key, R]]],
    table: Table[R],
    keys: Sequence[Key],
) -> tuple[dict[Key, R], dict[Key, str]]:
    """The rows that `load` can read, and what is wrong with the others."""
    if not keys:
        return {}, {}
    try:
        return dict(await load(table, keys)), {}
    except Corruption as error:
        if len(keys) == 1:
            return {}, {keys[0]: error.detail}
    found: dict[Key, R] = {}
    spoiled: dict[Key, str] = {}
    for key in keys:
        some, bad = await readable(load, table, [key])
        found.update(some)
        spoiled.update(bad)
    return found, spoiled
