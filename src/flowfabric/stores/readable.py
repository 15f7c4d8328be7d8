"""Searches that look past rows that cannot be decoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from flowfabric.errors import Corruption
from flowfabric.model.execution import Body

T = TypeVar("T")
E = TypeVar("E")


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
    fetch: Callable[[int], Awaitable[Sequence[Any]]], decode: Callable[[Any], T], limit: int
) -> list[T]:
    """The same for rows that are decoded one by one."""

    async def decode_all(rows: Sequence[Any]) -> list[T]:
        found = []
        for row in rows:
            with suppress(Corruption):
                found.append(decode(row))
        return found

    return await first_readable(fetch, decode_all, limit)
