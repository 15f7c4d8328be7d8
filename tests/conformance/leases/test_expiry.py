"""Time: lapsed leases, attempts that ran too long, deadlines."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidInput
from flowfabric.model.attempt import AttemptOutcome, AttemptType
from flowfabric.model.event import LeaseEventType
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.results import Moved
from flowfabric.model.state import OwnershipState, PublicState
from tests.support.builders import policy, retries
from tests.support.lab import TTL_MS, Lab, scenario


@scenario
async def test_a_lapsed_lease_is_marked_exactly_at_its_end(lab: Lab) -> None:
    """Invariant I3."""
    claimed = await lab.started()
    execution_id = claimed.execution_id
    lab.clock.set(claimed.lease_expires_at - 1)
    early = await lab.engine.mark_lease_expired_if_due(execution_id=execution_id)
    assert early == Moved(execution_id, "unchanged")
    lab.clock.advance(1)
    await lab.engine.mark_lease_expired_if_due(execution_id=execution_id)
    snapshot = await lab.describe(execution_id)
    assert snapshot.state.ownership_state is OwnershipState.LEASE_EXPIRED_RECLAIMABLE
    assert snapshot.public_state is PublicState.ACTIVE
    again = await lab.engine.mark_lease_expired_if_due(execution_id=execution_id)
    assert again.what == "unchanged"
    events = [event.event_type for event in await lab.lease_events(execution_id)]
    assert events == [LeaseEventType.ACQUIRED, LeaseEventType.EXPIRED]


@scenario
async def test_lost_work_is_run_again_by_itself(lab: Lab) -> None:
    """I9: recovery needs no operator and no explicit reclaim."""
    first = await lab.started("w1")
    await lab.after(TTL_MS - 1)
    assert await lab.claims("w2") == []
    await lab.after(1)
    second = await lab.claim("w2")
    assert second.execution_id == first.execution_id
    assert (second.attempt_index, second.attempt_type) == (1, AttemptType.RECLAIM)
    assert second.lease_epoch > first.lease_epoch
    attempts = (await lab.engine.list_attempts(execution_id=first.execution_id)).items
    assert [each.outcome for each in attempts] == [
        AttemptOutcome.INTERRUPTED_RECLAIMED,
        AttemptOutcome.STARTED,
    ]
    assert (await lab.describe(first.execution_id)).reclaim_count == 1


@scenario
async def test_a_renewed_lease_does_not_lapse(lab: Lab) -> None:
    claimed = await lab.started()
    for _ in range(4):
        await lab.after(TTL_MS - 1)
        renewal = await lab.engine.renew(claimed.handle)
        assert renewal.expires_at_ms == lab.now + TTL_MS
        assert renewal.lease_epoch == claimed.lease_epoch
    snapshot = await lab.describe(claimed.execution_id)
    assert snapshot.current_lease is not None
    assert snapshot.current_lease.last_heartbeat_at == lab.now
    assert len(await lab.lease_events(claimed.execution_id)) == 1


@scenario
async def test_an_attempt_that_ran_too_long_is_retried(lab: Lab) -> None:
    """Its own due time, class timeout, no reclaim."""
    rules = policy(attempt_timeout_ms=5000, retry_policy=retries(1, 700))
    claimed = await lab.started(policy=rules)
    await lab.after(4999)
    assert await lab.state(claimed.execution_id) is PublicState.ACTIVE
    await lab.after(1)
    snapshot = await lab.describe(claimed.execution_id)
    assert snapshot.public_state is PublicState.DELAYED
    assert (snapshot.retry_count, snapshot.reclaim_count) == (1, 0)
    assert snapshot.eligible_at == lab.now + 700
    await lab.after(700)
    again = await lab.claim("w2")
    assert (again.attempt_index, again.attempt_type) == (1, AttemptType.RETRY)
    assert again.lease_expires_at == lab.now + 5000
    await lab.after(5000)
    ended = await lab.describe(claimed.execution_id)
    assert ended.public_state is PublicState.EXPIRED
    assert ended.failure_reason == "attempt_timeout"
    assert len(await lab.completions(claimed.execution_id)) == 1


@scenario
async def test_renewals_are_told_where_the_policy_asks_for_it(lab: Lab) -> None:
    quiet = await lab.started()
    told = await lab.started(policy=ExecutionPolicy(renewal_events=True), lane_id="told")
    for each in (quiet, told):
        await lab.engine.renew(each.handle)
    page = await lab.engine.read_events(kinds=("lease",))
    renewed = [event.subject for event in page.events if event.event_type == "renewed"]
    assert renewed == [told.execution_id]


@scenario
async def test_renewing_does_not_buy_an_attempt_more_time(lab: Lab) -> None:
    claimed = await lab.started(policy=policy(attempt_timeout_ms=5000))
    lab.clock.advance(4000)
    assert (await lab.engine.renew(claimed.handle)).expires_at_ms == lab.now + 1000
    await lab.after(1000)
    assert await lab.state(claimed.execution_id) is PublicState.EXPIRED


@scenario
async def test_a_deadline_ends_every_phase(lab: Lab) -> None:
    """Waiting, delayed, blocked, held, parked, lost and running."""
    deadline_at = lab.now + 2 * TTL_MS
    fields: dict[str, Any] = {"execution_deadline_at": deadline_at}
    running = await lab.started(**fields)
    parked = await lab.started(**fields)
    await lab.engine.delay(parked.handle, delay_until=deadline_at + 5)
    retrying = await lab.started(policy=policy(retry_policy=retries(1, 10**6)), **fields)
    await lab.engine.fail(retrying.handle, reason="x")
    revoked = await lab.started(**fields)
    delayed = await lab.create(delay_until=deadline_at + 5, **fields)
    held = await lab.create(**fields)
    await lab.engine.hold_execution(execution_id=held)
    blocked = await lab.create(**fields)
    await lab.engine.block_execution_for_admission(
        execution_id=blocked, reason="waiting_for_budget"
    )
    waiting = await lab.create(**fields)
    lab.clock.set(deadline_at - 1)
    await lab.engine.revoke_lease(execution_id=revoked.execution_id, reason="x")
    ids = [
        *(each.execution_id for each in (running, parked, retrying, revoked)),
        *(delayed, held, blocked, waiting),
    ]
    for execution_id in ids:
        early = await lab.engine.expire_execution(
            execution_id=execution_id, phase="execution_deadline"
        )
        assert early.what == "unchanged"
    await lab.after(1)
    for execution_id in ids:
        snapshot = await lab.describe(execution_id)
        assert snapshot.public_state is PublicState.EXPIRED, execution_id
        assert snapshot.failure_reason == "execution_deadline"
        assert len(await lab.completions(execution_id)) == 1
        attempts = (await lab.engine.list_attempts(execution_id=execution_id)).items
        assert all(attempt.ended_at is not None for attempt in attempts)


@scenario
async def test_a_deadline_beats_a_lapsed_lease_at_the_same_instant(lab: Lab) -> None:
    """The lease ends with the deadline, and the deadline decides."""
    claimed = await lab.started(execution_deadline_at=lab.now + 5000)
    assert claimed.lease_expires_at == lab.now + 5000
    await lab.after(5000)
    snapshot = await lab.describe(claimed.execution_id)
    assert snapshot.public_state is PublicState.EXPIRED
    assert snapshot.reclaim_count == 0
    events = [event.event_type for event in await lab.lease_events(claimed.execution_id)]
    assert events == [LeaseEventType.ACQUIRED]  # not expired: the completion ended it


@scenario
async def test_a_stale_timer_does_no_harm(lab: Lab) -> None:
    """Every hook checks again and changes nothing when it is not due."""
    rules = policy(attempt_timeout_ms=10_000, retry_policy=retries(3, 0))
    first = await lab.started(policy=rules)
    await lab.engine.fail(first.handle, reason="x")
    lab.clock.advance(9_000)
    await lab.claim("w2")
    lab.clock.advance(1_000)
    execution_id = first.execution_id
    async with lab.unchanged():
        for phase in ("attempt_timeout", "execution_deadline"):
            moved = await lab.engine.expire_execution(execution_id=execution_id, phase=phase)
            assert moved.what == "unchanged"
        assert (await lab.engine.promote_delayed(execution_id=execution_id)).what == "unchanged"
        await lab.engine.mark_lease_expired_if_due(execution_id=execution_id)
        assert await lab.engine.tick() == 0


@scenario
async def test_an_unknown_phase_is_refused(lab: Lab) -> None:
    execution_id = await lab.create()
    async with lab.refuses(InvalidInput, field="phase"):
        await lab.engine.expire_execution(execution_id=execution_id, phase="lunch")


@pytest.mark.parametrize("number", [700])
@scenario
async def test_many_due_at_once_are_all_moved(lab: Lab, number: int) -> None:
    """The first do not hide the rest, whatever the batch."""
    for _ in range(number // 100):
        await lab.engine.create_executions(
            [NewExecution(execution_kind="work", delay_until=lab.now + 10)] * 100
        )
    lab.clock.advance(10)
    while await lab.engine.tick():
        pass
    assert await lab.engine.count_executions() == {"default": {"waiting": number}}


@scenario
async def test_a_tick_with_nothing_due_does_nothing(lab: Lab) -> None:
    await lab.started()
    await lab.create(delay_until=lab.now + 1)
    async with lab.unchanged():
        assert await lab.engine.tick() == 0
