"""The shared part of all listings: the size of a page, its start, and the cursor of the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from flowfabric import limits
from flowfabric.api.page import Page, decode_cursor, encode_cursor
from flowfabric.model.checks import check_integer

R = TypeVar("R")
T = TypeVar("T")
P = TypeVar("P", bound=tuple[int | str, ...])


def check_limit(limit: object) -> int:
    """How many items a page may have."""
    return check_integer(limit, field="limit", least=0, most=limits.PAGE_MAX)


class Listing(Generic[P]):
    """One operation that returns pages; `check` takes the parts of a place in its order."""

    def __init__(self, name: str, check: Callable[..., P]) -> None:
        self.name = name
        self._check = check

    def place(self, cursor: str | None) -> P | None:
        """The place after which a page begins; None at the beginning."""
        return decode_cursor(self.name, cursor, self._check)

    def cursor(self, place: P | None) -> str | None:
        """The cursor of the next page; None when there is no next."""
        return None if place is None else encode_cursor(self.name, place)

    def page(
        self,
        rows: Sequence[R],
        limit: int,
        *,
        place_of: Callable[[R], P],
        show: Callable[[R], T],
    ) -> Page[T]:
        """A page of the first rows; more than `limit` rows mean that another page follows."""
        shown = rows[:limit]
        is_last = len(rows) <= limit or not shown
        following = None if is_last else place_of(shown[-1])
        return Page(tuple(map(show, shown)), self.cursor(following))
