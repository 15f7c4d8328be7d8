"""Grants and reclaims, for external schedulers and operators."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import ids, limits
from flowfabric.engine.core import EngineCore
from flowfabric.engine.fold import with_body
from flowfabric.engine.operations.leases import lease_ttl, offer
from flowfabric.errors import InvalidInput
from flowfabric.kernel.claim import NewIds
from flowfabric.kernel.grant import ClaimGranted, ClaimNamed, IssueClaimGrant, PromiseBest
from flowfabric.kernel.reclaim import IssueReclaimGrant, ReclaimExecution
from flowfabric.model.checks import (
    check_capabilities,
    check_integer,
    check_lane,
    check_name,
)
from flowfabric.model.results import (
    Claimed,
    GrantIssued,
    NoWork,
    ReclaimGrantResult,
    ReclaimResult,
)
from flowfabric.stores.base import Reader


def _new_ids() -> NewIds:
    return NewIds(ids.new_secret_id(), ids.new_secret_id())


def _choice(
    worker_id: str, worker_instance_id: str, capabilities: Sequence[str], grant_ttl_ms: int
) -> tuple[str, str, tuple[str, ...], int, str]:
    """Whom a scheduler chose and for how long, checked, with a fresh grant id."""
    return (
        check_name(worker_id, field="worker_id"),
        check_name(worker_instance_id, field="worker_instance_id"),
        check_capabilities(capabilities, field="worker_capabilities"),
        _grant_ttl(grant_ttl_ms),
        ids.new_secret_id(),
    )


def _grant_ttl(value: int) -> int:
    return check_integer(value, field="grant_ttl_ms", least=1, most=limits.GRANT_TTL_MS_MAX)


class Granting(EngineCore):
    """A grant promises one execution to one worker; redeeming it is a claim like any other."""

    async def scan_eligible_executions(
        self, *, lane_id: str, limit: int = 100, namespace: str | None = None
    ) -> list[str]:
        """Ids of waiting executions of a lane, best first; nothing changes."""
        lane = check_lane(lane_id)
        check_integer(limit, field="limit", least=0, most=limits.PAGE_MAX)
        tenant = self.namespace(namespace)

        async def work(reader: Reader) -> list[str]:
            routes = [
                route
                for route in (await reader.catalog()).routes
                if route.lane_id == lane and route.namespace == tenant
            ]
            return await reader.peek_ready(routes, limit) if routes and limit else []

        return await self.read(work)

    async def issue_claim_grant(
        self,
        *,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        worker_capabilities: Sequence[str] = (),
        grant_ttl_ms: int = limits.GRANT_TTL_MS_DEFAULT,
    ) -> GrantIssued:
        """Promise a waiting execution to a worker for a short time."""
        checked = self.check_id(execution_id)
        choice = _choice(worker_id, worker_instance_id, worker_capabilities, grant_ttl_ms)
        command = IssueClaimGrant(checked, *choice)
        reply: GrantIssued = await self.execute(command)
        return reply

    async def claim_for_worker(
        self,
        *,
        lane_id: str,
        worker_id: str,
        worker_instance_id: str,
        worker_capabilities: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
        grant_ttl_ms: int = limits.GRANT_TTL_MS_DEFAULT,
        namespace: str | None = None,
    ) -> GrantIssued | NoWork:
        """Choose the best execution for a worker and promise it, in one transaction.

        `kinds`: those the worker has handlers for; without it any kind is promised.
        """
        choice = _choice(worker_id, worker_instance_id, worker_capabilities, grant_ttl_ms)
        offered = offer(self, (check_lane(lane_id),), worker_capabilities, kinds, namespace)
        command = PromiseBest(offered, IssueClaimGrant("", *choice))
        reply: GrantIssued | NoWork = await self.execute(command)
        return reply

    async def claim_execution(
        self,
        *,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl_ms: int | None = None,
    ) -> Claimed:
        """Redeem a grant with a new attempt."""
        return await self._redeem(
            execution_id, worker_id, worker_instance_id, lease_ttl_ms, resumed=False
        )

    async def claim_resumed_execution(
        self,
        *,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl_ms: int | None = None,
    ) -> Claimed:
        """Redeem a grant and go on with the interrupted attempt."""
        return await self._redeem(
            execution_id, worker_id, worker_instance_id, lease_ttl_ms, resumed=True
        )

    async def claim_from_resume_grant(
        self,
        *,
        grant: GrantIssued,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl_ms: int | None = None,
    ) -> Claimed:
        """Redeem the grant `claim_for_worker` gave for an interrupted attempt."""
        if not isinstance(grant, GrantIssued):
            raise InvalidInput("grant: expected a GrantIssued", field="grant")
        return await self.claim_resumed_execution(
            execution_id=grant.execution_id,
            worker_id=worker_id,
            worker_instance_id=worker_instance_id,
            lease_ttl_ms=lease_ttl_ms,
        )

    async def _redeem(
        self,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl_ms: int | None,
        *,
        resumed: bool,
    ) -> Claimed:
        command = ClaimGranted(
            self.check_id(execution_id),
            check_name(worker_id, field="worker_id"),
            check_name(worker_instance_id, field="worker_instance_id"),
            lease_ttl(self, lease_ttl_ms),
            self.store.family,
            _new_ids(),
            resumed,
        )
        return await self._with_body(await self.execute(command))

    async def issue_grant_and_claim(
        self, *, execution_id: str, lane_id: str, lease_duration_ms: int
    ) -> Claimed:
        """An operator takes one named waiting execution, in one atomic step."""
        checked = self.check_id(execution_id)
        lane = check_lane(lane_id)
        stored = (await self.read(lambda reader: reader.get((checked,)))).get(checked)
        stored_lane = getattr(stored, "lane_id", lane)
        if stored_lane != lane:
            raise InvalidInput(f"lane_id: the execution is on {stored_lane}", field="lane_id")
        command = ClaimNamed(
            checked,
            lease_ttl(self, lease_duration_ms),
            self.store.family,
            _new_ids(),
        )
        return await self._with_body(await self.execute(command))

    async def issue_reclaim_grant(
        self,
        *,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        worker_capabilities: Sequence[str] = (),
        grant_ttl_ms: int = limits.GRANT_TTL_MS_DEFAULT,
    ) -> ReclaimGrantResult:
        """Choose who takes over work whose lease was lost."""
        checked = self.check_id(execution_id)
        choice = _choice(worker_id, worker_instance_id, worker_capabilities, grant_ttl_ms)
        command = IssueReclaimGrant(checked, *choice)
        reply: ReclaimGrantResult = await self.execute(command)
        return reply

    async def reclaim_execution(
        self,
        *,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl_ms: int | None = None,
        max_reclaim_count: int | None = None,
    ) -> ReclaimResult:
        """Take over with a new attempt, by grant."""
        if max_reclaim_count is not None:
            check_integer(
                max_reclaim_count,
                field="max_reclaim_count",
                least=0,
                most=limits.RETRIES_MAX,
            )
        command = ReclaimExecution(
            self.check_id(execution_id),
            check_name(worker_id, field="worker_id"),
            check_name(worker_instance_id, field="worker_instance_id"),
            lease_ttl(self, lease_ttl_ms),
            self.store.family,
            _new_ids(),
            max_reclaim_count,
        )
        reply: ReclaimResult = await self.execute(command)
        return await self._with_body(reply) if isinstance(reply, Claimed) else reply

    async def _with_body(self, reply: Claimed) -> Claimed:
        bodies = await self.read(lambda reader: reader.bodies((reply.execution_id,)))
        return with_body(reply, bodies[reply.execution_id])
