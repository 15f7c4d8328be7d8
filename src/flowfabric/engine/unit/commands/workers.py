"""Commands about the worker registry."""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.execution.operate import call_up_route
from flowfabric.kernel.execution.revoke import RevokeLease
from flowfabric.kernel.execution.routing import fitting_routes, route_key
from flowfabric.kernel.place import workers as kernel
from flowfabric.limits import CLAIM_MAX
from flowfabric.model.record import replace
from flowfabric.model.results import Marked, NotRegistered, Refreshed, Registered
from flowfabric.model.worker import Worker
from flowfabric.stores.indexes import BLOCKED, DUE, Search

R = TypeVar("R")


@handles(kernel.RegisterWorker)
async def register(unit: Unit, command: kernel.RegisterWorker) -> Registered | Refreshed | Refused:
    """A new entry, or a newer one."""
    known = await unit.tx.load_worker(command.offer.namespaces[0], command.worker_instance_id)
    decision = kernel.register_worker(known, command, unit.view.at)
    return await _keep(unit, decision, is_known=known is not None)


@handles(kernel.CallUpRoutes)
async def call_up(unit: Unit, command: kernel.CallUpRoutes) -> int:
    """Work that waits for a worker of this kind is free to be claimed."""
    keys = tuple((route_key(each),) for each in fitting_routes(command.offer, unit.catalog))
    if not keys:
        return 0
    search = Search(BLOCKED, keys, limit=command.limit, is_held=True)
    found = await unit.overlay.search(search)
    for execution in found:
        unit.view.apply(unit.view.take(execution), call_up_route(execution, unit.view.at))
    return len(found)


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
        owned = await _owned(unit, command.namespace, instance)
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


async def _owned(unit: Unit, namespace: str, worker_instance_id: str) -> list[str]:
    """The executions that a worker has leased, at most as many as one call may revoke."""
    # Each lease has a due time, so there is no index of owners to keep.
    only = (("worker_instance_id", worker_instance_id),)
    found = await unit.overlay.search(Search(DUE, only=only))
    owned = (each for each in found if each.is_leased and each.namespace == namespace)
    return [each.execution_id for each in islice(owned, CLAIM_MAX)]


async def _keep(unit: Unit, decision: Decision[R], *, is_known: bool) -> R | Refused:
    for worker in decision.saves:
        if isinstance(worker, Worker):
            await unit.tx.save_worker(worker, known=is_known)
    for worker in decision.drops:
        if isinstance(worker, Worker):
            await unit.tx.delete_worker(worker.namespace, worker.worker_instance_id)
    return unit.view.apply(None, replace(decision, saves=(), drops=()))
