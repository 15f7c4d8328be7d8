"""The installation: its clock, its schema, its health, and the work of its loops."""

from __future__ import annotations

import asyncio

from flowfabric import limits
from flowfabric.api import admin as api
from flowfabric.engine import due_work
from flowfabric.engine.audit.doctor import examine
from flowfabric.engine.due_work import clock_of
from flowfabric.engine.loop_status import status_of
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.operations.waiting import left_s, wait_until
from flowfabric.errors import InvalidInput, WaitTimeout
from flowfabric.ids import jitter
from flowfabric.kernel.execution.expire import (
    ATTEMPT_TIMEOUT,
    EXECUTION_DEADLINE,
    ExpireAttempt,
    ExpireDeadline,
    ExpireLease,
    PromoteDelayed,
)
from flowfabric.model.checks import check_flag, check_integer
from flowfabric.model.results import Prepared, Reconciled
from flowfabric.stores.base import Reader

# --- about the store -----------------------------------------------------------------------------


@answers(api.Ping)
async def ping(machine: Machine, _request: api.Ping) -> None:
    """Read the store's clock."""
    await machine.read(clock_of)


@answers(api.ServerTimeMs)
async def server_time_ms(machine: Machine, _request: api.ServerTimeMs) -> int:
    """Read from the store, not computed."""
    return await machine.read(clock_of)


@answers(api.Prepare)
async def prepare(machine: Machine, _request: api.Prepare) -> Prepared:
    """Apply every missing migration."""
    return Prepared(tuple(await machine.store.migrate()))


@answers(api.ShutdownPrepare)
async def shutdown_prepare(machine: Machine, request: api.ShutdownPrepare) -> None:
    """Finish commits of this process; other processes have their own."""
    until = wait_until(request.wait_ms, is_bounded=True)
    try:
        async with asyncio.timeout(left_s(until)):
            await machine.batches.idle()
    except TimeoutError:
        raise WaitTimeout(f"commits still in flight after {request.wait_ms} ms") from None


@answers(api.Doctor)
async def doctor(machine: Machine, request: api.Doctor) -> api.DoctorReport:
    """Check the store, and the loops of this process."""
    quick = check_flag(request.quick, field="quick")
    return await examine(machine, status_of(machine.loop, machine.aside), quick=quick)


@answers(api.ReconcileExecutionIndex)
async def reconcile_execution_index(
    machine: Machine, _request: api.ReconcileExecutionIndex
) -> Reconciled:
    """Compare only; nothing is repaired."""
    problems = await machine.read(_audit)
    counted = sum(number for _, _, number in await machine.read(lambda reader: reader.count()))
    texts = tuple(f"{index}: {what}" for index, what in problems)
    return Reconciled(counted, len(problems), texts)


async def _audit(reader: Reader) -> list[tuple[str, str]]:
    return await reader.audit()


# --- work of the loops ---------------------------------------------------------------------------


@commands(api.MarkLeaseExpiredIfDue)
def mark_lease_expired_if_due(machine: Machine, request: api.MarkLeaseExpiredIfDue) -> ExpireLease:
    """Mark one expired lease."""
    return ExpireLease(execution_id=machine.check_id(request.execution_id))


@commands(api.PromoteDelayed)
def promote_delayed(machine: Machine, request: api.PromoteDelayed) -> PromoteDelayed:
    """End one delay."""
    return PromoteDelayed(execution_id=machine.check_id(request.execution_id))


@commands(api.ExpireExecution)
def expire_execution(
    machine: Machine, request: api.ExpireExecution
) -> ExpireAttempt | ExpireDeadline:
    """Expire by the named phase."""
    execution_id = machine.check_id(request.execution_id)
    match request.phase:
        case "attempt_timeout":
            return ExpireAttempt(execution_id=execution_id, jitter=jitter())
        case "execution_deadline":
            return ExpireDeadline(execution_id=execution_id)
        case _:
            known = f"{ATTEMPT_TIMEOUT} or {EXECUTION_DEADLINE}"
            raise InvalidInput(f"phase: {known}", field="phase")


@answers(api.TrimRetention)
async def trim_retention(machine: Machine, request: api.TrimRetention) -> int:
    """Delete one batch, in one transaction."""
    limit = check_integer(request.limit, field="limit", least=1, most=limits.CREATE_MAX)
    return await due_work.trim_retention(machine, limit)
