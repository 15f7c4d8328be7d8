"""Quotas: how many run at once, and every way a place becomes free."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from flowfabric.errors import PlaceInUse
from flowfabric.model.attempt import FailureClass
from flowfabric.model.quota import AdmissionState
from flowfabric.model.results import Claimed
from flowfabric.model.state import BlockingReason, PublicState
from tests.support.builders import policy, retries
from tests.support.gates import QUOTA, admissions, counted, gate, many, places, quota
from tests.support.lab import TTL_MS, Lab

RETRYING = policy(retry_policy=retries(3))


@counted
async def test_the_third_of_two_runs_only_when_one_ends_whatever_the_window(lab: Lab) -> None:
    await quota(lab, cap=2, window=1)
    first, second, third = await many(lab, 3)
    running = await lab.claims(limit=10, lease_ttl_ms=3_600_000)
    assert [each.execution_id for each in running] == [first, second]
    for _ in range(5):
        await lab.after(60_000)  # many windows: whoever still runs is neither forgotten
        assert await lab.claims("w2") == []
        assert (await gate(lab)).active == 2  # nor counted twice
    record = await lab.record(third)
    assert record.public_state is PublicState.RATE_LIMITED
    assert record.state.blocking_reason is BlockingReason.WAITING_FOR_QUOTA
    await lab.engine.complete(running[0].handle)
    assert await lab.state(third) is PublicState.WAITING
    assert (await lab.claim("w2")).execution_id == third


async def complete(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.complete(claimed.handle)


async def fail_for_good(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.fail(claimed.handle, reason="no", failure_class=FailureClass.PERMANENT)


async def fail_and_retry(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.fail(claimed.handle, reason="again")
    assert await lab.state(claimed.execution_id) is PublicState.DELAYED


async def give_up(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.cancel(claimed.handle, reason="enough")


async def be_cancelled(lab: Lab, claimed: Claimed) -> None:
    await lab.cancel(claimed.execution_id)


async def pause(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.delay(claimed.handle, delay_until=lab.now + 60_000)


async def miss_its_deadline(lab: Lab, claimed: Claimed) -> None:
    assert claimed.deadline_at is not None
    lab.clock.set(claimed.deadline_at)
    await lab.engine.move_due()
    assert await lab.state(claimed.execution_id) is PublicState.EXPIRED


async def lose_its_lease(lab: Lab, claimed: Claimed) -> None:
    lab.clock.set(claimed.lease_expires_at)
    await lab.engine.mark_lease_expired_if_due(execution_id=claimed.execution_id)


async def lose_its_lease_in_the_loop(lab: Lab, claimed: Claimed) -> None:
    lab.clock.set(claimed.lease_expires_at)
    await lab.engine.move_due()


async def be_revoked(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="suspect")


async def be_completed_by_an_operator(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.complete_execution(
        execution_id=claimed.execution_id, source="operator_override"
    )


ENDINGS = (
    complete,
    fail_for_good,
    fail_and_retry,
    give_up,
    be_cancelled,
    pause,
    miss_its_deadline,
    lose_its_lease,
    lose_its_lease_in_the_loop,
    be_revoked,
    be_completed_by_an_operator,
)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: each.__name__)
@counted
async def test_a_place_is_free_the_moment_its_execution_no_longer_runs(
    lab: Lab, ending: Callable[[Lab, Claimed], Awaitable[None]]
) -> None:
    """The release is part of the transition, and wakes waiting executions."""
    await quota(lab, cap=1)
    short = ending is miss_its_deadline
    (leaving,) = await many(
        lab, 1, policy=RETRYING, execution_deadline_at=lab.now + 5000 if short else None
    )
    (waiting,) = await many(lab, 1)
    claimed = (await lab.claims(limit=5))[0]
    assert claimed.execution_id == leaving
    assert await lab.state(waiting) is PublicState.RATE_LIMITED
    assert await places(lab) == {leaving}
    await ending(lab, claimed)
    assert leaving not in await places(lab)
    assert await lab.state(waiting) is PublicState.WAITING
    got = [each.execution_id for each in await lab.claims("w2", limit=5)]
    assert len(got) == 1  # whoever comes first; never two at once
    assert await places(lab) == set(got)


@counted
async def test_a_cancelled_waiter_gives_nothing_back(lab: Lab) -> None:
    await quota(lab, cap=1)
    running, waiting, ready = await many(lab, 3)
    await lab.claims(limit=2)
    await lab.cancel(waiting)
    await lab.cancel(ready)
    assert await places(lab) == {running}


@counted
async def test_releasing_twice_is_harmless(lab: Lab) -> None:
    """Release frees only what was admitted, and once."""
    await quota(lab, cap=2)
    first, second, stranger = await many(lab, 3)
    for execution_id in (first, second):
        await lab.engine.check_admission(quota_policy_id=QUOTA, execution_id=execution_id)
    release = lab.engine.release_admission
    assert (await release(quota_policy_id=QUOTA, execution_id=first)).released
    for execution_id in (first, stranger):
        assert not (await release(quota_policy_id=QUOTA, execution_id=execution_id)).released
    assert await places(lab) == {second}


@counted
async def test_the_place_of_a_running_execution_is_not_given_away(lab: Lab) -> None:
    """Issue 10 A8: one place, so at most one runs, whatever is released by hand."""
    await quota(lab, cap=1)
    first, second = await many(lab, 2)
    running = await lab.claim()
    async with lab.refuses(PlaceInUse, field=first):
        await lab.engine.release_admission(quota_policy_id=QUOTA, execution_id=first)
    assert await lab.claims("w2") == []
    await lab.engine.complete(running.handle)
    assert (await lab.claim("w2")).execution_id == second
    assert not (
        await lab.engine.release_admission(quota_policy_id=QUOTA, execution_id=first)
    ).released
    assert await places(lab) == {second}


@counted
async def test_a_place_an_external_scheduler_took_is_kept_while_its_execution_runs(
    lab: Lab,
) -> None:
    """The same for a quota the execution does not name itself, and for one that runs already."""
    await quota(lab, cap=1)
    execution_id = await lab.create()
    await lab.engine.check_admission(quota_policy_id=QUOTA, execution_id=execution_id)
    running = await lab.claim()
    for _ in range(2):
        async with lab.refuses(PlaceInUse):
            await lab.engine.release_admission(quota_policy_id=QUOTA, execution_id=execution_id)
        await lab.engine.renew(running.handle)
    await lab.engine.complete(running.handle)
    assert (await gate(lab)).active == 0


@counted
async def test_each_key_has_places_of_its_own(lab: Lab) -> None:
    """Per-customer limits; the denied of one key never hide another key's."""
    await quota(lab, cap=1)
    mine = await many(lab, 3, concurrency_key="mine")
    yours = await many(lab, 3, concurrency_key="yours")
    keyless = await many(lab, 2)
    claimed = await lab.claims(limit=10)
    assert [each.execution_id for each in claimed] == [mine[0], yours[0], keyless[0]]
    await lab.engine.complete(claimed[1].handle)
    assert [each.execution_id for each in await lab.claims(limit=10)] == [yours[1]]
    status = await lab.engine.get_quota_status(quota_policy_id=QUOTA)
    counts = {row.dimension: row.active for row in status.gates}
    assert counts == {"mine": 1, "yours": 1, "default": 1}


@counted
async def test_the_best_waiter_is_called_up_first(lab: Lab) -> None:
    await quota(lab, cap=1)
    await many(lab, 1, priority=9000)
    low = (await many(lab, 1, priority=1))[0]
    high = (await many(lab, 1, priority=5))[0]
    (running,) = await lab.claims(limit=5)
    await lab.engine.complete(running.handle)
    assert await lab.state(high) is PublicState.WAITING
    assert await lab.state(low) is PublicState.RATE_LIMITED


@counted
async def test_as_many_are_called_up_as_places_became_free(lab: Lab) -> None:
    await quota(lab, cap=3)
    await many(lab, 10)
    running = await lab.claims(limit=10)
    assert len(running) == 3
    for claimed in running[:2]:
        await lab.engine.complete(claimed.handle)
    summary = [await lab.state(each.execution_id) for each in running]
    assert summary.count(PublicState.COMPLETED) == 2
    waiting = await lab.engine.scan_eligible_executions(lane_id="default", limit=10)
    assert len(waiting) == 2


@counted
async def test_raising_the_cap_calls_waiters_up_at_once(lab: Lab) -> None:
    await quota(lab, cap=1)
    await many(lab, 5)
    await lab.claims(limit=5)
    await lab.engine.update_quota_policy(quota_policy_id=QUOTA, max_concurrent=3)
    assert len(await lab.claims("w2", limit=5)) == 2
    await lab.engine.update_quota_policy(quota_policy_id=QUOTA, max_concurrent=0)
    assert len(await lab.claims("w3", limit=5)) == 2


@counted
async def test_lowering_the_cap_stops_nobody_who_runs(lab: Lab) -> None:
    await quota(lab, cap=3)
    await many(lab, 5)
    running = await lab.claims(limit=5)
    await lab.engine.update_quota_policy(quota_policy_id=QUOTA, max_concurrent=1)
    for claimed in running:
        await lab.engine.renew(claimed.handle)
    for claimed in running[:2]:
        await lab.engine.complete(claimed.handle)
        assert await lab.claims("w2", limit=5) == []  # still as many run as may
    await lab.engine.complete(running[2].handle)
    assert len(await lab.claims("w2", limit=5)) == 1


@counted
async def test_room_that_the_called_up_do_not_use_is_offered_to_others(lab: Lab) -> None:
    """A called-up execution on a paused lane must not keep the place empty."""
    await quota(lab, cap=1)
    await lab.started(quota_policy_id=QUOTA)
    stuck = (await many(lab, 1, lane_id="side", priority=9))[0]
    other = (await many(lab, 1))[0]
    assert await lab.claims(lanes=("default", "side"), limit=5) == []
    await lab.engine.pause_lane(lane_id="side")
    running = next(iter(await places(lab)))
    await lab.cancel(running)
    assert await lab.state(stuck) is PublicState.WAITING
    assert await lab.claims(lanes=("default", "side")) == []
    await lab.after(999)
    assert await lab.state(other) is PublicState.RATE_LIMITED
    await lab.after(1)
    assert (await lab.claim()).execution_id == other


@counted
async def test_a_resumed_attempt_is_admitted_again(lab: Lab) -> None:
    await quota(lab, cap=1)
    first = (await lab.started(quota_policy_id=QUOTA)).handle
    await lab.engine.delay(first, delay_until=lab.now + 10)
    second = await lab.started(quota_policy_id=QUOTA)
    await lab.after(10)
    assert await lab.claims("w2") == []
    assert await lab.state(first.execution_id) is PublicState.RATE_LIMITED
    await lab.engine.complete(second.handle)
    resumed = await lab.claim("w2")
    assert (resumed.execution_id, resumed.attempt_index) == (first.execution_id, 0)


@counted
async def test_replay_takes_a_place_like_any_start(lab: Lab) -> None:
    await quota(lab, cap=1)
    done = await lab.completed(quota_policy_id=QUOTA)
    await lab.started(quota_policy_id=QUOTA)
    await lab.engine.replay_execution(execution_id=done)
    assert await lab.claims("w2") == []
    assert await lab.state(done) is PublicState.RATE_LIMITED


@counted
async def test_a_lost_lease_is_claimed_under_the_quota_again(lab: Lab) -> None:
    await quota(lab, cap=1)
    lost = await lab.started(quota_policy_id=QUOTA)
    waiting = (await many(lab, 1))[0]
    assert await lab.claims("w2") == []
    await lab.after(TTL_MS)
    (again,) = await lab.claims("w2", limit=5)
    assert again.execution_id in (lost.execution_id, waiting)
    assert (await admissions(lab))[again.execution_id].state is AdmissionState.RUNNING
