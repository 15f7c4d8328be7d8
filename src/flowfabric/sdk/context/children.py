"""Children: executions that a handler spawns, to gather their results.

Children are recorded with the journal entry of their spawn, in one transaction: another run of the
handler finds them there and spawns none again. Each has a key, too, made of its place in the
handler, so that a spawn whose reply was lost can be repeated. A fresh replay begins with new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import (
    Any,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
)

import msgspec

from flowfabric.api.backend import EngineBackend
from flowfabric.api.executions import NewExecution
from flowfabric.errors import FlowFabricError, IdempotencyConflict, InvalidInput
from flowfabric.ids import derived_uuid
from flowfabric.kernel.journal.lookup import Asked
from flowfabric.model.checks import check_list
from flowfabric.model.flow_results import Spawned
from flowfabric.model.journal import EntryKind, NewEntry
from flowfabric.model.policy import DEFAULT_POLICY, ExecutionPolicy
from flowfabric.model.record import replace, to_json
from flowfabric.model.shown import shown
from flowfabric.sdk.context.asker import Asker
from flowfabric.sdk.context.ends import Ends, EndsCall, Lost
from flowfabric.sdk.errors import ChildFailed, SpawnMismatch
from flowfabric.sdk.journal.scopes import name_with, own_scope
from flowfabric.sdk.journal.together import Together, digest_of
from flowfabric.sdk.task import Call, Task, TaskWithOptions
from flowfabric.tracing.spans import submitted_by

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")

_REMEMBERED_MS: Final = 400 * 86_400_000  # longer than any wait for a child
_AT_ONCE: Final = 1_000  # children of one call to the engine
_IDS: Final[msgspec.json.Decoder[list[str]]] = msgspec.json.Decoder(list[str])


class Parent(Asker, Protocol):
    """An owner that may wait for children."""

    @property
    def journal_index(self) -> int:
        """Which journal it has: a fresh replay begins the next one."""
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


class ChildCall(Generic[R]):
    """A child that is spawned, and waited for, when the call is awaited. `ctx.gather` waits for
    several of them together."""

    __slots__ = ("_family", "spawning")

    def __init__(self, family: Family, spawning: Coroutine[Any, Any, Child[R]]) -> None:
        self._family = family
        self.spawning = spawning

    def __await__(self) -> Generator[Any, Any, R]:
        return self._called().__await__()

    async def _called(self) -> R:
        return await self._family.result(await self.spawning)


@dataclass(slots=True, eq=False)
class Spawn:
    """One spawn of a handler, as it stands in the journal."""

    key: str
    asked: Asked
    digest: bytes
    requests: list[NewExecution]
    first: int  # the number of its first child, as spawns of this handler count


class Family:
    """The children of one run of a handler."""

    __slots__ = ("_owner", "_spawned", "_together", "ends")

    def __init__(self, owner: Parent) -> None:
        self._owner = owner
        self._spawned = 0
        self._together: Together[Spawn, str] = Together(self._record, at_once=_AT_ONCE)
        self.ends = Ends(owner)

    def place(self, calls: Sequence[Call[Any]]) -> list[Spawn]:
        """Take a place among the calls of the handler at once: what runs in between must not change
        the order."""
        journal = self._owner.journal
        scope = own_scope("spawn", journal)
        spawns = []
        for start in range(0, len(calls), _AT_ONCE):
            part = calls[start : start + _AT_ONCE]
            requests = [_checked(call) for call in part]
            digest = digest_of(requests)
            key = scope.key(name_with("spawn", part[0].kind)).now
            asked = journal.ask(
                scope,
                key,
                kind=EntryKind.SPAWN,
                digest=digest,
                is_aside=not journal.numbers_spawns,
            )
            first = self._spawned
            names = [derived_uuid(key, at) for at in range(len(part))]
            if scope is journal.root:  # as all releases have counted them; branches take turns
                self._spawned += len(part)
                names = [str(first + at) for at in range(len(part))]
            keyed = list(map(self._keyed, requests, names))
            if asked.answer is None:
                keyed = list(submitted_by(keyed, self._owner.claimed))
            spawns.append(Spawn(key, asked, digest, keyed, first))
        return spawns

    def _keyed(self, request: NewExecution, name: str) -> NewExecution:
        owner = self._owner
        claimed, chapter = owner.claimed, owner.journal.chapter_index
        policy = cast("ExecutionPolicy", request.policy or DEFAULT_POLICY)
        part = f"{chapter}." if chapter else ""
        key = f"child:{claimed.execution_id}:{owner.journal_index}:{part}{name}"
        return replace(
            request,
            namespace=claimed.namespace,
            idempotency_key=key,
            policy=replace(policy, dedup_window_ms=_REMEMBERED_MS),
        )

    async def spawn(self, spawns: Sequence[Spawn]) -> list[str]:
        """Record children, or find those that an earlier run of the handler recorded."""
        told = [
            None if each.asked.answer is not None else self._together.put(each) for each in spawns
        ]
        ids: list[str] = []
        # Recorded children of a fork belong to the execution whose journal was copied.
        is_fork = self._owner.claimed.forked_from is not None
        for each, recorded in zip(spawns, told, strict=True):
            found = _recorded(each) if recorded is None else list(await recorded)
            self.ends.know(found, is_own=recorded is not None or not is_fork)
            ids += found
        return ids

    async def _record(self, part: Sequence[Spawn]) -> list[str]:
        owner = self._owner
        began_at = max(0, owner.journal.owner.now_ms())
        entries = [
            NewEntry(
                position=0,
                key=each.key,
                kind=EntryKind.SPAWN,
                asked=each.asked.number,
                value=str(len(each.requests)).encode(),
                digest=each.digest,
                began_at=began_at,
            )
            for each in part
        ]
        children = [request for each in part for request in each.requests]
        try:
            spawned = await owner.journal.outbox.carry(entries, partial(self._ask, children))
        except IdempotencyConflict:
            return await self._found_before(part)
        return list(spawned.execution_ids)

    async def _ask(
        self, children: Sequence[NewExecution], entries: tuple[NewEntry, ...] = ()
    ) -> Spawned:
        handle = self._owner.claimed.handle
        return await self._owner.ask(lambda e: e.spawn_children(handle, children, entries=entries))

    # --- children that an earlier release spawned, and did not record ----------------------------

    async def _found_before(self, part: Sequence[Spawn]) -> list[str]:
        """One by one: a child that was spawned with other options is the same one."""
        ids: list[str] = []
        for each in part:
            own = [
                await self._alone(each.first + at, request)
                for at, request in enumerate(each.requests)
            ]
            self._owner.journal.add(
                each.key,
                each.asked.number,
                kind=EntryKind.SPAWN,
                digest=each.digest,
                value=to_json(own),
            )
            ids += own
        return ids

    async def _alone(self, at: int, request: NewExecution) -> str:
        try:
            return (await self._ask([request])).execution_ids[0]
        except IdempotencyConflict as error:
            return await self._same(at, request, str(error.fields.get("execution_id", "")))

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

    # --- results ---------------------------------------------------------------------------------

    def results(self, children: Sequence[Child[Any]]) -> Coroutine[Any, Any, list[Any]]:
        """The results in order, or how a child ended without one; while one has not ended the
        parent waits without a worker. Called in the thread of the handler."""
        scope = own_scope("gather", self._owner.journal)
        call = self.ends.call(scope, [(child.id, child.task) for child in children])
        return _answers(call)

    async def result(self, child: Child[R]) -> R:
        """The result of one child, in a branch of its own."""
        (answer,) = await self.results([child])
        if isinstance(answer, ChildFailed):
            raise answer
        return cast("R", answer)

    async def cancel_open(self, children: Sequence[Child[Any]]) -> None:
        """Cancel children that have not ended. One that has is left as it is."""
        for child in children:
            if not self.ends.is_over(child.id):
                cancel = partial(_cancel, child.id)
                with suppress(FlowFabricError):
                    await self._owner.ask(cancel)


async def _cancel(execution_id: str, engine: EngineBackend) -> object:
    return await engine.cancel_execution(
        execution_id=execution_id, reason="another one was first", source="operator_override"
    )


async def _answers(call: EndsCall) -> list[Any]:
    return [
        ChildFailed(each.detail, **each.fields) if isinstance(each, Lost) else each
        for each in await call.answers()
    ]


def _recorded(spawn: Spawn) -> list[str]:
    entry = spawn.asked.answer
    return [] if entry is None else _IDS.decode(entry.value or b"[]")


def _checked(call: Call[Any]) -> NewExecution:
    for name in ("key", "connection"):
        if getattr(call.options, name) is not None:
            detail = f"{call.kind}: {name}= is not for children; each has a key of its own"
            raise InvalidInput(detail, field=name)
    return call.request()


def calls_of(task: Any, items: Iterable[Any]) -> list[Call[Any]]:
    """A call for each item: a tuple of positional arguments, or a single one that is no tuple."""
    given = check_list(items, field="items")
    return [call_of(task, item if isinstance(item, tuple) else (item,), {}) for item in given]


def call_of(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[Any]:
    """The task with its arguments, checked."""
    bind: Callable[..., Call[Any]] | None = getattr(task, "call", None)
    if bind is None or isinstance(task, str):
        detail = f"task: {shown(task, 80)} is not a task; for options write task.options(…)"
        raise InvalidInput(detail, field="task")
    return bind(*args, **kwargs)


class Spawning:
    """The calls of an async handler for children."""

    __slots__ = ()
    _family: Family

    def spawn(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Child[R]]:
        """Record a child: an execution of its own that is cancelled with its parent.

            pages = [await ctx.spawn(fetch, url) for url in urls]
            texts = await ctx.gather(*pages)

        Another run of the handler gets the same children. Options go with the task:
        `ctx.spawn(fetch.options(priority=5), url)`.
        """
        call = call_of(task, args, kwargs)
        return _one(self._family, call, self._family.place([call]))

    def call(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ChildCall[R]:
        """Spawn a child and wait for its result, without a worker: `await ctx.call(fetch, url)`.

        A child that ended without one raises `ChildFailed`. Several are called at once by
        `await ctx.gather(ctx.call(fetch, a), ctx.call(fetch, b))`.
        """
        return ChildCall(self._family, self.spawn(task, *args, **kwargs))

    def spawn_many(
        self, task: Task[..., R] | TaskWithOptions[..., R], items: Iterable[Any], /
    ) -> Coroutine[Any, Any, list[Child[R]]]:
        """A child for each item, recorded together: a tuple of arguments, or a single one."""
        calls = calls_of(task, items)
        return _many(self._family, calls, self._family.place(calls))


async def _one(family: Family, call: Call[R], spawns: Sequence[Spawn]) -> Child[R]:
    return (await _many(family, [call], spawns))[0]


async def _many(
    family: Family, calls: Sequence[Call[Any]], spawns: Sequence[Spawn]
) -> list[Child[Any]]:
    ids = await family.spawn(spawns)
    return [Child(each, call.kind, call.task) for each, call in zip(ids, calls, strict=True)]


class SyncSpawning:
    """The calls of a sync handler for children: the same, blocking its thread."""

    __slots__ = ()
    _family: Family
    _owner: Any

    def spawn(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Child[R]:
        """Record a child: see `Context.spawn`."""
        call = call_of(task, args, kwargs)
        spawns = self._family.place([call])
        child: Child[R] = self._owner.wait_for(_one(self._family, call, spawns))
        return child

    def call(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Spawn a child and wait for its result: see `Context.call`."""
        child = self.spawn(task, *args, **kwargs)
        (answer,) = self._owner.wait_for(self._family.results([child]))
        if isinstance(answer, ChildFailed):
            raise answer
        return cast("R", answer)

    def spawn_many(
        self, task: Task[..., R] | TaskWithOptions[..., R], items: Iterable[Any], /
    ) -> list[Child[R]]:
        """A child for each item: see `Context.spawn_many`."""
        calls = calls_of(task, items)
        spawns = self._family.place(calls)
        children: list[Child[Any]] = self._owner.wait_for(_many(self._family, calls, spawns))
        return children
