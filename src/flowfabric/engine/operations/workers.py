"""The worker registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from flowfabric import limits
from flowfabric.api import workers as api
from flowfabric.api.hints import wait_event, worker_topic
from flowfabric.api.page import Page, at_names
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.leases import offer
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.operations.waiting import left_s, wait_until
from flowfabric.errors import InvalidInput
from flowfabric.kernel.execution.fence import loss_of
from flowfabric.kernel.place.workers import (
    CallUpRoutes,
    DrainWorker,
    HeartbeatWorker,
    LeaveWorker,
    MarkWorkerDead,
    RegisterWorker,
)
from flowfabric.model.checks import check_flag, check_integer, check_list, check_name, check_text
from flowfabric.model.record import replace
from flowfabric.model.results import Refreshed, Registered
from flowfabric.model.worker import HeldLease, Stop, StopsHeard, Worker
from flowfabric.stores.base import Corrupt, Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import WORKERS, Key

_WORKERS = Listing("list_workers", at_names)
_LOOK_S: Final = 5.0  # how late the loss of a lease is told when its hint is lost


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
        host=_told(request.host, "host"),
        version=_told(request.version, "version"),
        concurrency=_counted(request.concurrency, "concurrency"),
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
        busy=_counted(request.busy, "busy"),
    )


def _told(text: str | None, field: str) -> str | None:
    return None if text is None else check_name(text, field=field)


def _counted(count: int | None, field: str) -> int | None:
    most = limits.HANDLERS_MAX
    return None if count is None else check_integer(count, field=field, least=0, most=most)


@commands(api.LeaveWorker)
def leave_worker(machine: Machine, request: api.LeaveWorker) -> LeaveWorker:
    """Remove the entry."""
    return LeaveWorker(
        namespace=machine.namespace(request.namespace),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
    )


@commands(api.DrainWorker)
def drain_worker(machine: Machine, request: api.DrainWorker) -> DrainWorker:
    """Note in the entry that the worker should end."""
    most = limits.MARK_DEAD_REASON_BYTES
    return DrainWorker(
        namespace=machine.namespace(request.namespace),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
        reason=check_text(request.reason, field="reason", max_bytes=most, empty=True),
    )


@answers(api.WaitForStops)
async def wait_for_stops(machine: Machine, request: api.WaitForStops) -> StopsHeard:
    """Look at what is held; then wait for the worker's hint. Its entry is looked at only when that
    rings: a heartbeat tells of a drain as well, and thousands of workers may wait."""
    instance = check_name(request.worker_instance_id, field="worker_instance_id")
    namespace = machine.namespace(request.namespace)
    held = _held(machine, request.held)
    until = wait_until(request.wait_ms, is_bounded=True)
    with machine.wakeups.listening((worker_topic(instance),)) as rung:
        is_rung = False
        while True:
            heard = await _heard(machine, (namespace, instance), held, is_rung=is_rung)
            if heard.stops or is_rung or left_s(until) <= 0:
                return heard
            while not (is_rung := await wait_event(rung, min(left_s(until), _LOOK_S))):
                if held or left_s(until) <= 0:
                    break


async def _heard(
    machine: Machine, worker: tuple[str, str], held: Mapping[str, int], *, is_rung: bool
) -> StopsHeard:
    if not (held or is_rung):
        return StopsHeard(stops=(), is_rung=False, is_draining=False)

    async def work(reader: Reader) -> StopsHeard:
        await reader.catalog()
        found = await reader.get(tuple(held)) if held else {}
        entry = (await reader.peek_rows(WORKERS, [worker])).get(worker) if is_rung else None
        stops = []
        for execution_id, epoch in held.items():
            execution = found.get(execution_id)
            if isinstance(execution, Corrupt):
                continue  # its own calls say so
            if (code := loss_of(execution, epoch, reader.now)) is not None:
                stops.append(Stop(execution_id=execution_id, lease_epoch=epoch, code=code))
        return StopsHeard(
            stops=tuple(stops),
            is_rung=is_rung,
            is_draining=entry is not None and bool(entry.draining),
        )

    return await machine.read(work)


def _held(machine: Machine, given: Sequence[HeldLease]) -> dict[str, int]:
    several = check_list(given, field="held")
    if len(several) > limits.HANDLERS_MAX:
        raise InvalidInput(f"held: at most {limits.HANDLERS_MAX}", field="held")
    found = {}
    for each in several:
        if not isinstance(each, HeldLease):
            raise InvalidInput("held: expected leases", field="held")
        epoch = check_integer(each.lease_epoch, field="held.lease_epoch", least=1, most=1 << 62)
        found[machine.check_id(each.execution_id)] = epoch
    return found


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
