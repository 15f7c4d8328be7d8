"""Waits that have not begun."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from flowfabric.sdk.journal.scopes import Scope, own_scope

T = TypeVar("T")


class LaterWait(Generic[T]):
    """A wait that has not begun: for `ctx.first_of`, `ctx.as_completed` and `ctx.gather` of a sync
    handler."""

    __slots__ = ("_begin", "_owner")

    def __init__(self, owner: Any, begin: Callable[[Scope], Coroutine[Any, Any, T]]) -> None:
        self._owner = owner
        self._begin = begin

    def __await__(self) -> Generator[Any, Any, T]:
        return self._begin(self._here()).__await__()

    def blocking(self) -> T:
        """The same in a thread."""
        ended: T = self._owner.wait_for(self._begin(self._here()))
        return ended

    def _here(self) -> Scope:
        return own_scope("wait", self._owner.journal)
