"""Commands about the worker registry."""

from __future__ import annotations

from typing import TypeVar

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.execution.revoke import RevokeLease
from flowfabric.kernel.place import workers as kernel
from flowfabric.limits import CLAIM_MAX
from flowfabric.model.record import replace
from flowfabric.model.results import Marked, NotRegistered, Refreshed, Registered
from flowfabric.model.worker import Worker

R = TypeVar("R")


@handles(kernel.RegisterWorker)
async def register(unit: Unit, command: kernel.RegisterWorker) -> Registered | Refreshed | Refused:
    """A new entry, or a newer one."""
    known = await unit.tx.load_worker(command.offer.namespaces[0], command.worker_instance_id)
    decision = kernel.register_worker(known, command, unit.view.at)
    return await _keep(unit, decision, is_known=known is not None)


@handles(kernel.HeartbeatWorker)
async def heartbeat(
    unit: Unit, command: kernel.HeartbeatWorker
) -> Refreshed | NotRegistered | Refused:
    """The entry lives for another while."""
    known = await unit.tx.load_worker(command.namespace, command.worker_instance_id)
    return await _keep(unit, kernel.heartbeat_worker(known, unit.view.at), is_known=True)


@handles(kernel.MarkWorkerDead)
async def mark_dead(unit: Unit, command: kernel.MarkWorkerDead) -> Marked | NotRegistered | Refused:
    """The entry and, if asked, the leases."""
    instance, owned = command.worker_instance_id, []
    known = await unit.tx.load_worker(command.namespace, instance)
    if known is not None and command.revoke_leases:
        await unit.save()
        owned = await unit.tx.owned_by(command.namespace, instance, CLAIM_MAX)
    if owned:
        await unit.load(owned)
    for execution_id in owned:
        reason = command.reason or kernel.MARKED_DEAD
        unit.view.decide(RevokeLease(execution_id=execution_id, reason=reason))
    decision = kernel.mark_worker_dead(known, command, unit.view.at, len(owned))
    return await _keep(unit, decision, is_known=True)


@handles(kernel.SweepWorkers)
async def sweep(unit: Unit, command: kernel.SweepWorkers) -> int:
    """Those that are over."""
    lapsed = await unit.tx.lapsed_workers(unit.view.at.now, command.limit)
    for worker in lapsed:
        await _keep(unit, kernel.sweep_worker(worker, unit.view.at), is_known=True)
    return len(lapsed)


async def _keep(unit: Unit, decision: Decision[R], *, is_known: bool) -> R | Refused:
    for worker in decision.saves:
        if isinstance(worker, Worker):
            await unit.tx.save_worker(worker, known=is_known)
    for worker in decision.drops:
        if isinstance(worker, Worker):
            await unit.tx.delete_worker(worker.namespace, worker.worker_instance_id)
    return unit.view.apply(None, replace(decision, saves=(), drops=()))
