"""Searches that rows nobody can read must not hide anything from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def first_readable(
    fetch: Callable[[int], Awaitable[Sequence[Any]]],
    decode: Callable[[Sequence[Any]], Awaitable[list[T]]],
    limit: int,
) -> list[T]:
    """The first `limit` records that can be read; spoiled rows in front make it look further."""
    asked = limit
    while True:
        rows = await fetch(asked)
        found = await decode(rows)
        if len(found) >= limit or len(rows) < asked:
            return found[:limit]
        asked += max(limit, len(rows) - len(found))
