"""Children: executions that a handler spawns, to gather their results.

A handler that waits for children ends and is called again from the top, like one that suspends.
Each spawn has its number in the run of the handler, and the number is part of the child's key: the
second call finds the child of the first instead of making another one. So does a retry, and a
worker that takes over after a crash; only an operator's replay begins with new children.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import (
    Any,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
)

from flowfabric.api.executions import NewExecution
from flowfabric.errors import IdempotencyConflict, InvalidInput, NotFound
from flowfabric.model.checks import check_list
from flowfabric.model.policy import DEFAULT_POLICY, ExecutionPolicy
from flowfabric.model.record import replace
from flowfabric.model.results import Outcome
from flowfabric.model.shown import shown
from flowfabric.model.state import PublicState
from flowfabric.sdk.context.spending import Asker
from flowfabric.sdk.errors import ChildFailed, SpawnMismatch, Suspension
from flowfabric.sdk.run import error_of, read_result
from flowfabric.sdk.task import Call, Task, TaskWithOptions

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")

_REMEMBERED_MS: Final = 400 * 86_400_000  # longer than any wait for a child
_AT_ONCE: Final = 1_000  # children of one call to the engine


class Parent(Asker, Protocol):
    """An owner that may wait for children."""

    @property
    def chapter_index(self) -> int:
        """Which part of its journal the handler is in."""
        ...

    async def wait_children(self) -> None:
        """Release the lease until every child has ended; nothing done afterwards counts."""
        ...


class Child(Generic[R]):
    """One execution that this handler spawned. `ctx.gather` gives its result."""

    __slots__ = ("id", "kind", "task")

    def __init__(self, execution_id: str, kind: str, task: Task[..., R] | None) -> None:
        self.id = execution_id
        self.kind = kind
        self.task = task

    def __repr__(self) -> str:
        return f"Child({self.id!r})"


class Family:
    """The children of one run of a handler."""

    __slots__ = ("_life", "_owner", "_spawned")

    def __init__(self, owner: Parent) -> None:
        self._owner = owner
        self._spawned = 0
        self._life: int | None = None  # the journal of the parent: a fresh replay has another one

    def number(self, calls: Sequence[Call[Any]]) -> list[tuple[int, Call[Any]]]:
        """Number each call at once: code that runs in between must not change the order."""
        first = self._spawned
        self._spawned += len(calls)
        return list(enumerate(calls, start=first))

    async def spawn(self, numbered: Sequence[tuple[int, Call[Any]]]) -> list[Child[Any]]:
        """Record children, or find those an earlier run of the handler recorded."""
        await self._owner.settle()
        life = await self._journal_index()
        requests = [(at, self._request(call, life, at)) for at, call in numbered]
        ids: list[str] = []
        for start in range(0, len(requests), _AT_ONCE):
            ids += await self._record(requests[start : start + _AT_ONCE])
        return [
            Child(execution_id, call.kind, call.task)
            for execution_id, (_, call) in zip(ids, numbered, strict=True)
        ]

    async def _journal_index(self) -> int:
        if self._life is None:
            key = self._owner.claimed.execution_id
            found = await self._owner.ask(lambda e: e.describe_execution(execution_id=key))
            if found is None:
                raise NotFound(f"execution {key}", entity="execution")
            self._life = found.journal_index
        return self._life

    def _request(self, call: Call[Any], life: int, at: int) -> NewExecution:
        for name in ("key", "connection"):
            if getattr(call.options, name) is not None:
                detail = f"{call.kind}: {name}= is not for children; each has a key of its own"
                raise InvalidInput(detail, field=name)
        request = call.request()
        policy = cast("ExecutionPolicy", request.policy or DEFAULT_POLICY)
        claimed = self._owner.claimed
        return replace(
            request,
            namespace=claimed.namespace,
            idempotency_key=f"child:{claimed.execution_id}:{self._chapter(life)}:{at}",
            policy=replace(policy, dedup_window_ms=_REMEMBERED_MS),
        )

    def _chapter(self, life: int) -> str:
        """Which part of which journal: children of another chapter are others."""
        chapter = self._owner.chapter_index
        return f"{life}.{chapter}" if chapter else str(life)

    async def _record(self, requests: Sequence[tuple[int, NewExecution]]) -> list[str]:
        handle = self._owner.claimed.handle
        children = [request for _, request in requests]
        try:
            spawned = await self._owner.ask(lambda e: e.spawn_children(handle, children))
        except IdempotencyConflict as error:
            if len(requests) > 1:  # one by one, to know which of them differs
                alone = [self._record([each]) for each in requests]
                return [found for (found,) in await asyncio.gather(*alone)]
            ((at, request),) = requests
            return [await self._same(at, request, str(error.fields.get("execution_id", "")))]
        return list(spawned.execution_ids)

    async def _same(self, at: int, request: NewExecution, known_id: str) -> str:
        """The child of an earlier run, if it does the same: its options may have changed since."""
        known = await self._owner.ask(lambda e: e.read_execution_context(execution_id=known_id))
        before = (known.execution_kind, known.input_payload)
        if before == (request.execution_kind, request.input_payload):
            return known_id
        was = known.execution_kind
        if was == request.execution_kind:
            was = "the same with other arguments"
        detail = f"spawn number {at + 1} is {request.execution_kind} now, and before it was {was}"
        raise SpawnMismatch(detail, execution_id=known_id, number=at + 1)

    async def gather(self, children: Sequence[Child[Any]]) -> list[Any]:
        """The results in order, or how a child ended without one; while one has not ended the
        parent waits without a worker."""
        ids = list(dict.fromkeys(child.id for child in children))
        if not ids:
            return []
        outcomes = await self._owner.ask(lambda e: e.read_outcomes(execution_ids=ids))
        if len(outcomes) < len(ids):
            await self._owner.wait_children()
            raise Suspension(self._owner.claimed.execution_id)
        return [_answer(child, outcomes[child.id]) for child in children]


def _answer(child: Child[Any], outcome: Outcome) -> Any:
    ended = outcome.ended
    if ended.public_state is PublicState.COMPLETED:
        return read_result(child.task, child.id, outcome.result)
    error = error_of(ended)
    return ChildFailed(error.detail, **error.fields, state=ended.public_state.value)


def calls_of(task: Any, items: Iterable[Any]) -> list[Call[Any]]:
    """A call for each item: a tuple of positional arguments, or a single one that is no tuple."""
    given = check_list(items, field="items")
    return [call_of(task, item if isinstance(item, tuple) else (item,), {}) for item in given]


def call_of(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[Any]:
    """The task with its arguments, checked."""
    bind: Callable[..., Call[Any]] | None = getattr(task, "call", None)
    if bind is None or isinstance(task, str):
        detail = f"spawn: {shown(task, 80)} is not a task; for options write task.options(…)"
        raise InvalidInput(detail, field="task")
    return bind(*args, **kwargs)


class Spawning:
    """The calls of an async handler for children."""

    __slots__ = ()
    _family: Family

    async def spawn(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Child[R]:
        """Record a child: an execution of its own that is cancelled with its parent.

            pages = [await ctx.spawn(fetch, url) for url in urls]
            texts = await ctx.gather(*pages)

        Called again, the handler gets the same children: it must spawn the same in the same order.
        Options go with the task: `ctx.spawn(fetch.options(priority=5), url)`.
        """
        numbered = self._family.number([call_of(task, args, kwargs)])
        return (await self._family.spawn(numbered))[0]

    async def call(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Spawn a child and wait for its result, without a worker: `await ctx.call(fetch, url)`.

        A child that ended without one raises `ChildFailed`.
        """
        child = await self.spawn(task, *args, **kwargs)
        (answer,) = await self._family.gather([child])
        if isinstance(answer, ChildFailed):
            raise answer
        return cast("R", answer)

    async def spawn_many(
        self, task: Task[..., R] | TaskWithOptions[..., R], items: Iterable[Any], /
    ) -> list[Child[R]]:
        """A child for each item, recorded together: a tuple of arguments, or a single one."""
        numbered = self._family.number(calls_of(task, items))
        return await self._family.spawn(numbered) if numbered else []


class SyncSpawning:
    """The calls of a sync handler for children: the same, blocking its thread."""

    __slots__ = ()
    _family: Family
    _owner: Any

    def spawn(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Child[R]:
        """Record a child: see `Context.spawn`."""
        numbered = self._family.number([call_of(task, args, kwargs)])
        children: list[Child[Any]] = self._owner.wait_for(self._family.spawn(numbered))
        return children[0]

    def call(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Spawn a child and wait for its result: see `Context.call`."""
        child = self.spawn(task, *args, **kwargs)
        (answer,) = self._owner.wait_for(self._family.gather([child]))
        if isinstance(answer, ChildFailed):
            raise answer
        return cast("R", answer)

    def spawn_many(
        self, task: Task[..., R] | TaskWithOptions[..., R], items: Iterable[Any], /
    ) -> list[Child[R]]:
        """A child for each item: see `Context.spawn_many`."""
        numbered = self._family.number(calls_of(task, items))
        if not numbered:
            return []
        children: list[Child[Any]] = self._owner.wait_for(self._family.spawn(numbered))
        return children
