"""The worker registry."""

from __future__ import annotations

import base64
from typing import Any

from flowfabric import limits
from flowfabric.api import workers as api
from flowfabric.engine.core import EngineCore
from flowfabric.engine.operations.leases import offer
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.unit.view import Effects
from flowfabric.errors import InvalidInput
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.revoke import RevokeLease
from flowfabric.kernel.place import workers as kernel
from flowfabric.model.checks import check_flag, check_integer, check_name, check_text
from flowfabric.model.results import Marked, NotRegistered, Refreshed, Registered, WorkerPage
from flowfabric.model.worker import WorkerEvent, WorkerEventType
from flowfabric.stores.base import Reader, Transaction


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
        commands = [
            RevokeLease(execution_id=key, reason=text or "worker marked dead") for key in owned
        ]
        _, effects = await machine.fold(tx, commands)
        return Marked(len(owned)), effects

    reply, effects = await machine.transact(work)
    if effects is not None:
        machine.publish(effects)
    return reply


@answers(api.ListWorkers)
async def list_workers(machine: EngineCore, request: api.ListWorkers) -> WorkerPage:
    """A page of those that are live now."""
    namespace, limit = request.namespace, request.limit
    check_integer(limit, field="limit", least=1, most=limits.PAGE_MAX)
    if namespace is not None:
        check_name(namespace, field="namespace")
    after = _position(request.cursor)

    async def work(reader: Reader) -> WorkerPage:
        await reader.catalog()
        live = [
            worker
            for worker in await reader.workers(namespace)
            if worker.is_live(reader.now)
            and (after is None or (worker.namespace, worker.worker_instance_id) > after)
        ]
        page = tuple(live[:limit])
        if len(live) <= limit:
            return WorkerPage(page, None)
        last = f"{page[-1].namespace}\x00{page[-1].worker_instance_id}"
        return WorkerPage(page, base64.urlsafe_b64encode(last.encode()).decode())

    return await machine.read(work)


async def _keep(tx: Transaction, decision: kernel.RegistryDecision, *, known: bool) -> None:
    if decision.worker is not None:
        await tx.save_worker(decision.worker, known=known)
    if decision.event is not None:
        await tx.append_worker_event(decision.event)


def _answer(reply: Any) -> Any:
    if isinstance(reply, Refused):
        raise reply.to_error()
    return reply


def _position(cursor: str | None) -> tuple[str, str] | None:
    if cursor is None:
        return None
    try:
        check_text(cursor, field="cursor", max_bytes=4 * limits.NAME_BYTES)
        namespace, _, instance = (
            base64.urlsafe_b64decode(cursor.encode()).decode().partition("\x00")
        )
    except ValueError:
        raise InvalidInput("cursor: not one of ours", field="cursor") from None
    return namespace, instance
