"""The worker registry."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api import workers as api
from flowfabric.api.page import Page, at_names
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.leases import offer
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.kernel.place.workers import (
    CallUpRoutes,
    HeartbeatWorker,
    MarkWorkerDead,
    RegisterWorker,
)
from flowfabric.model.checks import check_flag, check_integer, check_name, check_text
from flowfabric.model.record import replace
from flowfabric.model.results import Refreshed, Registered
from flowfabric.model.worker import Worker
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import WORKERS, Key

_WORKERS = Listing("list_workers", at_names)


@answers(api.RegisterWorker)
async def register_worker(machine: Machine, request: api.RegisterWorker) -> Registered | Refreshed:
    """A new entry, or a newer one; work that no worker could run goes on."""
    command = RegisterWorker(
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
    reply = await machine.execute(command)
    call_up = CallUpRoutes(offer=command.offer, limit=limits.DUE_BATCH)
    while await machine.execute(call_up) == limits.DUE_BATCH:
        pass
    return reply


@commands(api.HeartbeatWorker)
def heartbeat_worker(machine: Machine, request: api.HeartbeatWorker) -> HeartbeatWorker:
    """The entry lives for another period."""
    return HeartbeatWorker(
        namespace=machine.namespace(request.namespace),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
    )


@commands(api.MarkWorkerDead)
def mark_worker_dead(machine: Machine, request: api.MarkWorkerDead) -> MarkWorkerDead:
    """Remove the entry and, if asked, revoke its leases."""
    most = limits.MARK_DEAD_REASON_BYTES
    return MarkWorkerDead(
        namespace=machine.namespace(request.namespace),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
        reason=check_text(request.reason, field="reason", max_bytes=most, empty=True),
        revoke_leases=check_flag(request.revoke_leases, field="revoke_leases"),
    )


@answers(api.ListWorkers)
async def list_workers(machine: Machine, request: api.ListWorkers) -> Page[Worker]:
    """A page of live workers."""
    namespace, limit = request.namespace, check_limit(request.limit)
    if namespace is not None:
        check_name(namespace, field="namespace")
    after = _WORKERS.place(request.cursor)

    async def work(reader: Reader) -> Page[Worker]:
        await reader.catalog()
        live = await live_workers(reader, namespace, after, limit + 1)
        return _WORKERS.page(live, limit, place_of=_place, show=lambda worker: worker)

    return await machine.read(work)


async def live_workers(
    reader: Reader, namespace: str | None, after: Key | None = None, limit: int | None = None
) -> list[Worker]:
    """Workers with a recent heartbeat by namespace and instance: all, or at least `limit`."""
    prefix = () if namespace is None else (namespace,)
    size = len(prefix)
    search = Search(by_key(WORKERS), (prefix,), limit=limits.PAGE_MAX, skips_corrupt=True)
    if after is not None:
        search = replace(search, after=after[size:])
    found: list[Worker] = []
    while limit is None or len(found) < limit:
        page = await reader.search(search)
        found += [worker for worker in page if worker.is_live(reader.now)]
        if len(page) < limits.PAGE_MAX:
            break
        search = replace(search, after=WORKERS.key_of(page[-1])[size:])
    return found


def _place(worker: Worker) -> tuple[str, str]:
    return worker.namespace, worker.worker_instance_id
