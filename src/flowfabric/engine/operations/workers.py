"""The worker registry."""

from __future__ import annotations

import base64

from flowfabric import limits
from flowfabric.api import workers as api
from flowfabric.engine.core import EngineCore
from flowfabric.engine.operations.leases import offer
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.errors import InvalidInput
from flowfabric.kernel.place.workers import HeartbeatWorker, MarkWorkerDead, RegisterWorker
from flowfabric.model.checks import check_flag, check_integer, check_name, check_text
from flowfabric.model.results import WorkerPage
from flowfabric.stores.base import Reader


@commands(api.RegisterWorker)
def register_worker(machine: EngineCore, request: api.RegisterWorker) -> RegisterWorker:
    """A new entry, or a newer one."""
    return RegisterWorker(
        offer=offer(machine, request.lanes, request.capabilities, request.kinds, request.namespace),
        worker_id=check_name(request.worker_id, field="worker_id"),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
        liveness_ttl_ms=check_integer(
            request.liveness_ttl_ms,
            field="liveness_ttl_ms",
            least=limits.WORKER_TTL_MS_MIN,
            most=limits.WORKER_TTL_MS_MAX,
        ),
    )


@commands(api.HeartbeatWorker)
def heartbeat_worker(machine: EngineCore, request: api.HeartbeatWorker) -> HeartbeatWorker:
    """The entry lives for another period."""
    return HeartbeatWorker(
        namespace=machine.namespace(request.namespace),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
    )


@commands(api.MarkWorkerDead)
def mark_worker_dead(machine: EngineCore, request: api.MarkWorkerDead) -> MarkWorkerDead:
    """Remove the entry and, if asked, revoke its leases."""
    most = limits.MARK_DEAD_REASON_BYTES
    return MarkWorkerDead(
        namespace=machine.namespace(request.namespace),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
        reason=check_text(request.reason, field="reason", max_bytes=most, empty=True),
        revoke_leases=check_flag(request.revoke_leases, field="revoke_leases"),
    )


@answers(api.ListWorkers)
async def list_workers(machine: EngineCore, request: api.ListWorkers) -> WorkerPage:
    """A page of live workers."""
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
