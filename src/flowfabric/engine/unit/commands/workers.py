"""Commands about the worker registry."""

from __future__ import annotations

from itertools import islice

from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.operate import call_up_route
from flowfabric.kernel.execution.revoke import RevokeLease
from flowfabric.kernel.execution.routing import fitting_routes, route_key
from flowfabric.kernel.place import workers as kernel
from flowfabric.limits import CLAIM_MAX
from flowfabric.model.results import DrainAsked, Marked, NotRegistered, Refreshed, Registered
from flowfabric.model.worker import Worker
from flowfabric.stores.indexes import BLOCKED, DUE, Search, due_search
from flowfabric.stores.tables import CLAIMS, WORKERS


@handles(kernel.RegisterWorker)
async def register(unit: Unit, command: kernel.RegisterWorker) -> Registered | Refreshed | Refused:
    """A new entry, or a newer one."""
    known = await _registered(unit, command.offer.namespaces[0], command.worker_instance_id)
    return unit.view.apply(None, kernel.register_worker(known, command, unit.view.at))


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
    known = await _registered(unit, command.namespace, command.worker_instance_id)
    return unit.view.apply(None, kernel.heartbeat_worker(known, command, unit.view.at))


@handles(kernel.DrainWorker)
async def drain(unit: Unit, command: kernel.DrainWorker) -> DrainAsked | NotRegistered | Refused:
    """The entry says so; a worker that waits is told at once."""
    known = await _registered(unit, command.namespace, command.worker_instance_id)
    reply = unit.view.apply(None, kernel.drain_worker(known, command, unit.view.at))
    if isinstance(reply, DrainAsked):
        unit.view.effects.told.add(command.worker_instance_id)
    return reply


@handles(kernel.LeaveWorker)
async def leave(unit: Unit, command: kernel.LeaveWorker) -> Marked | NotRegistered | Refused:
    """The entry, and the claim that it will not repeat any more. Claims are noted by the instance
    alone: one that is not registered here may be another tenant's."""
    instance = command.worker_instance_id
    found, _ = await readable(unit.tx.rows, CLAIMS, [(instance,)])
    unit.view.rows.take(CLAIMS, found)
    known = await _registered(unit, command.namespace, instance)
    if known is not None:
        unit.view.rows.drop_unseen(CLAIMS, (instance,))
    gone = kernel.MarkWorkerDead(
        namespace=command.namespace,
        worker_instance_id=instance,
        reason=kernel.STOPPED,
        revoke_leases=False,
    )
    return unit.view.apply(None, kernel.mark_worker_dead(known, gone, unit.view.at, 0))


@handles(kernel.MarkWorkerDead)
async def mark_dead(unit: Unit, command: kernel.MarkWorkerDead) -> Marked | NotRegistered | Refused:
    """The entry and, if asked, the leases."""
    instance, owned = command.worker_instance_id, []
    known = await _registered(unit, command.namespace, instance)
    if known is not None and command.revoke_leases:
        owned = await _owned(unit, command.namespace, instance)
    if owned:
        await unit.load(owned)
    for execution_id in owned:
        reason = command.reason or kernel.MARKED_DEAD
        unit.view.decide(RevokeLease(execution_id=execution_id, reason=reason))
    return unit.view.apply(None, kernel.mark_worker_dead(known, command, unit.view.at, len(owned)))


@handles(kernel.SweepWorkers)
async def sweep(unit: Unit, command: kernel.SweepWorkers) -> int:
    """Those that are over; behind entries that cannot be decoded others are looked for."""
    tx, view, asked = unit.tx, unit.view, command.limit
    while True:
        keys = await unit.overlay.search_keys(due_search(WORKERS, view.at.now, asked))
        found, _ = await readable(tx.rows, WORKERS, sorted(keys))
        if len(found) >= command.limit or len(keys) < asked:
            break
        asked += command.limit
    view.rows.take(WORKERS, found)
    lapsed = [found[key] for key in sorted(found)][: command.limit]
    return sum(view.apply(None, kernel.sweep_worker(each, view.at)) is True for each in lapsed)


async def _owned(unit: Unit, namespace: str, worker_instance_id: str) -> list[str]:
    """The executions that a worker has leased, at most as many as one call may revoke."""
    # Each lease has a due time, so there is no index of owners to keep.
    only = (("worker_instance_id", worker_instance_id),)
    found = await unit.overlay.search(Search(DUE, only=only))
    owned = (each for each in found if each.is_leased and each.namespace == namespace)
    return [each.execution_id for each in islice(owned, CLAIM_MAX)]


async def _registered(unit: Unit, *key: str) -> Worker | None:
    """The entry as it stands, locked."""
    unit.view.rows.take(WORKERS, await unit.tx.rows(WORKERS, [key]))
    return unit.view.rows.get(WORKERS, key)
