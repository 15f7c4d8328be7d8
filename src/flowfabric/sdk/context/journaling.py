"""The calls of a handler that are recorded: steps, values, and several of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import (
    Any,
    Concatenate,
    Final,
    Literal,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from flowfabric import limits
from flowfabric.errors import InvalidInput, PayloadTooLarge
from flowfabric.ids import Random
from flowfabric.model.checks import check_flag
from flowfabric.model.shown import shown
from flowfabric.sdk import codec
from flowfabric.sdk.context.children import Child, ChildCall, Family
from flowfabric.sdk.durations import to_datetime
from flowfabric.sdk.errors import ChildFailed, OpenBranches, Suspension
from flowfabric.sdk.journal.branches import (
    AT_ONCE,
    Branch,
    Completed,
    as_completed,
    close_unbegun,
    first_of,
    gather,
    gather_blocking,
    map_async,
    map_blocking,
    told,
)
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.plan import plan_of_value
from flowfabric.sdk.journal.scopes import Scope, check_step_name, own_scope
from flowfabric.sdk.journal.steps import Stepper, SyncStepper, prepared

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
Work: TypeAlias = Child[T] | Awaitable[T]
_LOSERS: Final = ("leave", "cancel")


def encoded_state(value: Any) -> bytes:
    """What a run publishes, as JSON."""
    try:
        data = codec.encode(value)
    except codec.EncodeErrors as error:
        raise InvalidInput(f"state: cannot be written as JSON: {error}", field="state") from None
    if len(data) > limits.PUBLISHED_BYTES:
        most = limits.PUBLISHED_BYTES
        detail = f"state: {len(data)} bytes is over the limit {most}"
        raise PayloadTooLarge(detail, field="state", limit=most)
    return data


async def raced(
    journal: Journal,
    family: Family,
    works: Sequence[Any],
    successes: bool,
    losers: str,
    scope: Scope | None = None,
) -> tuple[int, Any]:
    """The first of calls, coroutines and children."""
    check_flag(successes, field="successes")
    if losers not in _LOSERS:
        detail = f"losers: {shown(losers, 80)} is not one of {', '.join(_LOSERS)}"
        raise InvalidInput(detail, field="losers")
    several = [family.result(each) if isinstance(each, Child) else each for each in works]
    try:
        return await first_of(journal, several, successes=successes, scope=scope)
    finally:
        if losers == "cancel" and not journal.owner.is_stopped:
            await family.cancel_open([each for each in works if isinstance(each, Child)])


class JournalFacts:
    """What every handler may ask of its journal."""

    __slots__ = ()
    _owner: Any

    @property
    def _journal(self) -> Journal:
        return cast("Journal", self._owner.journal)

    @property
    def is_replaying(self) -> bool:
        """Whether calls are answered from what an earlier run recorded. Not for decisions."""
        return self._journal.is_replaying

    @property
    def state(self) -> Any:
        """What the run shows of itself: `run.published()` reads it, whether the run sleeps, is
        held, has ended, or no worker is there.

            ctx.state = Progress(done=3, total=10)

        Any value that JSON can carry, up to 64 KiB. It becomes durable with the entries before it;
        of several set in a row only the last one may ever be seen. Reading gives what this run of
        the handler has set last, or None.
        """
        return self._journal.state

    @state.setter
    def state(self, value: Any) -> None:
        self._journal.publish(value, encoded_state(value))

    @property
    def random(self) -> Random:
        """Random numbers that are the same in every run of the handler, from the same place on; not
        secret."""
        journal = self._journal
        scope = own_scope("random", journal)
        if scope.random is None:
            scope.random = Random(journal.seed(scope))
        return scope.random

    def patched(self, change: str) -> bool:
        """Whether a change of the code applies to this run: True for new ones, False for those that
        had come further than this place when the code was changed; always the same for one run.

            if ctx.patched("fraud-check"):
                await check_fraud(order)
        """
        name = check_step_name(change, field="patched")
        if len(name.encode()) > limits.PATCH_BYTES:
            detail = f"patched: is longer than {limits.PATCH_BYTES} bytes"
            raise InvalidInput(detail, field="patched")
        journal = self._journal
        return journal.patched(own_scope("patched", journal), name)

    def removed(self, name: str) -> None:
        """Say that a step of this name was here and is gone. Only needed where the very next call
        has no entry yet: without it that one would look like the old one renamed."""
        checked = check_step_name(name, field="removed")
        journal = self._journal
        journal.removed(own_scope("removed", journal), checked)

    @property
    def should_continue(self) -> bool:
        """Whether the journal is long enough to go on with an empty one, by `continue_as_new`: it
        has 2,500 entries or 4 MiB."""
        return self._journal.should_continue

    def _next_chapter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What ends the chapter, once the arguments are checked."""
        journal, signature = self._journal, self._owner.task.signature
        scope = own_scope("continue_as_new", journal)
        try:
            arguments = signature.encode(signature.bind(args, kwargs))
        except InvalidInput as error:
            error.fields["field"] = error.fields.get("field") or "args"
            raise
        names = sorted(task.get_name() for task in journal.branches)
        if names or scope is not journal.root:
            running = ", ".join(names) or scope.path
            raise OpenBranches(f"continue_as_new: branches still run: {running}", branches=names)
        return self._owner.continue_as_new(arguments)

    def uuid(self) -> str:
        """A new UUID that is the same in every run of the handler; not secret."""
        journal = self._journal
        return journal.uuid(own_scope("uuid", journal))


class Journaling(JournalFacts):
    """The recorded calls of an async handler."""

    __slots__ = ()
    _family: Family

    @property
    def step(self) -> Stepper:
        """Run a function and record what it returned; another run of the handler gets that.

            page = await ctx.step("fetch", fetch, url)
            text = await ctx.step.options(effects=False, retries=3)("summarise", summarise, page)

        Everything recorded before is durable when the function begins, unless `effects=False` says
        that no other system can see what it does.
        """
        return Stepper(self._journal)

    @overload
    def transaction(
        self,
        name: str,
        pool: Any,
        function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[T]: ...
    @overload
    def transaction(
        self,
        name: str,
        pool: Any,
        function: Callable[Concatenate[Any, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[T]: ...

    def transaction(
        self, name: str, pool: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Awaitable[Any]:
        """Run a function in a transaction of your database, exactly once.

            await ctx.transaction("debit", pool, debit, account, 20)

        The function gets a connection as its first argument. The transaction is committed with the
        record that it was done: in the database of the store, with the entry of the journal; in any
        other, with a receipt (`ff db sql --receipts`). `pool`: an asyncpg or psycopg pool, a
        SQLAlchemy engine, or a function that returns a new connection.
        """
        stepper = Stepper(self._journal).options(transaction=pool)
        return stepper(name, function, *args, **kwargs)

    # As `asyncio.gather`: up to five are typed as a tuple, so that each keeps its type, and any
    # number of them as a list, which it is.
    @overload
    async def gather(self, one: Work[A], /) -> tuple[A]: ...
    @overload
    async def gather(self, one: Work[A], two: Work[B], /) -> tuple[A, B]: ...
    @overload
    async def gather(self, one: Work[A], two: Work[B], three: Work[C], /) -> tuple[A, B, C]: ...
    @overload
    async def gather(
        self, one: Work[A], two: Work[B], three: Work[C], four: Work[D], /
    ) -> tuple[A, B, C, D]: ...
    @overload
    async def gather(
        self, one: Work[A], two: Work[B], three: Work[C], four: Work[D], five: Work[E], /
    ) -> tuple[A, B, C, D, E]: ...
    @overload
    async def gather(
        self, *works: Work[T], return_exceptions: Literal[False] = False
    ) -> list[T]: ...
    @overload
    async def gather(self, *works: Child[T], return_exceptions: bool) -> list[T | ChildFailed]: ...
    @overload
    async def gather(self, *works: Work[T], return_exceptions: bool) -> list[T | Exception]: ...

    async def gather(self, *works: Any, return_exceptions: bool = False) -> Any:
        """The results of coroutines, calls of steps and children, in order.

            left, right = await ctx.gather(process(a), process(b))

        Each coroutine runs in a scope of its own, so its steps keep their places. It waits for all
        and then raises the failure that stands first. While a child has not ended the handler ends
        here; it is called again when all that are named have ended. A child that ended without a
        result raises `ChildFailed`. With `return_exceptions` errors stand in their place.
        """
        check_flag(return_exceptions, field="return_exceptions")
        several = await self._spawned(works)
        others = [work for work in several if not isinstance(work, Child)]
        outcomes = await gather(self._journal, others) if others else []
        return await self._with_children(several, outcomes, return_exceptions=return_exceptions)

    async def _spawned(self, works: tuple[Any, ...]) -> tuple[Any, ...]:
        """Calls of children as children, which are spawned together."""
        calls = [work.spawning for work in works if isinstance(work, ChildCall)]
        if not calls:
            return works
        try:
            children = iter(await asyncio.gather(*calls))
        except BaseException:
            close_unbegun(works)
            raise
        return tuple(next(children) if isinstance(work, ChildCall) else work for work in works)

    async def _with_children(
        self, works: tuple[Any, ...], outcomes: list[Any], *, return_exceptions: bool
    ) -> list[Any]:
        children = [work for work in works if isinstance(work, Child)]
        if not children:
            return told(self._journal, outcomes, return_exceptions=return_exceptions)
        told(self._journal, outcomes, return_exceptions=True)  # what ends the handler
        answers = await self._family.results(children)
        merged = _in_order(works, answers, outcomes)
        return told(self._journal, merged, return_exceptions=return_exceptions)

    async def first_of(
        self, *works: Any, successes: bool = False, losers: str = "leave"
    ) -> tuple[int, Any]:
        """The index and the result of the first that ends; a failure is raised.

            index, answer = await ctx.first_of(ask(model), ctx.sleep("30s"))

        Coroutines run in branches, as in `gather`; the others are cancelled, and their waits
        withdrawn. Which one was first is recorded, so that every run has the same winner.
        `successes`: the first that succeeds. Children that are not the first go on, or with
        `losers="cancel"` are cancelled, too.
        """
        return await raced(self._journal, self._family, works, successes, losers)

    def as_completed(self, **works: Any) -> AsyncGenerator[tuple[str, Completed[Any]], None]:
        """Each by its name as it ends.

            async for name, done in ctx.as_completed(left=fetch(a), right=fetch(b)):
                show(name, done.result())

        Coroutines run in branches, as in `gather`; `done.result()` raises what one raised. The
        order is recorded: every run of the handler gets the same. Leaving the loop cancels the
        others.
        """
        several = {
            name: self._family.result(each) if isinstance(each, Child) else each
            for name, each in works.items()
        }
        return as_completed(self._journal, several)

    async def map(
        self,
        function: Callable[[Any], Awaitable[T]],
        items: Iterable[Any],
        *,
        limit: int = AT_ONCE,
        return_exceptions: bool = False,
    ) -> list[T]:
        """The results of a step or an async function for each item, in order.

            pages = await ctx.map(fetch, urls, limit=8)

        At most `limit` run at once, each in a scope of its own. Failures as in `gather`.
        """
        check_flag(return_exceptions, field="return_exceptions")
        outcomes = await map_async(self._journal, function, items, limit)
        return told(self._journal, outcomes, return_exceptions=return_exceptions)

    def branch(self, name: str) -> Branch:
        """A scope for the calls of a task that the handler made itself.

        async def left() -> None:
            async with ctx.branch("left"):
                await fetch(url)
        """
        return Branch(self._journal, name)

    async def now(self) -> datetime:
        """The time by the store's clock, the same in every run of the handler."""
        return to_datetime(await self.value("now", self._owner.now_ms))

    async def value(self, name: str, function: Callable[[], Any]) -> Any:
        """What a function without arguments returns, recorded: for a choice that another run must
        not make anew. It runs at once, so it must be quick."""
        return await prepared(self._journal, plan_of_value(name, function), (), {})

    async def flush(self) -> None:
        """Return when everything recorded so far is durable."""
        await self._journal.outbox.flush()

    async def continue_as_new(self, *args: Any, **kwargs: Any) -> NoReturn:
        """End here, and let this execution begin anew with other arguments and an empty journal.

            if ctx.should_continue:
                await ctx.continue_as_new(order, total)

        Its id, key and tags stay; counts of retries begin anew. Refused while branches or children
        of it run.
        """
        await self._next_chapter(args, kwargs)
        raise Suspension(self._owner.claimed.execution_id)


class SyncJournaling(JournalFacts):
    """The recorded calls of a sync handler: the same, blocking its thread."""

    __slots__ = ()
    _family: Family

    @property
    def step(self) -> SyncStepper:
        """Run a function and record what it returned: see `Context.step`."""
        return SyncStepper(self._journal)

    @overload
    def transaction(
        self,
        name: str,
        pool: Any,
        function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T: ...
    @overload
    def transaction(
        self,
        name: str,
        pool: Any,
        function: Callable[Concatenate[Any, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T: ...

    def transaction(
        self, name: str, pool: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a function in a transaction of your database: see `Context.transaction`."""
        stepper = SyncStepper(self._journal).options(transaction=pool)
        return stepper(name, function, *args, **kwargs)

    @overload
    def gather(self, one: Work[A], /) -> tuple[A]: ...
    @overload
    def gather(self, one: Work[A], two: Work[B], /) -> tuple[A, B]: ...
    @overload
    def gather(self, one: Work[A], two: Work[B], three: Work[C], /) -> tuple[A, B, C]: ...
    @overload
    def gather(
        self, one: Work[A], two: Work[B], three: Work[C], four: Work[D], /
    ) -> tuple[A, B, C, D]: ...
    @overload
    def gather(
        self, one: Work[A], two: Work[B], three: Work[C], four: Work[D], five: Work[E], /
    ) -> tuple[A, B, C, D, E]: ...
    @overload
    def gather(self, *works: Work[T], return_exceptions: Literal[False] = False) -> list[T]: ...
    @overload
    def gather(self, *works: Child[T], return_exceptions: bool) -> list[T | ChildFailed]: ...
    @overload
    def gather(self, *works: Work[T], return_exceptions: bool) -> list[T | Exception]: ...

    def gather(self, *works: Any, return_exceptions: bool = False) -> Any:
        """The results of children and of calls made by `later`: see `Context.gather`."""
        check_flag(return_exceptions, field="return_exceptions")
        others = [work for work in works if not isinstance(work, Child)]
        outcomes = gather_blocking(self._journal, others) if others else []
        children = [work for work in works if isinstance(work, Child)]
        if not children:
            return told(self._journal, outcomes, return_exceptions=return_exceptions)
        told(self._journal, outcomes, return_exceptions=True)
        answers = self._owner.wait_for(self._family.results(children))
        merged = _in_order(works, answers, outcomes)
        return told(self._journal, merged, return_exceptions=return_exceptions)

    def map(
        self,
        function: Callable[[Any], T],
        items: Iterable[Any],
        *,
        limit: int = AT_ONCE,
        return_exceptions: bool = False,
    ) -> list[T]:
        """The results of a function for each item, in threads: see `Context.map`."""
        check_flag(return_exceptions, field="return_exceptions")
        outcomes = map_blocking(self._journal, function, items, limit)
        return told(self._journal, outcomes, return_exceptions=return_exceptions)

    def now(self) -> datetime:
        """The time by the store's clock, the same in every run: see `Context.now`."""
        return to_datetime(self.value("now", self._owner.now_ms))

    def value(self, name: str, function: Callable[[], Any]) -> Any:
        """What a function returns, recorded: see `Context.value`."""
        return prepared(self._journal, plan_of_value(name, function), (), {}).blocking()

    def flush(self) -> None:
        """Return when everything recorded so far is durable."""
        self._owner.wait_for(self._journal.outbox.flush())

    def continue_as_new(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Begin anew with other arguments and an empty journal: see `Context.continue_as_new`."""
        self._owner.wait_for(self._next_chapter(args, kwargs))
        raise Suspension(self._owner.claimed.execution_id)


def _in_order(works: Iterable[Any], children: list[Any], others: list[Any]) -> list[Any]:
    """The answers of children and of everything else, each at its place."""
    answers, rest = iter(children), iter(others)
    return [next(answers) if isinstance(work, Child) else next(rest) for work in works]
