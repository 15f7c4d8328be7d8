"""Several things beside each other in a sync handler: its thread waits while the loop decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from flowfabric.errors import InvalidInput
from flowfabric.model.shown import shown
from flowfabric.sdk.context.children import Child, Family
from flowfabric.sdk.context.conditions import ANYTHING, Place, Waitable
from flowfabric.sdk.context.journaling import JournalFacts, raced
from flowfabric.sdk.context.mail import SyncMessage, receive
from flowfabric.sdk.context.waiting import (
    MISSING,
    Approval,
    checked_instant,
    sleep_until,
    wait_approval,
    wait_for,
    wait_signals,
)
from flowfabric.sdk.durations import Duration, Moment
from flowfabric.sdk.journal.branches import Completed, as_completed
from flowfabric.sdk.journal.calls import StepCall
from flowfabric.sdk.journal.laters import LaterWait
from flowfabric.sdk.journal.scopes import Scope, own_scope

T = TypeVar("T")


class Later:
    """The waits of a sync handler as things to be waited for beside others: `ctx.later`."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def sleep(self, duration: Duration) -> LaterWait[None]:
        """See `Context.sleep`."""
        return self._wait(lambda scope: sleep_until(self._owner, scope, duration))

    def sleep_until(self, instant: datetime) -> LaterWait[None]:
        """See `Context.sleep_until`."""
        until = checked_instant(instant)
        return self._wait(lambda scope: sleep_until(self._owner, scope, until))

    def wait_for(
        self,
        place: Place,
        kind: Any = ANYTHING,
        *,
        timeout: Moment | None = None,
        default: Any = MISSING,
    ) -> LaterWait[Any]:
        """See `Context.wait_for`."""
        return self._wait(lambda scope: wait_for(self._owner, scope, place, kind, timeout, default))

    def wait(
        self, condition: Waitable, *, timeout: Moment | None = None
    ) -> LaterWait[tuple[Any, ...]]:
        """See `Context.wait`."""
        return self._wait(lambda scope: wait_signals(self._owner, scope, condition, timeout))

    def approval(
        self, place: Place, *, of: int = 1, form: Any = ANYTHING, timeout: Moment | None = None
    ) -> LaterWait[Approval]:
        """See `Context.approval`."""
        return self._wait(lambda scope: wait_approval(self._owner, scope, place, of, form, timeout))

    def receive(
        self,
        mailbox: str,
        kind: Any = None,
        *,
        timeout: Moment | None = None,
        default: Any = MISSING,
    ) -> LaterWait[Any]:
        """See `Context.receive`."""
        return self._wait(
            lambda scope: receive(self._owner, scope, mailbox, kind, timeout, default, SyncMessage)
        )

    def _wait(self, begin: Callable[[Scope], Coroutine[Any, Any, T]]) -> LaterWait[T]:
        return LaterWait(self._owner, begin)


class SyncRacing(JournalFacts):
    """The calls of a sync handler that wait for the first of several."""

    __slots__ = ()
    _family: Family

    @property
    def later(self) -> Later:
        """Waits that have not begun, for `first_of`, `as_completed` and `gather`:
        `ctx.first_of(fetch.later(url), ctx.later.sleep("30s"))`."""
        return Later(self._owner)

    def first_of(
        self, *works: Any, successes: bool = False, losers: str = "leave"
    ) -> tuple[int, Any]:
        """The index and the result of the first that ends: see `Context.first_of`.

            index, answer = ctx.first_of(ask.later(model), ctx.later.sleep("30s"))

        It takes calls made by `later`, waits of `ctx.later`, and children. A plain function that
        has lost runs to its end in its thread, and its result is dropped.
        """
        scope = own_scope("first_of", self._journal)
        for work in works:
            _check(work, "first_of")
        race = partial(raced, self._journal, self._family, works, successes, losers, scope)
        answer: tuple[int, Any] = self._owner.wait_for(self._joined(race))
        return answer

    def as_completed(self, **works: Any) -> Generator[tuple[str, Completed[Any]], None, None]:
        """Each by its name as it ends: see `Context.as_completed`."""
        scope = own_scope("as_completed", self._journal)
        for work in works.values():
            _check(work, "as_completed")
        several = {name: self._begun_later(each) for name, each in works.items()}
        ended = as_completed(self._journal, several, scope)
        following = partial(anext, ended, None)
        try:
            while (found := self._owner.wait_for(self._joined(following))) is not None:
                yield found
        finally:
            if not self._owner.is_stopped:
                self._owner.wait_for(ended.aclose())

    def _begun_later(self, work: Any) -> Any:
        """A child is asked for when its branch begins."""
        if not isinstance(work, Child):
            return work
        return LaterWait(self._owner, lambda _: self._family.result(work))

    async def _joined(self, operation: Callable[[], Awaitable[T]]) -> T:
        """The result of an operation whose branches a thread of the handler waits for."""
        with self._journal.room.joining():
            return await operation()


def _check(work: object, name: str) -> None:
    """A coroutine of the program would call what blocks, and so the loop of the worker."""
    if not isinstance(work, StepCall | LaterWait | Child):
        detail = f"{name}: {shown(work, 80)} is no child, call made by `later` or wait of ctx.later"
        raise InvalidInput(detail, field=name)
