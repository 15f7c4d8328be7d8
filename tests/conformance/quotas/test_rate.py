"""Quotas: how many start per sliding window, and when the refused come back."""

from __future__ import annotations

import random
from typing import Any

from flowfabric.api.leases import Complete
from flowfabric.model.quota import RateExceeded
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from tests.support.builders import policy, retries
from tests.support.gates import QUOTA, admissions, counted, gate, many, quota
from tests.support.lab import Lab

WINDOW_MS = 10_000
LONG: dict[str, Any] = {"lease_ttl_ms": 3_600_000}


@counted
async def test_the_fourth_of_three_comes_back_when_the_window_has_room(lab: Lab) -> None:
    """retry_after is at most the window and becomes the due time."""
    await quota(lab, rate=3)
    ids = await many(lab, 4)
    running = await lab.claims(limit=10)
    assert [each.execution_id for each in running] == ids[:3]
    denied = await lab.record(ids[3])
    assert denied.public_state is PublicState.RATE_LIMITED
    assert denied.blocked_until == lab.now + WINDOW_MS
    for claimed in running:  # the window counts starts: an end gives none back
        await lab.engine.complete(claimed.handle)
    assert await lab.claims(limit=10) == []
    await lab.after(WINDOW_MS - 1)
    assert await lab.claims() == []
    await lab.after(1)
    assert (await lab.claim()).execution_id == ids[3]


@counted
async def test_the_window_slides(lab: Lab) -> None:
    """At no time do more start within any window's length; each leaves by itself."""
    await quota(lab, rate=3)
    await many(lab, 12)
    started: list[int] = []
    for _ in range(60):
        claimed = await lab.claims(limit=1, **LONG)
        started += [lab.now] * len(claimed)
        await lab.after(1_000)
    assert len(started) == 12
    for index in range(3, 12):
        assert started[index] - started[index - 3] >= WINDOW_MS


@counted
async def test_fifty_admissions_in_one_millisecond_count_as_fifty(lab: Lab) -> None:
    await quota(lab, rate=50)
    await many(lab, 60)
    assert len(await lab.claims(limit=60)) == 50
    assert (await gate(lab)).in_window == 50
    check = lab.engine.check_admission
    stranger = (await many(lab, 1))[0]
    refused = await check(quota_policy_id=QUOTA, execution_id=stranger)
    assert refused == RateExceeded(WINDOW_MS)


@counted
async def test_an_execution_is_in_the_window_once(lab: Lab) -> None:
    """Started again in the same millisecond or later, its entry moves."""
    await quota(lab, rate=2)
    (execution_id,) = await many(lab, 1, policy=policy(retry_policy=retries(9, delay_ms=0)))
    for pause in (0, 0, 1, 5):
        await lab.after(pause)
        claimed = await lab.claim()
        await lab.engine.fail(claimed.handle, reason="again")
        await lab.after(0)
    row = (await admissions(lab))[execution_id]
    assert (row.admitted_at, row.counted_at) == (lab.now, lab.now)
    assert (await gate(lab)).in_window == 1


@counted
async def test_of_many_refused_no_more_come_back_at_once_than_fit(lab: Lab) -> None:
    await quota(lab, rate=3)
    await many(lab, 10)
    await lab.claims(limit=10, **LONG)
    for left in (4, 1, 0):
        await lab.after(WINDOW_MS)
        waiting = await lab.engine.scan_eligible_executions(lane_id="default", limit=10)
        assert len(waiting) == (3 if left else 1)
        assert len(await lab.claims(limit=10, **LONG)) == len(waiting)
    assert (await lab.engine.scan_eligible_executions(lane_id="default", limit=10)) == []


@counted
async def test_claims_that_come_late_waste_no_window(lab: Lab) -> None:
    """Who comes back a moment before the window has room is not sent behind everybody else."""
    rate, total = 3, 15
    await quota(lab, rate=rate)
    await many(lab, total)
    chance = random.Random(1)
    began = lab.now
    started: list[Claimed] = []
    while len(started) < total:
        assert lab.now - began < 2 * WINDOW_MS * total / rate, f"{len(started)} started"
        await lab.after(chance.randrange(1, 700))
        started += await lab.claims(limit=rate, **LONG)
    windows = total / rate - 1
    assert lab.now - began <= windows * (WINDOW_MS + 2_000)


@counted
async def test_a_line_that_broke_up_is_forgotten(lab: Lab) -> None:
    """Who is refused after the others were cancelled waits for the window and not for them."""
    await quota(lab, rate=1)
    await many(lab, 1)
    line = await many(lab, 20)
    await lab.claims(limit=1)
    assert await lab.claims(limit=30) == []
    for execution_id in line:
        await lab.cancel(execution_id)
    late = (await many(lab, 1))[0]
    assert await lab.claims() == []
    await lab.after(WINDOW_MS)
    await lab.after(1_000)
    assert (await lab.claim()).execution_id == late


@counted
async def test_raising_the_rate_calls_waiters_up_at_once(lab: Lab) -> None:
    await quota(lab, rate=1)
    await many(lab, 6)
    await lab.claims(limit=6)
    await lab.engine.update_quota_policy(quota_policy_id=QUOTA, max_requests_per_window=3)
    assert len(await lab.claims(limit=6)) == 2
    await lab.engine.update_quota_policy(quota_policy_id=QUOTA, max_requests_per_window=0)
    assert len(await lab.claims(limit=6)) == 3


@counted
async def test_a_shorter_window_lets_the_old_leave(lab: Lab) -> None:
    await quota(lab, rate=1, window=3600)
    await many(lab, 2)
    await lab.claims(limit=2)
    lab.clock.advance(5_000)
    await lab.engine.update_quota_policy(quota_policy_id=QUOTA, window_seconds=1)
    await lab.engine.move_due()
    assert len(await lab.claims()) == 1


@counted
async def test_lowering_the_rate_holds_for_the_next_start(lab: Lab) -> None:
    await quota(lab, rate=5)
    await many(lab, 8)
    running = await lab.claims(limit=4)
    await lab.engine.update_quota_policy(quota_policy_id=QUOTA, max_requests_per_window=2)
    for claimed in running:
        await lab.engine.renew(claimed.handle)
    assert await lab.claims(limit=4) == []
    await lab.after(WINDOW_MS)
    assert len(await lab.claims(limit=4)) == 2


@counted
async def test_jitter_spreads_the_times_within_its_bound(lab: Lab) -> None:
    """Uniform from 0 to jitter_ms, not constant."""
    await quota(lab, rate=1, jitter_ms=5_000)
    await lab.started(quota_policy_id=QUOTA)
    stranger = (await many(lab, 1))[0]
    waits = []
    for _ in range(40):
        answer = await lab.engine.check_admission(quota_policy_id=QUOTA, execution_id=stranger)
        assert isinstance(answer, RateExceeded)
        waits.append(answer.retry_after_ms - WINDOW_MS)
    assert 0 <= min(waits) < max(waits) <= 5_000
    assert await lab.claims() == []
    until = (await lab.record(stranger)).blocked_until
    assert until is not None
    assert 0 <= until - lab.now - WINDOW_MS <= 5_000


@counted
async def test_nobody_comes_back_before_his_time_of_the_spread(lab: Lab) -> None:
    """Neither the end of another nor the look at unused room cuts the jitter short."""
    await quota(lab, rate=1, jitter_ms=60_000)
    running = await lab.started(quota_policy_id=QUOTA)
    (denied,) = await many(lab, 1)
    assert await lab.claims() == []
    until = (await lab.record(denied)).blocked_until
    assert until is not None
    await lab.engine.complete(running.handle)
    while lab.now < until - 1:
        await lab.after(min(5_000, until - 1 - lab.now))
        assert await lab.state(denied) is PublicState.RATE_LIMITED
    await lab.after(1)
    assert (await lab.claim()).execution_id == denied


@counted
async def test_rate_and_cap_hold_together(lab: Lab) -> None:
    await quota(lab, rate=3, cap=2)
    await many(lab, 6)
    running = await lab.claims(limit=6, **LONG)
    assert len(running) == 2
    await lab.engine.complete(running[0].handle)
    third = await lab.claim(**LONG)
    await lab.engine.complete(third.handle)  # a place is free, but the window is full
    assert await lab.claims(limit=6) == []
    await lab.after(WINDOW_MS)
    assert len(await lab.claims(limit=6, **LONG)) == 1  # one of two places is still taken


@counted
async def test_each_key_has_a_window_of_its_own(lab: Lab) -> None:
    await quota(lab, rate=1)
    for key in ("a", "b"):
        await many(lab, 2, concurrency_key=key)
    assert len(await lab.claims(limit=9)) == 2
    await lab.after(WINDOW_MS)
    assert len(await lab.claims(limit=9)) == 2


@counted
async def test_a_purged_execution_stays_counted_until_the_window_has_passed(lab: Lab) -> None:
    """Retention must neither give a start back nor take one away for ever."""
    await quota(lab, rate=2)
    for _ in range(2):
        await lab.completed(quota_policy_id=QUOTA, policy=policy(retention_ttl_ms=0))
    await lab.after(1)
    assert (await lab.dump())["executions"] == []
    waiting = await many(lab, 3)
    assert await lab.claims(limit=3) == []
    await lab.after(WINDOW_MS)
    assert len(await lab.claims(limit=3)) == 2
    assert await lab.state(waiting[2]) is PublicState.RATE_LIMITED


@counted
async def test_a_large_window_is_trimmed_page_by_page(lab: Lab) -> None:
    await quota(lab, rate=1200)
    await many(lab, 1200)
    for _ in range(2):
        claimed = await lab.claims(limit=600)
        await lab.engine.complete_many([Complete(handle=each.handle) for each in claimed])
    assert (await gate(lab)).in_window == 1200
    await lab.after(WINDOW_MS)
    await lab.started(quota_policy_id=QUOTA)
    assert (await gate(lab)).in_window == 1
    assert len(await admissions(lab)) == 1
