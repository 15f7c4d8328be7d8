"""The machine under every operation: one commit path, one way to read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from flowfabric import ids
from flowfabric.config import EngineConfig
from flowfabric.engine.batch import Batcher, Pending
from flowfabric.engine.conflict import transact, until_no_conflict
from flowfabric.engine.view import Effects, View
from flowfabric.engine.wakeups import DUE_TOPIC, Wakeups, end_topic, lane_topic
from flowfabric.errors import HandleFromOtherBackend, InvalidInput
from flowfabric.kernel.claim import Claim, NewIds, claim
from flowfabric.kernel.create import CreateExecution
from flowfabric.kernel.decision import Moment
from flowfabric.kernel.routing import matching_routes
from flowfabric.kernel.wake import Wake
from flowfabric.model.checks import check_execution_id, check_name
from flowfabric.model.execution import Body
from flowfabric.model.handle import Handle
from flowfabric.model.record import Record, replace
from flowfabric.model.results import Claimed
from flowfabric.model.route import Catalog, Route
from flowfabric.stores.base import Reader, Store, Transaction

T = TypeVar("T")

COMPLETIONS_HINTED_MAX = 50  # above that a hint says only that some executions ended


class WakeDue(Record, frozen=True):
    """Move everything whose due time has come, up to a limit."""

    limit: int


def with_body(reply: Claimed, body: Body) -> Claimed:
    """A claim's answer with the input the worker needs."""
    return replace(
        reply,
        payload=body.payload,
        payload_encoding=body.payload_encoding,
        idempotency_key=body.idempotency_key,
    )


def _route_order(route: Route) -> tuple[str, str, str, tuple[str, ...]]:
    return (route.lane_id, route.namespace, route.execution_kind, route.required_capabilities)


class EngineCore:
    """Holds the store, the batches and the wake-ups; families of operations build on it."""

    def __init__(self, store: Store, config: EngineConfig) -> None:
        self.store = store
        self.config = config
        self.wakeups = Wakeups()
        self.next_look_at = 0  # until when the background loop sleeps; 0: nobody sleeps
        in_flight = config.batches_in_flight if store.family == "postgres" else 1
        self.batches = Batcher(self._commit, batch_max=config.batch_max, in_flight=in_flight)
        self._known_routes: set[Route] = set()
        self._forget_hints = store.hints.subscribe(self.wakeups.wake)

    # --- writing -------------------------------------------------------------------------------

    async def execute(self, command: Any) -> Any:
        """The reply to one command, sharing a commit with whoever else waits."""
        return await self.batches.run_one(command)

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """A transaction of its own."""
        return await transact(self.store, work)

    async def ensure_routes(self, commands: Iterable[CreateExecution]) -> None:
        """Routes must be known before executions refer to them."""
        new = {command.route for command in commands} - self._known_routes
        if new:
            ordered = sorted(new, key=_route_order)  # rivals insert in one order
            await until_no_conflict(lambda: self.store.intern_routes(ordered))
            self._known_routes |= new

    def moment(self, now: int) -> Moment:
        """The present, with the settings in force."""
        return Moment(now, self.config.retention_ms, self.config.reclaim_grace_ms)

    async def _commit(self, batch: Sequence[Pending]) -> None:
        """Fold a batch in one transaction; replies are set only when it has committed."""

        async def work(tx: Transaction) -> tuple[list[Any], Effects]:
            return await self.fold(tx, [pending.command for pending in batch])

        replies, effects = await self.transact(work)
        for pending, reply in zip(batch, replies, strict=True):
            pending.reply = reply
        self.publish(effects)

    async def fold(self, tx: Transaction, commands: Sequence[Any]) -> tuple[list[Any], Effects]:
        """Apply commands in order over one evolving view and save the outcome."""
        view = await self._load(tx, commands)
        replies: list[Any] = []
        for command in commands:
            if type(command) is Claim:
                replies.append(await self._claim(tx, view, command))
            elif type(command) is WakeDue:
                replies.append(await self._due(tx, view, command))
            else:
                replies.append(view.decide(command))
        if changes := view.take_changes():
            await tx.save(changes)
        return replies, view.effects

    async def _load(self, tx: Transaction, commands: Sequence[Any]) -> View:
        """Everything the commands name, in one trip per kind and in one lock order."""
        catalog: Catalog | None = None
        wanted: set[str] = set()
        keys: set[tuple[str, str]] = set()
        needs_catalog = False
        for command in commands:
            kind = type(command)
            if kind is CreateExecution:
                needs_catalog = True
                if command.idempotency_key is not None:
                    keys.add((command.route.namespace, command.idempotency_key))
                    wanted.add(command.execution_id)
            elif kind is Claim or kind is WakeDue:
                needs_catalog = True
            else:
                wanted.add(command.execution_id)
        if needs_catalog:
            catalog = await tx.catalog()
        executions = await tx.load(tuple(wanted)) if wanted else {}  # the store orders its locks
        known = await tx.load_keys(sorted(keys)) if keys else {}
        view = View(self.moment(tx.now), catalog)
        view.executions.update(executions)
        view.keys.update(known)
        return view

    async def _claim(self, tx: Transaction, view: View, command: Claim) -> list[Claimed]:
        """The one claim path: matching routes, best candidates, leases, bodies."""
        routes = matching_routes(command.offer, view.catalog or await tx.catalog())
        if not routes:
            return []
        if changes := view.take_changes():
            await tx.save(changes)  # the search must see what this batch has decided
        claimed: list[Claimed] = []
        candidates = await tx.ready(routes, command.limit)
        if not candidates:
            return claimed
        fresh = iter(ids.new_secret_ids(2 * len(candidates)))
        for execution, body in candidates:
            decision = claim(execution, command, NewIds(next(fresh), next(fresh)), view.at)
            reply = view.apply(execution, command, decision)
            if reply is not None:
                claimed.append(with_body(reply, body))
        return claimed

    async def _due(self, tx: Transaction, view: View, search: WakeDue) -> int:
        """Do what is due, for every execution whose time has come; how many were moved."""
        if changes := view.take_changes():
            await tx.save(changes)
        moved = 0
        for execution in await tx.due(view.at.now, search.limit):
            key = execution.execution_id
            view.executions[key] = execution
            # A lapsed lease may be due for reclaim at once, so look again until nothing is due.
            while view.decide(Wake(key, ids.jitter())).what != "unchanged":
                moved += 1
        return moved

    def publish(self, effects: Effects) -> None:
        """Wake whoever may be waiting for what committed."""
        if effects.due_at is not None and effects.due_at < self.next_look_at:
            self.next_look_at = effects.due_at
            self.wakeups.wake({DUE_TOPIC: 1})
        topics = {lane_topic(lane): count for lane, count in effects.woken.items()}
        if len(effects.ended) > COMPLETIONS_HINTED_MAX:
            topics["done:*"] = 1
        else:
            topics.update(dict.fromkeys(map(end_topic, effects.ended), 1_000_000))
        if topics:
            self.store.hints.publish(topics)

    # --- reading -------------------------------------------------------------------------------

    async def read(self, work: Callable[[Reader], Awaitable[T]]) -> T:
        """Reads outside any transaction."""
        return await self.store.read(work)

    # --- checks every family uses --------------------------------------------------------------

    def check_id(self, execution_id: object) -> str:
        """A well-formed execution id of this installation."""
        return check_execution_id(execution_id, partitions=self.store.partitions)

    def check_handle(self, handle: object) -> Handle:
        """A handle that this kind of store issued."""
        if isinstance(handle, bytes):
            handle = Handle.decode(handle)
        if not isinstance(handle, Handle):
            raise InvalidInput(
                f"handle: expected a Handle, got {type(handle).__name__}", field="handle"
            )
        if handle.backend != self.store.family:
            raise HandleFromOtherBackend(
                f"handle: expected={self.store.family} actual={handle.backend}", field="handle"
            )
        self.check_id(handle.execution_id)
        check_name(handle.lease_id, field="handle.lease_id")
        check_name(handle.attempt_id, field="handle.attempt_id")
        return handle

    def namespace(self, namespace: str | None) -> str:
        """The tenant of a call."""
        if namespace is None:
            return self.config.namespace
        return check_name(namespace, field="namespace")

    async def close_core(self) -> None:
        """Finish what is in flight."""
        await self.batches.idle()
        self._forget_hints()
        await asyncio.sleep(0)
