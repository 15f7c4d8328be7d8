"""Lost leases: revoked or lapsed, taken over by choice or by themselves, up to the cap."""

from __future__ import annotations

import pytest

from flowfabric.errors import GrantAlreadyExists, LeaseRevoked
from flowfabric.model.attempt import AttemptOutcome, AttemptType
from flowfabric.model.event import LeaseEventType
from flowfabric.model.handle import HandleKind
from flowfabric.model.policy import ExecutionPolicy, RoutingRequirements
from flowfabric.model.results import (
    AlreadySatisfied,
    Claimed,
    GrantIssued,
    GrantNotFound,
    NotReclaimable,
    ReclaimCapExceeded,
    Revoked,
)
from flowfabric.model.state import OwnershipState, PublicState
from tests.support.lab import TTL_MS, Lab, scenario


async def grant(lab: Lab, execution_id: str, worker: str = "w2", **fields: object) -> object:
    return await lab.engine.issue_reclaim_grant(
        execution_id=execution_id,
        worker_id=worker,
        worker_instance_id=f"{worker}-1",
        **fields,  # type: ignore[arg-type]
    )


async def reclaim(
    lab: Lab, execution_id: str, worker: str = "w2", cap: int | None = None
) -> object:
    return await lab.engine.reclaim_execution(
        execution_id=execution_id,
        worker_id=worker,
        worker_instance_id=f"{worker}-1",
        lease_ttl_ms=TTL_MS,
        max_reclaim_count=cap,
    )


@scenario
async def test_a_revoked_lease_is_fenced_and_its_work_run_again(lab: Lab) -> None:
    """The same on every store."""
    claimed = await lab.started()
    answer = await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="suspect")
    assert answer == Revoked(claimed.execution_id, claimed.lease_epoch + 1)
    snapshot = await lab.describe(claimed.execution_id)
    assert snapshot.state.ownership_state is OwnershipState.LEASE_REVOKED
    assert "suspect" in snapshot.blocking_detail
    async with lab.refuses(LeaseRevoked):
        await lab.engine.complete(claimed.handle)
    await lab.engine.tick()
    again = await lab.claim("w2")
    assert (again.attempt_index, again.attempt_type) == (1, AttemptType.RECLAIM)
    events = [event.event_type for event in await lab.lease_events(claimed.execution_id)]
    assert events == ["acquired", "revoked", "acquired"]


@scenario
async def test_revoking_what_holds_no_lease_changes_nothing(lab: Lab) -> None:
    """Not of a finished execution either."""
    finished = await lab.completed()
    waiting = await lab.create()
    async with lab.unchanged():
        for execution_id in (finished, waiting):
            answer = await lab.engine.revoke_lease(execution_id=execution_id, reason="x")
            assert answer == AlreadySatisfied("no_active_lease", execution_id)


@scenario
async def test_a_revocation_may_name_the_lease_it_means(lab: Lab) -> None:
    """The lease id of the handle is the one that is compared."""
    claimed = await lab.started()
    execution_id = claimed.execution_id
    async with lab.unchanged():
        for wrong in ({"expected_lease_id": "other"}, {"worker_instance_id": "w9-1"}):
            answer = await lab.engine.revoke_lease(execution_id=execution_id, reason="x", **wrong)
            assert isinstance(answer, AlreadySatisfied)
    right = await lab.engine.revoke_lease(
        execution_id=execution_id,
        reason="x",
        expected_lease_id=claimed.lease_id,
        worker_instance_id="w1-1",
    )
    assert isinstance(right, Revoked)


@scenario
async def test_a_chosen_worker_takes_over(lab: Lab) -> None:
    """Reclaim follows a normal expiry."""
    lost = await lab.lapsed(input_payload=b"in")
    execution_id = lost.execution_id
    assert isinstance(await grant(lab, execution_id), GrantIssued)
    taken = await reclaim(lab, execution_id)
    assert isinstance(taken, Claimed)
    assert taken.handle.kind is HandleKind.RECLAIMED
    assert (taken.attempt_index, taken.payload) == (1, b"in")
    assert taken.lease_epoch > lost.lease_epoch
    attempts = (await lab.engine.list_attempts(execution_id=execution_id)).items
    assert attempts[0].outcome == AttemptOutcome.INTERRUPTED_RECLAIMED
    assert (await lab.lease_events(execution_id))[-1].event_type is LeaseEventType.RECLAIMED
    await lab.engine.complete(taken.handle)
    assert await lab.state(execution_id) is PublicState.COMPLETED


@scenario
async def test_a_live_lease_is_never_reclaimed(lab: Lab) -> None:
    claimed = await lab.started()
    async with lab.unchanged():
        assert isinstance(await grant(lab, claimed.execution_id), NotReclaimable)
        assert isinstance(await reclaim(lab, claimed.execution_id), NotReclaimable)


@scenario
async def test_a_takeover_needs_one_live_grant_of_that_worker(lab: Lab) -> None:
    """The second grant is refused, a stranger's call finds none, a late one as well."""
    lost = await lab.lapsed()
    execution_id = lost.execution_id
    async with lab.unchanged():
        assert await reclaim(lab, execution_id) == GrantNotFound(execution_id)
    await grant(lab, execution_id, grant_ttl_ms=1000)
    async with lab.refuses(GrantAlreadyExists):
        await grant(lab, execution_id, "w3")
    async with lab.unchanged():
        assert await reclaim(lab, execution_id, "w3") == GrantNotFound(execution_id)
    lab.clock.advance(1001)
    async with lab.unchanged():
        assert await reclaim(lab, execution_id) == GrantNotFound(execution_id)


@scenario
async def test_a_takeover_needs_the_capabilities(lab: Lab) -> None:
    needs = ExecutionPolicy(
        routing_requirements=RoutingRequirements(required_capabilities=("gpu",))
    )
    await lab.create(policy=needs)
    claimed = await lab.claim(capabilities=("gpu",))
    lab.clock.set(claimed.lease_expires_at)
    await lab.engine.mark_lease_expired_if_due(execution_id=claimed.execution_id)
    answer = await grant(lab, claimed.execution_id)
    assert answer == NotReclaimable(claimed.execution_id, "capability_mismatch: gpu")
    assert isinstance(
        await grant(lab, claimed.execution_id, worker_capabilities=("gpu",)), GrantIssued
    )


@scenario
async def test_a_promised_takeover_is_waited_for_and_then_not(lab: Lab) -> None:
    """I9: the loop leaves promised work alone, sleeps, and recovers it afterwards."""
    lost = await lab.lapsed()
    await grant(lab, lost.execution_id, grant_ttl_ms=1000)
    async with lab.unchanged():
        assert await lab.engine.tick() == 0, "nothing moved"
        look = await lab.engine.next_due()
        assert look.due_at == lab.now + 1001, "the loop would spin while the grant lives"
    await lab.after(1001)
    assert await lab.state(lost.execution_id) is PublicState.WAITING


@scenario
async def test_lost_work_waits_out_a_configured_grace(lab: Lab) -> None:
    await lab.configure(reclaim_grace_ms=2000)
    claimed = await lab.started()
    await lab.after(TTL_MS)
    await lab.after(1999)
    assert await lab.state(claimed.execution_id) is PublicState.ACTIVE
    await lab.after(1)
    assert await lab.state(claimed.execution_id) is PublicState.WAITING


@pytest.mark.parametrize("cap", [0, 2])
@scenario
async def test_the_cap_ends_the_execution_completely(lab: Lab, cap: int) -> None:
    """I5: attempt closed, completion published, nothing left behind."""
    execution_id = await lab.create(policy=ExecutionPolicy(max_reclaim_count=cap))
    for _ in range(cap + 1):
        await lab.claim()
        await lab.after(TTL_MS)
    snapshot = await lab.describe(execution_id)
    assert snapshot.public_state is PublicState.FAILED
    assert snapshot.failure_reason == "max_reclaims_exceeded"
    assert snapshot.total_attempt_count == cap + 1
    attempts = (await lab.engine.list_attempts(execution_id=execution_id)).items
    assert {each.outcome for each in attempts} == {AttemptOutcome.INTERRUPTED_RECLAIMED}
    assert len(await lab.completions(execution_id)) == 1


@scenario
async def test_the_calls_cap_goes_before_the_policys_and_both_numbers_are_told(lab: Lab) -> None:
    lost = await lab.lapsed(policy=ExecutionPolicy(max_reclaim_count=50))
    await grant(lab, lost.execution_id)
    answer = await reclaim(lab, lost.execution_id, cap=0)
    assert answer == ReclaimCapExceeded(lost.execution_id, 0, 0)
    assert await lab.state(lost.execution_id) is PublicState.FAILED
    record = await lab.record(lost.execution_id)
    assert record.grant is None


class Sleeper:
    """A worker that shares the engine's process."""

    instance_id = "w1-1"

    async def catch_up(self) -> None: ...


@scenario
async def test_a_lease_that_expired_while_its_process_stood_still_is_no_recovery(lab: Lab) -> None:
    execution_id = await lab.create(policy=ExecutionPolicy(max_reclaim_count=1))
    with lab.engine.workers_here.present(Sleeper()):
        for attempt in range(3):
            assert (await lab.claim()).attempt_index == attempt
            await lab.after(TTL_MS)
    snapshot = await lab.describe(execution_id)
    assert (snapshot.public_state, snapshot.reclaim_count) == (PublicState.WAITING, 0)
    for _ in range(2):  # gone from here, it counts like any other
        await lab.claim()
        await lab.after(TTL_MS)
    assert (await lab.describe(execution_id)).failure_reason == "max_reclaims_exceeded"
