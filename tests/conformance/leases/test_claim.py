"""Claiming: one owner at a time, the best first, and nothing hides what is behind it."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric.errors import InvalidInput
from flowfabric.model.attempt import AttemptType
from flowfabric.model.event import LeaseEventType
from flowfabric.model.handle import Handle, HandleKind
from flowfabric.model.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.model.state import AttemptState, OwnershipState, PublicState
from tests.support.lab import TTL_MS, Lab, scenario


@scenario
async def test_a_claim_makes_the_worker_the_owner(lab: Lab) -> None:
    """The ids handed out are the ids on record."""
    claimed = await lab.started()
    snapshot = await lab.describe(claimed.execution_id)
    assert snapshot.public_state is PublicState.ACTIVE
    assert snapshot.state.ownership_state is OwnershipState.LEASED
    assert snapshot.state.attempt_state is AttemptState.RUNNING_ATTEMPT
    assert snapshot.current_lease is not None
    assert snapshot.current_lease.worker_instance_id == "w1-1"
    assert snapshot.current_lease.expires_at == claimed.lease_expires_at == lab.now + TTL_MS
    assert (claimed.attempt_index, claimed.attempt_type) == (0, AttemptType.INITIAL)
    assert claimed.handle.kind is HandleKind.FRESH
    record = await lab.record(claimed.execution_id)
    assert (record.lease_id, record.lease_epoch, record.attempt_id) == (
        claimed.lease_id,
        claimed.lease_epoch,
        claimed.attempt_id,
    )
    (event,) = await lab.lease_events(claimed.execution_id)
    assert (event.event_type, event.lease_epoch) == (LeaseEventType.ACQUIRED, claimed.lease_epoch)


@scenario
async def test_a_handle_survives_transport(lab: Lab) -> None:
    """A real handle, as bytes and back."""
    claimed = await lab.started()
    carried = Handle.decode(claimed.handle.encode())
    assert carried == claimed.handle
    await lab.engine.complete(carried)
    assert await lab.state(claimed.execution_id) is PublicState.COMPLETED


@scenario
async def test_many_workers_race_and_each_execution_has_one_owner(lab: Lab) -> None:
    """I4: every execution is handed out once, losers get nothing."""
    ids = {await lab.create() for _ in range(25)}
    calls = [lab.claims(f"w{number}", limit=2) for number in range(20)]
    won = [claimed for answer in await asyncio.gather(*calls) for claimed in answer]
    assert {claimed.execution_id for claimed in won} == ids
    assert len(won) == len(ids)
    assert await lab.claims("late") == []


@scenario
async def test_one_execution_raced_for_a_hundred_times_has_one_lease_per_epoch(lab: Lab) -> None:
    """I4: epochs of one execution strictly rise over all its attempts."""
    execution_id = await lab.create(policy=ExecutionPolicy(max_reclaim_count=1000))
    epochs = []
    for _ in range(100):
        rivals = [lab.claims(f"w{number}") for number in range(4)]
        answers = await asyncio.gather(*rivals)
        (claimed,) = [each for answer in answers for each in answer]
        assert claimed.execution_id == execution_id
        epochs.append(claimed.lease_epoch)
        await lab.after(TTL_MS)
    assert epochs == sorted(set(epochs))


@scenario
async def test_nothing_waiting_gives_nothing(lab: Lab) -> None:
    async with lab.unchanged():
        assert await lab.claims() == []


@scenario
async def test_a_claim_takes_up_to_its_limit_over_several_lanes_best_first(lab: Lab) -> None:
    low = await lab.create(lane_id="a", priority=1)
    high = await lab.create(lane_id="b", priority=9)
    middle = await lab.create(lane_id="a", priority=5)
    await lab.create(lane_id="other", priority=99)
    claimed = await lab.claims(lanes=("a", "b"), limit=10)
    assert [each.execution_id for each in claimed] == [high, middle, low]


@scenario
async def test_a_namespace_sees_only_its_own_work(lab: Lab) -> None:
    theirs = await lab.create(namespace="theirs", priority=9)
    ours = await lab.create(namespace="ours")
    assert (await lab.claim(namespace="ours")).execution_id == ours
    assert await lab.claims(namespace="ours") == []
    assert (await lab.claim(namespace="theirs")).execution_id == theirs


@scenario
async def test_a_worker_gets_only_the_kinds_it_handles(lab: Lab) -> None:
    await lab.create("a")
    wanted = await lab.create("b")
    assert (await lab.claim(kinds=["b", "c"])).execution_id == wanted
    assert await lab.claims(kinds=["b", "c"]) == []
    assert await lab.claims(kinds=[]) == []


@scenario
async def test_a_lease_never_outlives_the_deadline_or_the_attempt(lab: Lab) -> None:
    """Armed by every claim from the stored policy."""
    timeouts = TimeoutPolicy(attempt_timeout_ms=5000, execution_deadline_ms=3000)
    claimed = await lab.started(policy=ExecutionPolicy(timeout_policy=timeouts))
    assert claimed.lease_expires_at == lab.now + 3000
    renewal = await lab.engine.renew(claimed.handle)
    assert renewal.expires_at_ms == lab.now + 3000
    bounded = await lab.started(
        policy=ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout_ms=5000))
    )
    assert bounded.lease_expires_at == lab.now + 5000


@pytest.mark.parametrize("lease_ttl_ms", [-1, 0, 999, 3_600_001, 2**70, 1.5, "30000", True])
@scenario
async def test_a_lease_length_outside_its_bounds_is_refused(lab: Lab, lease_ttl_ms: int) -> None:
    """A negative TTL too."""
    await lab.create()
    async with lab.refuses(InvalidInput, field="lease_ttl_ms"):
        await lab.claims(lease_ttl_ms=lease_ttl_ms)


@pytest.mark.parametrize("lease_ttl_ms", [1000, 3_600_000])
@scenario
async def test_both_bounds_of_a_lease_length_are_inclusive(lab: Lab, lease_ttl_ms: int) -> None:
    await lab.create()
    claimed = await lab.claim(lease_ttl_ms=lease_ttl_ms)
    assert claimed.lease_expires_at == lab.now + lease_ttl_ms


@scenario
async def test_work_past_its_deadline_does_not_hide_what_is_behind_it(lab: Lab) -> None:
    """The head is passed over, not waited for."""
    await lab.create(priority=9, execution_deadline_at=lab.now + 10)
    behind = await lab.create()
    lab.clock.advance(10)
    assert (await lab.claim()).execution_id == behind


@scenario
async def test_a_promised_head_does_not_hide_what_is_behind_it(lab: Lab) -> None:
    head = await lab.create(priority=9)
    behind = await lab.create()
    await lab.engine.issue_claim_grant(
        execution_id=head, worker_id="w9", worker_instance_id="w9-1", grant_ttl_ms=1000
    )
    assert (await lab.claim()).execution_id == behind
    assert await lab.claims() == []
    lab.clock.advance(1001)
    assert (await lab.claim()).execution_id == head


@scenario
async def test_an_interrupted_head_is_resumed_and_hides_nothing(lab: Lab) -> None:
    """The one claim path continues interrupted attempts."""
    first = await lab.started(priority=9)
    await lab.engine.delay(first.handle, delay_until=lab.now)
    behind = await lab.create()
    resumed = await lab.claim("w2")
    assert resumed.execution_id == first.execution_id
    assert (resumed.attempt_index, resumed.attempt_id) == (first.attempt_index, first.attempt_id)
    assert resumed.handle.kind is HandleKind.RESUMED
    assert resumed.lease_epoch > first.lease_epoch
    assert (await lab.claim("w2")).execution_id == behind


@scenario
async def test_a_waiting_claim_gets_work_created_meanwhile(lab: Lab) -> None:
    """max_wait is honoured, woken by a hint."""
    await lab.configure(poll_interval_ms=600_000)  # without the hint it comes too late
    await lab.create("warm-up", lane_id="slow")
    waiting = asyncio.create_task(lab.claims(lanes=("slow2",), wait_ms=600_000))
    await asyncio.sleep(0.05)
    execution_id = await lab.create(lane_id="slow2")
    async with asyncio.timeout(60):
        (claimed,) = await waiting
    assert claimed.execution_id == execution_id


@scenario
async def test_a_waiting_claim_gives_up_in_time(lab: Lab) -> None:
    async with asyncio.timeout(60):
        assert await lab.claims(wait_ms=30) == []


@scenario
async def test_counters_and_pointers_follow_the_attempts(lab: Lab) -> None:
    """The current index and the next one are different things."""
    execution_id = await lab.create()
    engine = lab.engine
    assert await engine.read_total_attempt_count(execution_id=execution_id) == 0
    for number in range(3):
        claimed = await lab.claim(f"w{number}")
        assert claimed.attempt_index == number
        assert await engine.read_current_attempt_index(execution_id=execution_id) == number
        assert await engine.read_total_attempt_count(execution_id=execution_id) == number + 1
        await lab.after(TTL_MS)
    attempts = (await engine.list_attempts(execution_id=execution_id)).items
    assert [each.attempt_index for each in attempts] == [0, 1, 2]
