"""What happens by itself, as operations: each is what a loop does to one execution or to all."""

from __future__ import annotations

from typing import Any

from flowfabric import limits
from flowfabric.engine.core import EngineCore
from flowfabric.engine.due import Due, SetAside, Thing, alone, named, rows_due
from flowfabric.engine.fold import WakeDue
from flowfabric.errors import InvalidInput, RetryExhausted
from flowfabric.ids import jitter
from flowfabric.kernel.expire import (
    ATTEMPT_TIMEOUT,
    EXECUTION_DEADLINE,
    ExpireAttempt,
    ExpireDeadline,
    ExpireLease,
    PromoteDelayed,
)
from flowfabric.model.checks import check_integer
from flowfabric.model.record import Record
from flowfabric.model.results import Moved, Reconciled
from flowfabric.model.worker import WorkerEvent, WorkerEventType
from flowfabric.stores.base import Reader, Transaction
from flowfabric.trouble import is_passing


def _expire_attempt(execution_id: str) -> ExpireAttempt:
    return ExpireAttempt(execution_id, jitter())


class DueLook(Record, frozen=True):
    """A look at the clock and at the earliest due time; none when nothing is due ever."""

    now: int
    due_at: int | None


class Timing(EngineCore):
    """The hooks of the background loops."""

    async def mark_lease_expired_if_due(self, *, execution_id: str) -> Moved:
        """Mark a lapsed lease; nothing when it has not lapsed."""
        reply: Moved = await self.execute(ExpireLease(self.check_id(execution_id)))
        return reply

    async def promote_delayed(self, *, execution_id: str) -> Moved:
        """Make delayed work wait when its time has come."""
        reply: Moved = await self.execute(PromoteDelayed(self.check_id(execution_id)))
        return reply

    async def expire_execution(self, *, execution_id: str, phase: str) -> Moved:
        """Apply the attempt timeout or the execution deadline, if due."""
        checked = self.check_id(execution_id)
        match phase:
            case "attempt_timeout":
                command: Any = _expire_attempt(checked)
            case "execution_deadline":
                command = ExpireDeadline(checked)
            case _:
                known = f"{ATTEMPT_TIMEOUT} or {EXECUTION_DEADLINE}"
                raise InvalidInput(f"phase: {known}", field="phase")
        reply: Moved = await self.execute(command)
        return reply

    async def move_due(self, *, limit: int = limits.DUE_BATCH) -> int:
        """Everything whose time has come, in one transaction; how many were moved.

        What cannot be moved is set aside, and stops nothing else: see `loop_status`.
        """
        check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)
        moved = await self._try_again()
        try:
            return moved + await self._move(WakeDue(limit, self.aside.things))
        except Exception as error:
            if _is_outage(error):
                raise
            return moved + await self._move_each(limit)

    async def _move(self, command: WakeDue) -> int:
        async def work(tx: Transaction) -> Any:
            return await self.fold(tx, [command])

        replies, effects = await self.transact(work)
        self.publish(effects)
        return int(replies[0])

    async def _move_each(self, limit: int) -> int:
        """Something that is due cannot be moved: each thing in a transaction of its own."""
        aside = self.aside.things

        async def look(tx: Transaction) -> tuple[int, list[Thing]]:
            await tx.catalog()
            found = await tx.due(tx.now, limit + len(aside))
            rows = await rows_due(tx, limit, aside)
            due = Due([each.execution_id for each in found], rows.keys)
            return tx.now, [thing for thing in due.things() if thing not in aside]

        now, things = await self.transact(look)
        return sum([await self._move_alone(thing, now) for thing in things])

    async def _try_again(self) -> int:
        """Move what was set aside long enough ago."""
        if not self.aside.things:
            return 0
        now = await self.read(_clock_of)
        return sum([await self._move_alone(thing, now) for thing in self.aside.due(now)])

    async def _move_alone(self, thing: Thing, now: int) -> int:
        """Move one thing that is due, or set it aside: a bad record is no reason to stop."""
        try:
            moved = await self._move(WakeDue(1, named=alone(thing)))
        except Exception as error:
            if _is_outage(error):
                raise
            self._complain(self.aside.put(thing, error, now), error)
            return 0
        self.aside.forget(thing)
        return moved

    def _complain(self, noted: SetAside, error: Exception) -> None:
        text = "%s cannot be moved and is set aside; all else goes on, `ff doctor` names it: %s"
        self.complaints.tell(text, named(noted.thing), error, error=error)

    async def trim_retention(self, *, limit: int = limits.DUE_BATCH) -> int:
        """Delete executions past their retention, with everything that belongs to them."""
        check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)

        async def work(tx: Transaction) -> int:
            await tx.catalog()
            return await tx.purge(tx.now, limit)

        return await self.transact(work)

    async def sweep(self, *, limit: int = limits.DUE_BATCH) -> int:
        """Delete expired idempotency keys and old events."""
        check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)

        async def work(tx: Transaction) -> int:
            await tx.catalog()
            return await tx.sweep(
                keys_until=tx.now,
                events_until=tx.now - self.config.event_retention_ms,
                limit=limit,
            )

        return await self.transact(work)

    async def sweep_workers(self, *, limit: int = limits.DUE_BATCH) -> int:
        """Take workers that were not heard from off the registry."""
        check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)

        async def work(tx: Transaction) -> int:
            await tx.catalog()
            lapsed = await tx.lapsed_workers(tx.now, limit)
            for worker in lapsed:
                await tx.delete_worker(worker.namespace, worker.worker_instance_id)
                event = WorkerEvent(
                    worker.namespace,
                    worker.worker_instance_id,
                    WorkerEventType.TTL_SWEPT,
                    "not heard from",
                    tx.now,
                )
                await tx.append_worker_event(event)
            return len(lapsed)

        return await self.transact(work)

    async def next_due(self) -> DueLook:
        """The store's clock, and when something is due by itself."""

        async def work(reader: Reader) -> DueLook:
            due_at = await reader.next_due()
            return DueLook(reader.now, due_at)

        return await self.read(work)

    async def tick(self) -> int:
        """Run every loop once: what is due, retention, sweeps. How many records moved."""
        moved = await self.move_due()
        moved += await self.trim_retention() + await self.sweep()
        return moved + await self.sweep_workers()

    async def reconcile_execution_index(self) -> Reconciled:
        """Compare every index with the records; report what differs."""
        problems = await self.read(_audit)
        counted = sum(number for _, _, number in await self.read(lambda reader: reader.count()))
        texts = tuple(f"{index}: {what}" for index, what in problems)
        return Reconciled(counted, len(problems), texts)


def _is_outage(error: Exception) -> bool:
    """Whether nothing can be moved just now. A conflict that no retry ends is no outage: a row that
    is in the way of one record alone must not hold up all the others."""
    return is_passing(error) and not isinstance(error, RetryExhausted)


async def _clock_of(reader: Reader) -> int:
    await reader.catalog()
    return reader.now


async def _audit(reader: Reader) -> list[tuple[str, str]]:
    return await reader.audit()
