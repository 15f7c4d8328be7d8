"""Searches that look past rows that cannot be decoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from flowfabric.errors import Corruption

T = TypeVar("T")


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
