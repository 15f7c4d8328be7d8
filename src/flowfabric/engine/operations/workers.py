"""The worker registry."""

from __future__ import annotations

from typing import Any

from flowfabric import limits
from flowfabric.api import workers as api
from flowfabric.api.page import Page, at_names
from flowfabric.engine.core import EngineCore
from flowfabric.engine.operations.leases import offer
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.unit.view import Effects
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.revoke import RevokeLease
from flowfabric.kernel.place import workers as kernel
from flowfabric.model.checks import check_flag, check_integer, check_name, check_text
from flowfabric.model.results import Marked, NotRegistered, Refreshed, Registered
from flowfabric.model.worker import Worker, WorkerEvent, WorkerEventType
from flowfabric.stores.base import Reader, Transaction

_WORKERS = Listing("list_workers", at_names)


@answers(api.RegisterWorker)
async def register_worker(
    machine: EngineCore, request: api.RegisterWorker
) -> Registered | Refreshed:
    """A new entry, or a newer one."""
    offered = offer(machine, request.lanes, request.capabilities, request.kinds, request.namespace)
    name = check_name(request.worker_id, field="worker_id")
    instance = check_name(request.worker_instance_id, field="worker_instance_id")
    ttl = check_integer(
        request.liveness_ttl_ms,
        field="liveness_ttl_ms",
        least=limits.WORKER_TTL_MS_MIN,
        most=limits.WORKER_TTL_MS_MAX,
    )

    async def work(tx: Transaction) -> Any:
        await tx.catalog()
        known = await tx.load_worker(offered.namespaces[0], instance)
        decision = kernel.register_worker(
            known,
            offer=offered,
            worker_id=name,
            worker_instance_id=instance,
            liveness_ttl_ms=ttl,
            at=machine.moment(tx.now),
        )
        await _keep(tx, decision, known=known is not None)
        return decision.reply

    reply: Registered | Refreshed = _answer(await machine.transact(work))
    return reply


@answers(api.HeartbeatWorker)
async def heartbeat_worker(
    machine: EngineCore, request: api.HeartbeatWorker
) -> Refreshed | NotRegistered:
    """The entry lives for another while."""
    tenant = machine.namespace(request.namespace)
    instance = check_name(request.worker_instance_id, field="worker_instance_id")

    async def work(tx: Transaction) -> Any:
        await tx.catalog()
        known = await tx.load_worker(tenant, instance)
        decision = kernel.heartbeat_worker(known, machine.moment(tx.now))
        await _keep(tx, decision, known=True)
        return decision.reply

    reply: Refreshed | NotRegistered = _answer(await machine.transact(work))
    return reply


@answers(api.MarkWorkerDead)
async def mark_worker_dead(
    machine: EngineCore, request: api.MarkWorkerDead
) -> Marked | NotRegistered:
    """The entry and, if asked, the leases."""
    tenant = machine.namespace(request.namespace)
    instance = check_name(request.worker_instance_id, field="worker_instance_id")
    text = check_text(
        request.reason, field="reason", max_bytes=limits.MARK_DEAD_REASON_BYTES, empty=True
    )
    revokes = check_flag(request.revoke_leases, field="revoke_leases")

    async def work(tx: Transaction) -> tuple[Marked | NotRegistered, Effects | None]:
        await tx.catalog()
        if await tx.load_worker(tenant, instance) is None:
            return NotRegistered(), None
        await tx.delete_worker(tenant, instance)
        event = WorkerEvent(tenant, instance, WorkerEventType.MARKED_DEAD, text, tx.now)
        await tx.append_worker_event(event)
        if not revokes:
            return Marked(), None
        owned = await tx.owned_by(tenant, instance, limits.CLAIM_MAX)
        commands = [RevokeLease(key, text or "worker marked dead") for key in owned]
        _, effects = await machine.fold(tx, commands)
        return Marked(len(owned)), effects

    reply, effects = await machine.transact(work)
    if effects is not None:
        machine.publish(effects)
    return reply


@answers(api.ListWorkers)
async def list_workers(machine: EngineCore, request: api.ListWorkers) -> Page[Worker]:
    """A page of those that are live now."""
    namespace, limit = request.namespace, check_limit(request.limit)
    if namespace is not None:
        check_name(namespace, field="namespace")
    after = _WORKERS.place(request.cursor)

    async def work(reader: Reader) -> Page[Worker]:
        await reader.catalog()
        live = [
            worker
            for worker in await reader.workers(namespace)
            if worker.is_live(reader.now) and (after is None or _place(worker) > after)
        ]
        return _WORKERS.page(live, limit, place_of=_place, show=lambda worker: worker)

    return await machine.read(work)


def _place(worker: Worker) -> tuple[str, str]:
    return worker.namespace, worker.worker_instance_id


async def _keep(tx: Transaction, decision: kernel.RegistryDecision, *, known: bool) -> None:
    if decision.worker is not None:
        await tx.save_worker(decision.worker, known=known)
    if decision.event is not None:
        await tx.append_worker_event(decision.event)


def _answer(reply: Any) -> Any:
    if isinstance(reply, Refused):
        raise reply.to_error()
    return reply
