"""Quotas for external schedulers: check_admission, release_admission, reservations that lapse."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import InvalidInput, NotFound
from flowfabric.ids import new_execution_id
from flowfabric.model.quota import (
    AdmissionOutcome,
    AdmissionReleased,
    AdmissionState,
    Admitted,
    AlreadyAdmitted,
    ConcurrencyExceeded,
    RateExceeded,
)
from flowfabric.model.state import PublicState
from tests.support.gates import QUOTA, admissions, counted, gate, many, places, quota
from tests.support.lab import Lab, scenario

WINDOW_MS = 10_000


async def check(lab: Lab, execution_id: str, **fields: Any) -> AdmissionOutcome:
    fields = {"quota_policy_id": QUOTA, **fields}
    return await lab.engine.check_admission(execution_id=execution_id, **fields)


async def release(lab: Lab, execution_id: str, **fields: Any) -> AdmissionReleased:
    fields = {"quota_policy_id": QUOTA, **fields}
    return await lab.engine.release_admission(execution_id=execution_id, **fields)


@counted
async def test_the_window_answers_with_the_time_to_wait(lab: Lab) -> None:
    """The fourth of three."""
    await quota(lab, rate=3)
    ids = [await lab.create() for _ in range(4)]
    answers = []
    for execution_id in ids:
        answers.append(await check(lab, execution_id))
        lab.clock.advance(1_000)
    assert answers == [Admitted()] * 3 + [RateExceeded(WINDOW_MS - 3_000)]
    lab.clock.advance(WINDOW_MS - 4_000)
    assert await check(lab, ids[3]) == Admitted()


@counted
async def test_asking_twice_is_answered_and_counted_once(lab: Lab) -> None:
    """Whatever the time between, and beyond the window."""
    await quota(lab, rate=3, cap=3, window=1)
    execution_id = await lab.create()
    assert await check(lab, execution_id, reservation_ms=60_000) == Admitted()
    for pause in (0, 1, 5_000):
        lab.clock.advance(pause)
        assert await check(lab, execution_id) == AlreadyAdmitted()
    assert (await gate(lab)).active == 1


@counted
async def test_the_cap_is_freed_by_release_and_only_once(lab: Lab) -> None:
    """The start stays counted; an execution that was never admitted frees nothing."""
    await quota(lab, cap=1, rate=5)
    first, second = await lab.create(), await lab.create()
    assert await check(lab, first) == Admitted()
    assert await check(lab, second) == ConcurrencyExceeded()
    assert await release(lab, second) == AdmissionReleased(released=False)
    assert await check(lab, second) == ConcurrencyExceeded()
    assert await release(lab, first) == AdmissionReleased(released=True)
    assert await release(lab, first) == AdmissionReleased(released=False)
    assert await check(lab, second) == Admitted()
    row = await gate(lab)
    assert (row.active, row.in_window) == (1, 2)


@counted
async def test_a_reservation_lapses_by_itself(lab: Lab) -> None:
    """A crash after the admission returns the place."""
    await quota(lab, cap=1)
    first, second = await lab.create(), await lab.create()
    await check(lab, first, reservation_ms=2_000)
    assert (await admissions(lab))[first].state is AdmissionState.RESERVED
    await lab.after(1_999)
    assert await check(lab, second) == ConcurrencyExceeded()
    await lab.after(1)
    assert await places(lab) == set()
    assert await check(lab, second) == Admitted()  # for a window, if nobody says
    await lab.after(WINDOW_MS)
    assert await places(lab) == set()


@counted
async def test_a_lapsed_reservation_calls_up_whoever_waits(lab: Lab) -> None:
    await quota(lab, cap=1)
    await check(lab, await lab.create(lane_id="elsewhere"), reservation_ms=1_000)
    (waiting,) = await many(lab, 1)
    assert await lab.claims() == []
    await lab.after(1_000)
    assert (await lab.claim()).execution_id == waiting


@counted
async def test_a_claim_uses_the_place_that_was_reserved_for_it(lab: Lab) -> None:
    await quota(lab, cap=1, rate=1)
    (execution_id,) = await many(lab, 1)
    await check(lab, execution_id, reservation_ms=1_000)
    claimed = await lab.claim()
    row = (await admissions(lab))[execution_id]
    assert (row.state, row.due_at) == (AdmissionState.RUNNING, None)
    await lab.after(1_000)  # the reservation's time no longer matters
    assert await places(lab) == {execution_id}
    await lab.engine.complete(claimed.handle)
    assert await places(lab) == set()


@counted
async def test_a_place_of_another_quota_ends_with_the_execution(lab: Lab) -> None:
    """An unattached execution: its lease uses the scheduler's reservation and ends it."""
    await quota(lab, cap=1)
    execution_id = await lab.create()
    await check(lab, execution_id, reservation_ms=1_000)
    claimed = await lab.claim()
    await lab.after(1_000)
    assert await places(lab) == {execution_id}
    await lab.engine.complete(claimed.handle)
    assert await places(lab) == set()


@counted
async def test_a_place_taken_while_it_runs_ends_with_its_lease(lab: Lab) -> None:
    await quota(lab, cap=1)
    claimed = await lab.started()
    await check(lab, claimed.execution_id, reservation_ms=1_000)
    await lab.after(1_000)
    assert await places(lab) == {claimed.execution_id}
    await lab.engine.fail(claimed.handle, reason="no")
    assert await places(lab) == set()


@pytest.mark.parametrize("attached", [True, False])
@counted
async def test_cancelling_before_the_start_returns_the_reservation(
    lab: Lab, attached: bool
) -> None:
    await quota(lab, cap=1)
    execution_id = await lab.create(quota_policy_id=QUOTA if attached else None)
    await check(lab, execution_id, reservation_ms=60_000)
    await lab.cancel(execution_id)
    assert await places(lab) == set()


@counted
async def test_releasing_the_own_place_leaves_others_to_their_end(lab: Lab) -> None:
    await quota(lab, cap=1)
    await quota(lab, "other", cap=1)
    execution_id = await lab.create(quota_policy_id=QUOTA)
    for name in (QUOTA, "other"):
        await check(lab, execution_id, quota_policy_id=name, reservation_ms=60_000)
    assert (await release(lab, execution_id)).released
    assert (await gate(lab)).active == 0
    assert (await gate(lab, name="other")).active == 1
    await lab.engine.complete((await lab.claim()).handle)
    assert (await gate(lab)).active == 0
    assert (await gate(lab, name="other")).active == 0


@counted
async def test_an_id_nobody_created_is_admitted_and_lapses(lab: Lab) -> None:
    """A scheduler may ask before it creates; the place comes back by itself."""
    await quota(lab, cap=1, rate=9)
    made_up = new_execution_id(lab.engine.store.partitions)
    assert await check(lab, made_up, reservation_ms=500) == Admitted()
    assert await check(lab, made_up) == AlreadyAdmitted()
    await lab.after(500)
    assert await places(lab) == set()
    assert await release(lab, made_up) == AdmissionReleased(released=False)


@counted
async def test_a_key_has_its_own_gate(lab: Lab) -> None:
    await quota(lab, cap=1)
    ids = [await lab.create() for _ in range(3)]
    assert await check(lab, ids[0], dimension="a") == Admitted()
    assert await check(lab, ids[1], dimension="a") == ConcurrencyExceeded()
    assert await check(lab, ids[1], dimension="b") == Admitted()
    assert await check(lab, ids[2]) == Admitted()  # without a key: the default gate
    assert (await gate(lab)).active == 1
    assert await release(lab, ids[0]) == AdmissionReleased(released=False)
    assert await release(lab, ids[0], dimension="a") == AdmissionReleased(released=True)


@counted
async def test_an_unlimited_policy_admits_everybody_and_counts_them(lab: Lab) -> None:
    """A zero limit disables that check."""
    await quota(lab)
    for execution_id in [await lab.create() for _ in range(5)]:
        assert await check(lab, execution_id) == Admitted()
    assert (await gate(lab)).active == 5
    assert (await gate(lab)).in_window == 0


@counted
async def test_a_reservation_for_one_keeps_another_from_the_claim(lab: Lab) -> None:
    await quota(lab, cap=1)
    reserved, other = await many(lab, 2)
    await check(lab, reserved, reservation_ms=60_000)
    claimed = await lab.claims(limit=5)
    assert [each.execution_id for each in claimed] == [reserved]
    assert await lab.state(other) is PublicState.RATE_LIMITED


@scenario
async def test_an_unknown_policy_is_not_found_and_not_made(lab: Lab) -> None:
    execution_id = await lab.create()
    async with lab.refuses(NotFound):
        await check(lab, execution_id)
    async with lab.refuses(NotFound):
        await check(lab, execution_id, reservation_ms=1)
    async with lab.unchanged():
        assert await release(lab, execution_id) == AdmissionReleased(released=False)
    assert (await lab.engine.list_quota_policies()).items == ()


@pytest.mark.parametrize("reservation_ms", [0, -1, 2**60, 1.5, "1"])
@scenario
async def test_a_reservation_lasts_a_while(lab: Lab, reservation_ms: Any) -> None:
    await quota(lab, cap=1)
    execution_id = await lab.create()
    async with lab.refuses(InvalidInput, field="reservation_ms"):
        await check(lab, execution_id, reservation_ms=reservation_ms)


@pytest.mark.parametrize("wrong", ["", "nonsense", "{fp:999}:01890000-0000-7000-8000-000000000001"])
@scenario
async def test_an_admission_is_for_an_execution_id(lab: Lab, wrong: str) -> None:
    await quota(lab, cap=1)
    for call in (check, release):
        async with lab.refuses(InvalidInput, field="execution_id"):
            await call(lab, wrong)
