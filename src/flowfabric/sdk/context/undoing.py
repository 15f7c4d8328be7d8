"""Undo: what a handler registers to be undone, and has undone itself."""

from __future__ import annotations

import hashlib
from collections.abc import Coroutine
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidInput
from flowfabric.kernel.journal.lookup import Asked
from flowfabric.model.journal import EntryKind, NewEntry
from flowfabric.model.policy import policy_from
from flowfabric.model.record import Record, replace, to_json
from flowfabric.sdk.context.children import call_of
from flowfabric.sdk.context.ends import Ends, Lost
from flowfabric.sdk.errors import ChildFailed
from flowfabric.sdk.journal.scopes import Scope, name_with, own_scope
from flowfabric.sdk.task import NOT_FOR_HOOKS, Call, Task, TaskWithOptions

P = ParamSpec("P")
R = TypeVar("R")

_DIGEST_BYTES: Final = 8
_IDS: Final[msgspec.json.Decoder[list[str]]] = msgspec.json.Decoder(list[str])


class _Asking(Record, frozen=True):
    """One call of the handler, at its place in the journal."""

    owner: Any
    key: str
    asked: Asked
    began_at: int

    def entry(self, kind: EntryKind, digest: bytes | None = None) -> NewEntry:
        """What is recorded of it."""
        return NewEntry(
            position=0,
            key=self.key,
            kind=kind,
            asked=self.asked.number,
            digest=digest,
            began_at=self.began_at,
        )


def register(
    owner: Any, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, None]:
    """Register a call; it takes its place among the calls of the handler at once."""
    call = call_of(task, args, kwargs)
    request = _request(call, owner.claimed.namespace)
    parts = [request.execution_kind, request.input_payload]
    digest = hashlib.blake2b(to_json(parts), digest_size=_DIGEST_BYTES).digest()
    asking, _ = _asking(owner, name_with("undo", call.kind), EntryKind.UNDO, digest)
    return _register(asking, request, digest)


def _asking(
    owner: Any, name: str, kind: EntryKind, digest: bytes | None = None
) -> tuple[_Asking, Scope]:
    scope = own_scope(name, owner.journal)
    key = scope.key(name).now
    asked = owner.journal.ask(scope, key, kind=kind, digest=digest)
    return _Asking(owner, key, asked, max(0, owner.now_ms())), scope


def _request(call: Call[Any], namespace: str) -> NewExecution:
    """The call as it is kept: without what only a submit may have."""
    for name in NOT_FOR_HOOKS:
        if getattr(call.options, name) is not None:
            raise InvalidInput(f"{call.kind}: {name}= is not for undos", field=name)
    request = call.hookless_request()
    if request.serial_key is not None:
        detail = f"{call.kind} is serial, and an undo joins no line"
        raise InvalidInput(detail, field="serial")
    policy, delay_ms = policy_from(request.policy), request.delay_ms
    if delay_ms is not None:
        policy = replace(policy, delay_ms=delay_ms)
    return replace(request, namespace=namespace, policy=policy, delay_ms=None)


async def _register(asking: _Asking, request: NewExecution, digest: bytes) -> None:
    if asking.asked.answer is not None:
        return
    owner = asking.owner
    entry = asking.entry(EntryKind.UNDO, digest)

    async def send(entries: tuple[NewEntry, ...]) -> object:
        handle = owner.claimed.handle
        # Entries that wait belong to other calls: none of them is of this kind.
        return await owner.ask(lambda e: e.register_undo(handle, [request], entries))

    await owner.journal.outbox.carry([entry], send)


def run(owner: Any) -> Coroutine[Any, Any, None]:
    """Have everything undone that is registered."""
    asking, scope = _asking(owner, "undo_now", EntryKind.UNDONE)
    return _run(asking, scope)


async def _run(asking: _Asking, scope: Scope) -> None:
    owner = asking.owner
    if (answer := asking.asked.answer) is not None:
        ids = _IDS.decode(answer.value or b"[]")
    else:

        async def send(entries: tuple[NewEntry, ...]) -> Any:
            return await owner.ask(lambda e: e.run_undo(owner.claimed.handle, entries))

        undone = await owner.journal.outbox.carry([asking.entry(EntryKind.UNDONE)], send)
        ids = list(undone.execution_ids)
    if not ids:
        return
    for each in await Ends(owner).call(scope, [(key, None) for key in ids]).answers():
        if isinstance(each, Lost):
            raise ChildFailed(each.detail, **each.fields)


class Undoing:
    """The calls of an async handler for undos."""

    __slots__ = ()
    _owner: Any

    def undo(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, None]:
        """Have this call made if the run ends otherwise than by success, however that comes: by a
        failure, a cancel, an expiry, or a worker that is lost for good.

            payment = await charge(amount)
            await ctx.undo(refund, payment)

        It is recorded as data. The end of the run creates what is registered as runs of their own,
        last registered first, one after the other. At most 100 are registered at once.
        """
        return register(self._owner, task, args, kwargs)

    def undo_now(self) -> Coroutine[Any, Any, None]:
        """Have everything undone that is registered, and wait for it without a worker.

        Nothing of it is left for the end of the run. Raises `ChildFailed` if one of the calls did
        not succeed. A retry begins from the top: what its journal tells of was undone.
        """
        return run(self._owner)


class SyncUndoing:
    """The calls of a sync handler for undos: the same, blocking its thread."""

    __slots__ = ()
    _owner: Any

    def undo(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Have this call made if the run does not succeed: see `Context.undo`."""
        self._owner.wait_for(register(self._owner, task, args, kwargs))

    def undo_now(self) -> None:
        """Have everything undone that is registered: see `Context.undo_now`."""
        self._owner.wait_for(run(self._owner))
