"""The machine under every operation: one commit path, one way to read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar, cast

from flowfabric.api.hints import end_topic, flow_topic, lane_topic, stream_topic, worker_topic
from flowfabric.config import EngineConfig
from flowfabric.engine.acts import Act, act_now, settle
from flowfabric.engine.batch import Batcher, Pending
from flowfabric.engine.complaint import Complaints, Reminders
from flowfabric.engine.conflict import transact, until_no_conflict
from flowfabric.engine.feed_watch import FeedWatch
from flowfabric.engine.here import WorkersHere
from flowfabric.engine.inherited import InheritedStore
from flowfabric.engine.known import Known
from flowfabric.engine.loop_status import BackgroundLoop
from flowfabric.engine.meter import READ, WRITE, EngineMeter
from flowfabric.engine.own_work import OwnWork
from flowfabric.engine.plans import Plans
from flowfabric.engine.tails import Tails
from flowfabric.engine.unit.due import Aside
from flowfabric.engine.unit.fold import fold
from flowfabric.engine.unit.unit import Unit, open_unit
from flowfabric.engine.unit.view import EVERY_WAITER, Effects, View
from flowfabric.engine.wakeups import DUE_TOPIC, Wakeups
from flowfabric.errors import HandleFromOtherBackend, InvalidInput
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.execution.routing import Offer
from flowfabric.kernel.limit.fairness import Credits
from flowfabric.kernel.place.tenants import LoopFilter
from flowfabric.model.attempt import Attempt
from flowfabric.model.checks import check_execution_id, check_name
from flowfabric.model.execution import Execution
from flowfabric.model.handle import Handle
from flowfabric.model.results import Outcome, snapshot_of
from flowfabric.model.state import TerminalOutcome
from flowfabric.model.successor import Hooks
from flowfabric.stores.base import (
    EVERY_END,
    EVERY_FLOW_END,
    Changes,
    Reader,
    Store,
    Transaction,
)
from flowfabric.stores.tables import AUDIT

T = TypeVar("T")

OFFERS_MAX = 1_000  # workers with remembered turns; beyond this all are forgotten
UUID_LENGTH = 36
COMPLETIONS_HINTED_MAX = 50  # above this a hint says only that some executions ended
_UNREAD = "schedules are overdue, and this process does not understand them: %s"


def _is_success(execution: Execution | None, attempt: Attempt) -> bool:
    """Whether the execution has succeeded, and by this attempt."""
    return (
        execution is not None
        and execution.state.terminal_outcome is TerminalOutcome.SUCCESS
        and execution.attempt_index == attempt.attempt_index
    )


def _is_minted(name: object) -> bool:
    """Whether a name has the form of our ids: such a one can be compared unchecked."""
    return type(name) is str and len(name) == UUID_LENGTH and name.isascii()


def raise_refusal(replies: Iterable[object]) -> None:
    """The first refusal among replies, as an error."""
    for reply in replies:
        if isinstance(reply, Refused):
            raise reply.to_error()


class Machine:
    """The store, the batches and the wake-ups, on which every operation builds."""

    def __init__(self, store: Store, config: EngineConfig) -> None:
        self.store = store
        self.config = config
        self.wakeups = Wakeups()
        self.workers_here = WorkersHere()
        self.next_look_at = 0  # until when the background loop sleeps; 0: it does not
        in_flight = config.batches_in_flight if store.commits_at_once else 1
        self.batches = Batcher(self._commit, batch_max=config.batch_max, in_flight=in_flight)
        self.loop: BackgroundLoop | None = None  # once started, and if it is to run one
        self.aside = Aside()
        self.own_work = OwnWork(LoopFilter(tuple(config.loop_namespaces), config.loop_tag))
        loops = logging.getLogger("flowfabric.loops")
        self.complaints = Complaints(loops)
        self.unread_schedules = Reminders(loops, _UNREAD)
        self.known = Known(store)
        self.plans = Plans(config, lambda: self.store.partitions)
        self.tails = Tails(self, self.wakeups, config.tails_max)
        self.meter: EngineMeter | None = None  # where it is asked to measure itself
        self._credits: dict[Offer, Credits] = {}
        self.feed = FeedWatch(lambda: self.read(lambda reader: reader.log_ends()))
        self._forget_hints = store.hints.subscribe(self._hear)

    def _hear(self, topics: Mapping[str, int]) -> None:
        """Hints of this process and of others."""
        self.wakeups.wake(topics)
        self.feed.hint()

    # --- writing -------------------------------------------------------------------------------

    async def execute(self, command: Command[T]) -> T:
        """The reply to one command, which shares a commit with other waiting commands."""
        return await self.batches.run_one(command)

    async def execute_together(
        self,
        commands: Sequence[Command[T]],
        check: Callable[[Sequence[object]], None] = raise_refusal,
    ) -> list[T]:
        """The replies to commands that belong together: if one is refused, none takes effect.

        `check` raises the refusal.
        """

        act = act_now()

        async def work(tx: Transaction) -> tuple[list[object], Effects]:
            replies, effects = await self.fold(tx, commands, acts=[act] * len(commands))
            check(replies)
            return replies, effects

        replies, effects = await self.transact(work)
        settle(act)
        self.publish(effects)
        return cast("list[T]", replies)

    async def execute_in(
        self,
        connection: object,
        commands: Sequence[Command[T]],
        creates: Sequence[CreateExecution],
        check: Callable[[Sequence[object]], None] = raise_refusal,
        *,
        of_flow: Hooks | None = None,
    ) -> list[T]:
        """The replies to commands decided inside the caller's own open Postgres transaction.

        `creates`: the executions among them, `of_flow`: the hooks of their flow. `check` raises a
        refusal, and then none takes effect.
        The server wakes waiting workers when, and only if, the caller commits.
        """

        async def work(tx: Transaction) -> tuple[list[object], dict[str, int]]:
            # Not before: a store that refuses changes nothing.
            await self.known.ensure(creates, of_flow=of_flow)
            replies, effects = await self.fold(tx, commands)
            check(replies)
            return replies, {lane_topic(lane): count for lane, count in effects.woken.items()}

        return cast("list[T]", await self.store.join(connection, work))

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """A transaction of its own."""
        meter = self.meter
        if meter is None:
            return await transact(self.store, work)
        return await meter.timed(WRITE, lambda: transact(self.store, work, meter.collided))

    def moment(self, now: int) -> Moment:
        """The current time, with the settings in force."""
        config = self.config
        return Moment(
            now,
            config.retention_ms,
            config.reclaim_grace_ms,
            config.payload_bytes_max,
            self.workers_here.ids,
            config.failed_retention_ms,
            self.store.partitions,
        )

    async def _commit(self, batch: Sequence[Pending]) -> None:
        """Fold a batch in one transaction; replies are set only when it has committed."""

        tries = 0

        async def work(tx: Transaction) -> tuple[list[object], Effects, dict[str, Outcome]]:
            nonlocal tries
            tries += 1
            ends: dict[str, Outcome] = {}
            commands = [each.command for each in batch]
            acts = [each.act for each in batch]
            replies, effects = await self.fold(tx, commands, ends, is_again=tries > 1, acts=acts)
            return replies, effects, ends

        replies, effects, ends = await self.transact(work)
        for pending, reply in zip(batch, replies, strict=True):
            pending.reply = reply
            settle(pending.act)
        if self.meter is not None:
            self.meter.committed(batch)
        for execution_id, outcome in ends.items():
            self.wakeups.tell(end_topic(execution_id), outcome)
        self.publish(effects)

    async def fold(
        self,
        tx: Transaction,
        commands: Sequence[Command[object]],
        ends: dict[str, Outcome] | None = None,
        *,
        is_again: bool = True,
        acts: Sequence[Act | None] = (),
    ) -> tuple[list[object], Effects]:
        """Apply commands in order over one evolving view and save the outcome.

        `acts`: that each command is a part of: what was done is in the audit trail with it.

        Ends of awaited executions are noted in `ends`, for their waiters after the commit.
        `is_again`: rows that are mostly new are looked for first. The first try of a batch leaves
        it to their keys to collide.
        """
        unit = await self.open_unit(tx, commands, is_again=is_again)
        replies, view = await fold(unit, commands), unit.view
        if any(acts):
            self._audit(view, commands, acts, replies)
        if changes := view.take_changes():
            await tx.save(changes)
            if ends is not None:
                ends.update(self._awaited_ends(view, changes))
        return replies, view.effects

    def _audit(
        self,
        view: View,
        commands: Sequence[Command[object]],
        acts: Sequence[Act | None],
        replies: Sequence[object],
    ) -> None:
        """Add the row of each act that was not refused, once."""
        retention_ms, seen = self.config.audit_retention_ms, set()
        for turn, (command, act, reply) in enumerate(zip(commands, acts, replies, strict=True)):
            if act is None or id(act) in seen or isinstance(reply, Refused):
                continue
            row = act.row(view.told.get(turn), view.at.now, retention_ms, command.actor)
            if row is not None:
                seen.add(id(act))
                view.rows.add(AUDIT, [row])

    async def open_unit(
        self, tx: Transaction, commands: Sequence[Command[object]], *, is_again: bool = True
    ) -> Unit:
        """A unit of work with everything that commands need."""
        return await open_unit(
            tx, commands, self.moment, self._credits_of, plans=self.plans, is_again=is_again
        )

    def _awaited_ends(self, view: View, changes: Changes) -> dict[str, Outcome]:
        """The successes awaited in this process, as a read would show them."""
        awaited = [key for key in view.effects.ended if self.wakeups.is_awaited(end_topic(key))]
        if not awaited:
            return {}
        attempts = {attempt.execution_id: attempt for attempt in changes.attempts}
        return {
            key: Outcome(snapshot_of(changes.updated[key]), attempts[key].result)
            for key in awaited
            if key in attempts and _is_success(changes.updated.get(key), attempts[key])
        }

    def _credits_of(self, offer: Offer) -> Credits:
        """The credit of each line that a worker serves, from its earlier claims."""
        if len(self._credits) > OFFERS_MAX:
            self._credits.clear()
        return self._credits.setdefault(offer, {})

    def publish(self, effects: Effects) -> None:
        """Publish wake-ups for a committed batch."""
        if effects.due_at is not None and effects.due_at < self.next_look_at:
            self.next_look_at = effects.due_at
            self.wakeups.wake({DUE_TOPIC: 1})
        topics = {lane_topic(lane): count for lane, count in effects.woken.items()}
        for ended, topic, every in (
            (effects.ended, end_topic, EVERY_END),
            (effects.flows_ended, flow_topic, EVERY_FLOW_END),
        ):
            names = [every] if len(ended) > COMPLETIONS_HINTED_MAX else map(topic, ended)
            topics.update(dict.fromkeys(names, EVERY_WAITER))
        for one, changed in ((stream_topic, effects.grown), (worker_topic, effects.told)):
            if changed:
                topics.update(dict.fromkeys(map(one, changed), EVERY_WAITER))
        if topics:
            self.store.hints.publish(topics)
        if effects.denied and self.meter is not None:
            self.meter.denied(effects.denied)

    # --- reading -------------------------------------------------------------------------------

    async def read(self, work: Callable[[Reader], Awaitable[T]]) -> T:
        """Reads outside any transaction."""
        if self.meter is None:
            return await until_no_conflict(lambda: self.store.read(work))
        return await self.meter.timed(
            READ, lambda: until_no_conflict(lambda: self.store.read(work))
        )

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
        if not (_is_minted(handle.lease_id) and _is_minted(handle.attempt_id)):
            check_name(handle.lease_id, field="handle.lease_id")
            check_name(handle.attempt_id, field="handle.attempt_id")
        return handle

    def namespace(self, namespace: str | None) -> str:
        """The tenant of a call."""
        if namespace is None:
            return self.config.namespace
        return check_name(namespace, field="namespace")

    def actor(self, actor: str | None) -> str:
        """The actor of an unsafe call."""
        if actor is None:
            return self.config.actor or ""
        return check_name(actor, field="actor")

    async def close_machine(self) -> None:
        """Finish what is in flight."""
        await self.tails.stop()
        await self.batches.idle()
        await self.feed.close()
        self._forget_hints()
        await asyncio.sleep(0)

    def _leave_machine(self) -> None:
        """In a forked child: nothing of the parent's store is used, and no call waits for it."""
        self.store = cast("Store", InheritedStore())
        self.known = Known(self.store)
        self.batches = Batcher(self._commit, batch_max=1, in_flight=1)
        self.feed = FeedWatch(lambda: self.read(lambda reader: reader.log_ends()))
