"""Grants and reclaims, for external schedulers and operators."""

from __future__ import annotations

from typing import TypeVar

from flowfabric import ids, limits
from flowfabric.api import grants as api
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.leases import lease_ttl, offer
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.unit.commands.claims import with_body
from flowfabric.errors import InvalidInput
from flowfabric.kernel.execution.claim import NewIds, is_claimable
from flowfabric.kernel.execution.grant import ClaimGranted, ClaimNamed, IssueClaimGrant, PromiseBest
from flowfabric.kernel.execution.reclaim import IssueReclaimGrant, ReclaimExecution
from flowfabric.model.checks import (
    check_capabilities,
    check_integer,
    check_lane,
    check_name,
)
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed, GrantIssued, ReclaimResult
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import READY, Search

G = TypeVar("G", IssueClaimGrant, IssueReclaimGrant)

# --- grant ----------------------------------------------------------------------------------------


@answers(api.ScanEligibleExecutions)
async def scan_eligible_executions(
    machine: Machine, request: api.ScanEligibleExecutions
) -> list[str]:
    """In the order of a claim."""
    lane, limit = check_lane(request.lane_id), request.limit
    check_integer(limit, field="limit", least=0, most=limits.PAGE_MAX)
    tenant = machine.namespace(request.namespace)

    async def work(reader: Reader) -> list[str]:
        routes = (
            route
            for route in (await reader.catalog()).routes
            if route.lane_id == lane and route.namespace == tenant
        )
        page = Search(READY, tuple((route,) for route in routes), limit=limits.PAGE_MAX)
        eligible: list[str] = []
        while len(eligible) < limit and (found := await reader.search(page)):
            eligible += [each.execution_id for each in found if is_claimable(each, reader.now)]
            page = replace(page, after=READY.place(found[-1])[1:])
        return eligible[:limit]

    return await machine.read(work)


@commands(api.IssueClaimGrant)
def issue_claim_grant(machine: Machine, request: api.IssueClaimGrant) -> IssueClaimGrant:
    """For an execution that the scheduler names."""
    return _granted(IssueClaimGrant, machine.check_id(request.execution_id), request)


@commands(api.ClaimForWorker)
def claim_for_worker(machine: Machine, request: api.ClaimForWorker) -> PromiseBest:
    """For the execution that a claim would get."""
    promise = _granted(IssueClaimGrant, "", request)
    lanes, kinds = (check_lane(request.lane_id),), request.kinds
    offered = offer(machine, lanes, request.worker_capabilities, kinds, request.namespace)
    return PromiseBest(offer=offered, request=promise)


def _granted(
    kind: type[G],
    execution_id: str,
    request: api.IssueClaimGrant | api.ClaimForWorker | api.IssueReclaimGrant,
) -> G:
    """The worker a scheduler chose and the duration, checked, with a fresh grant id."""
    most = limits.GRANT_TTL_MS_MAX
    return kind(
        execution_id=execution_id,
        worker_id=check_name(request.worker_id, field="worker_id"),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
        worker_capabilities=check_capabilities(
            request.worker_capabilities, field="worker_capabilities"
        ),
        grant_ttl_ms=check_integer(request.grant_ttl_ms, field="grant_ttl_ms", least=1, most=most),
        grant_id=ids.new_secret_id(),
    )


# --- redeem --------------------------------------------------------------------------------------


@answers(api.ClaimExecution)
async def claim_execution(machine: Machine, request: api.ClaimExecution) -> Claimed:
    """Claim with a new attempt."""
    return await _redeem(machine, request, request.execution_id, resumed=False)


@answers(api.ClaimResumedExecution)
async def claim_resumed_execution(machine: Machine, request: api.ClaimResumedExecution) -> Claimed:
    """Claim with the interrupted attempt."""
    return await _redeem(machine, request, request.execution_id, resumed=True)


@answers(api.ClaimFromResumeGrant)
async def claim_from_resume_grant(machine: Machine, request: api.ClaimFromResumeGrant) -> Claimed:
    """Claim with the interrupted attempt that the grant names."""
    grant = request.grant
    if not isinstance(grant, GrantIssued):
        raise InvalidInput("grant: expected a GrantIssued", field="grant")
    return await _redeem(machine, request, grant.execution_id, resumed=True)


async def _redeem(
    machine: Machine,
    request: api.ClaimExecution | api.ClaimResumedExecution | api.ClaimFromResumeGrant,
    execution_id: str,
    *,
    resumed: bool,
) -> Claimed:
    command = ClaimGranted(
        execution_id=machine.check_id(execution_id),
        worker_id=check_name(request.worker_id, field="worker_id"),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
        lease_ttl_ms=lease_ttl(machine, request.lease_ttl_ms),
        backend=machine.store.family,
        ids=_new_ids(),
        resumed=resumed,
    )
    return await _with_body(machine, await machine.execute(command))


@answers(api.IssueGrantAndClaim)
async def issue_grant_and_claim(machine: Machine, request: api.IssueGrantAndClaim) -> Claimed:
    """Claim by an operator, if the execution is on the lane it names."""
    checked = machine.check_id(request.execution_id)
    lane = check_lane(request.lane_id)
    stored = (await machine.read(lambda reader: reader.get((checked,)))).get(checked)
    stored_lane = getattr(stored, "lane_id", lane)
    if stored_lane != lane:
        raise InvalidInput(f"lane_id: the execution is on {stored_lane}", field="lane_id")
    command = ClaimNamed(
        execution_id=checked,
        lease_ttl_ms=lease_ttl(machine, request.lease_duration_ms),
        backend=machine.store.family,
        ids=_new_ids(),
        actor=machine.actor(request.actor),
    )
    return await _with_body(machine, await machine.execute(command))


# --- take over -----------------------------------------------------------------------------------


@commands(api.IssueReclaimGrant)
def issue_reclaim_grant(machine: Machine, request: api.IssueReclaimGrant) -> IssueReclaimGrant:
    """Grant an execution with a lost lease."""
    return _granted(IssueReclaimGrant, machine.check_id(request.execution_id), request)


@answers(api.ReclaimExecution)
async def reclaim_execution(machine: Machine, request: api.ReclaimExecution) -> ReclaimResult:
    """Take over with a new attempt."""
    cap = request.max_reclaim_count
    if cap is not None:
        check_integer(cap, field="max_reclaim_count", least=0, most=limits.RETRIES_MAX)
    command = ReclaimExecution(
        execution_id=machine.check_id(request.execution_id),
        worker_id=check_name(request.worker_id, field="worker_id"),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
        lease_ttl_ms=lease_ttl(machine, request.lease_ttl_ms),
        backend=machine.store.family,
        ids=_new_ids(),
        max_reclaim_count=cap,
    )
    reply: ReclaimResult = await machine.execute(command)
    return await _with_body(machine, reply) if isinstance(reply, Claimed) else reply


# --- shared by claims -----------------------------------------------------------------------------


def _new_ids() -> NewIds:
    return NewIds(ids.new_secret_id(), ids.new_secret_id())


async def _with_body(machine: Machine, reply: Claimed) -> Claimed:
    bodies = await machine.read(lambda reader: reader.bodies((reply.execution_id,)))
    return with_body(reply, bodies[reply.execution_id])
