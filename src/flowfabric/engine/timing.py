"""What happens by itself, as operations: each is what a loop does to one execution or to all."""

from __future__ import annotations

from typing import Any

from flowfabric import limits
from flowfabric.engine.core import EngineCore
from flowfabric.engine.flow_tasks import Due
from flowfabric.engine.fold import WakeDue
from flowfabric.errors import Corruption, InvalidInput
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
from flowfabric.stores.tables import FLOW_TASKS, FLOWS


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
        """Everything whose time has come, in one transaction; how many were moved."""
        check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)
        try:
            return await self._move(WakeDue(limit))
        except Corruption:
            return await self._move_each(limit)

    async def _move(self, command: WakeDue) -> int:
        async def work(tx: Transaction) -> Any:
            return await self.fold(tx, [command])

        replies, effects = await self.transact(work)
        self.publish(effects)
        return int(replies[0])

    async def _move_each(self, limit: int) -> int:
        """A row that cannot be read stops nobody else: each due thing in its own transaction."""

        async def look(tx: Transaction) -> list[Due]:
            await tx.catalog()
            executions = await tx.due(tx.now, limit)
            tasks = await tx.due_keys(FLOW_TASKS, tx.now, limit)
            flows = await tx.due_keys(FLOWS, tx.now, limit)
            return [
                *(Due(execution_ids=(each.execution_id,)) for each in executions),
                *(Due(tasks=(key,)) for key in tasks),
                *(Due(flows=(key,)) for key in flows),
            ]

        pieces = [WakeDue(0, each) for each in await self.transact(look)]
        moved = 0
        for piece in (*pieces, WakeDue(limit, Due())):
            try:
                moved += await self._move(piece)
            except Corruption:
                continue  # doctor reports it
        return moved

    async def trim_retention(self, *, limit: int = limits.DUE_BATCH) -> int:
        """Delete executions past their retention, with everything that belongs to them."""
        check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)

        async def work(tx: Transaction) -> int:
            await tx.catalog()
            return await tx.purge(tx.now, limit)

        return await self.transact(work)

    async def sweep(self, *, limit: int = limits.DUE_BATCH) -> int:
        """Delete expired idempotency keys, old events and workers not heard from."""
        check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)

        async def work(tx: Transaction) -> int:
            await tx.catalog()
            swept = await tx.sweep(
                keys_until=tx.now,
                events_until=tx.now - self.config.event_retention_ms,
                limit=limit,
            )
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
            return swept + len(lapsed)

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
        return moved + await self.trim_retention() + await self.sweep()

    async def reconcile_execution_index(self) -> Reconciled:
        """Compare every index with the records; report what differs."""
        problems = await self.read(_audit)
        counted = sum(number for _, _, number in await self.read(lambda reader: reader.count()))
        texts = tuple(f"{index}: {what}" for index, what in problems)
        return Reconciled(counted, len(problems), texts)


async def _audit(reader: Reader) -> list[tuple[str, str]]:
    return await reader.audit()
