"""Searches that look past rows that cannot be decoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from flowfabric.errors import Corruption
from flowfabric.model.execution import Body
from flowfabric.model.record import Record
from flowfabric.stores.tables import Table

T = TypeVar("T")
E = TypeVar("E")
R = TypeVar("R", bound=Record)


async def first_readable(
    fetch: Callable[[int], Awaitable[Sequence[Any]]],
    decode: Callable[[Sequence[Any]], Awaitable[list[T]]],
    limit: int,
) -> list[T]:
    """The first `limit` records that can be decoded, searching past corrupt rows."""
    asked = limit
    while True:
        rows = await fetch(asked)
        found = await decode(rows)
        if len(found) >= limit or len(rows) < asked:
            return found[:limit]
        asked += max(limit, len(rows) - len(found))


def within(found: Iterable[tuple[E, Body]], bytes_max: int | None) -> list[tuple[E, Body]]:
    """Up to the one with which the inputs reach `bytes_max`; nothing behind it is read."""
    if bytes_max is None:
        return list(found)
    taken, left = [], bytes_max
    for pair in found:
        taken.append(pair)
        left -= len(pair[1].payload)
        if left <= 0:
            break
    return taken


async def readable_rows(
    fetch: Callable[[int], Awaitable[Sequence[Any]]], table: Table[R], limit: int
) -> list[R]:
    """The same for a small table."""

    async def decode(rows: Sequence[Any]) -> list[R]:
        return [record for row in rows if (record := _record(table, row)) is not None]

    return await first_readable(fetch, decode, limit)


def _record(table: Table[R], row: Any) -> R | None:
    try:
        return table.from_row(row)
    except Corruption:
        return None
