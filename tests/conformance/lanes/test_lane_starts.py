"""One rule says whether a lane hands out work, and every way of starting asks it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, get_args

import pytest

from flowfabric.api.operation import OPERATIONS
from flowfabric.errors import ExecutionNotTerminal, LaneClosed
from flowfabric.kernel.command import Command
from flowfabric.kernel.execution.claim import Claim
from flowfabric.kernel.execution.routing import Offer
from flowfabric.kernel.place.lanes import SwitchLane
from flowfabric.model.attempt import FailureClass
from flowfabric.model.results import (
    Claimed,
    GrantIssued,
    LaneChanged,
    NoWork,
    ReclaimCapExceeded,
    Replayed,
)
from flowfabric.model.route import LaneState
from flowfabric.model.state import PublicState
from tests.support.builders import policy, retries
from tests.support.lab import LANE, Lab, scenario

WORKER: Final[dict[str, Any]] = {"worker_id": "w1", "worker_instance_id": "w1-1"}
Made = Callable[[Lab], Awaitable[str]]
Way = Callable[[Lab, str], Awaitable[Any]]


async def waiting(lab: Lab) -> str:
    return await lab.create()


async def promised(lab: Lab) -> str:
    """It waits, and a grant was issued while the lane was open."""
    execution_id = await lab.create()
    await lab.engine.issue_claim_grant(execution_id=execution_id, grant_ttl_ms=60_000, **WORKER)
    return execution_id


async def parked(lab: Lab) -> str:
    """Its attempt was interrupted and may go on."""
    claimed = await lab.started()
    await lab.engine.delay(claimed.handle, delay_until=lab.now + 1)
    await lab.after(1)
    return claimed.execution_id


async def parked_and_promised(lab: Lab) -> str:
    execution_id = await parked(lab)
    await lab.engine.issue_claim_grant(execution_id=execution_id, grant_ttl_ms=60_000, **WORKER)
    return execution_id


async def lost(lab: Lab) -> str:
    await lab.configure(reclaim_grace_ms=60_000)
    return (await lab.lapsed()).execution_id


async def lost_and_promised(lab: Lab) -> str:
    execution_id = await lost(lab)
    await lab.engine.issue_reclaim_grant(execution_id=execution_id, grant_ttl_ms=60_000, **WORKER)
    return execution_id


async def claim(lab: Lab, execution_id: str) -> Any:
    claimed = await lab.claims()
    return claimed[0] if claimed else NoWork()


async def claim_for_worker(lab: Lab, execution_id: str) -> Any:
    return await lab.engine.claim_for_worker(lane_id=LANE, **WORKER)


async def issue_claim_grant(lab: Lab, execution_id: str) -> Any:
    return await lab.engine.issue_claim_grant(execution_id=execution_id, **WORKER)


async def claim_execution(lab: Lab, execution_id: str) -> Any:
    return await lab.engine.claim_execution(execution_id=execution_id, **WORKER)


async def claim_resumed_execution(lab: Lab, execution_id: str) -> Any:
    return await lab.engine.claim_resumed_execution(execution_id=execution_id, **WORKER)


async def claim_from_resume_grant(lab: Lab, execution_id: str) -> Any:
    grant = GrantIssued(execution_id, 0, "grant", lab.now, LANE)
    return await lab.engine.claim_from_resume_grant(grant=grant, **WORKER)


async def issue_grant_and_claim(lab: Lab, execution_id: str) -> Any:
    return await lab.engine.issue_grant_and_claim(
        execution_id=execution_id, lane_id=LANE, lease_duration_ms=30_000
    )


async def issue_reclaim_grant(lab: Lab, execution_id: str) -> Any:
    return await lab.engine.issue_reclaim_grant(execution_id=execution_id, **WORKER)


async def reclaim_execution(lab: Lab, execution_id: str) -> Any:
    return await lab.engine.reclaim_execution(execution_id=execution_id, **WORKER)


WAYS: Final[tuple[tuple[Made, Way], ...]] = (
    (waiting, claim),
    (waiting, claim_for_worker),
    (waiting, issue_claim_grant),
    (waiting, issue_grant_and_claim),
    (promised, claim_execution),
    (parked, claim),
    (parked, claim_for_worker),
    (parked, issue_claim_grant),
    (parked, issue_grant_and_claim),
    (parked_and_promised, claim_resumed_execution),
    (parked_and_promised, claim_from_resume_grant),
    (lost, issue_reclaim_grant),
    (lost_and_promised, reclaim_execution),
)
NAMES: Final = [f"{made.__name__}-{way.__name__}" for made, way in WAYS]


def test_the_ways_are_all_there_are() -> None:
    """Whatever answers with a lease or the promise of one."""
    leases = (Claimed, GrantIssued)
    found = {
        name
        for name, operation in OPERATIONS.items()
        if any(kind in leases for kind in (operation.reply, *get_args(operation.reply)))
    }
    assert found == {way.__name__ for _, way in WAYS}


@pytest.mark.parametrize("state", [LaneState.PAUSED, LaneState.DISABLED])
@pytest.mark.parametrize(("made", "way"), WAYS, ids=NAMES)
@scenario
async def test_a_shut_lane_hands_out_nothing_by_any_way_of_starting(
    lab: Lab, made: Made, way: Way, state: LaneState
) -> None:
    """Issue 10 A9: also not what was promised before it was shut; once open, the promise holds."""
    execution_id = await made(lab)
    await lab.engine.set_lane_state(lane_id=LANE, lane_state=state)
    async with lab.unchanged():
        if way in (claim, claim_for_worker):
            assert await way(lab, execution_id) == NoWork()
        else:
            with pytest.raises(LaneClosed, match=f"lane {LANE} is {state.value}") as closed:
                await way(lab, execution_id)
            assert closed.value.fields["lane_state"] == state.value
    await lab.engine.resume_lane(lane_id=LANE)
    assert isinstance(await way(lab, execution_id), Claimed | GrantIssued)


@pytest.mark.parametrize(("made", "way"), WAYS, ids=NAMES)
@scenario
async def test_a_draining_lane_hands_out_by_every_way(lab: Lab, made: Made, way: Way) -> None:
    execution_id = await made(lab)
    await lab.engine.drain_lane(lane_id=LANE)
    assert isinstance(await way(lab, execution_id), Claimed | GrantIssued)


@pytest.mark.parametrize("state", [LaneState.DRAINING, LaneState.DISABLED])
@scenario
async def test_a_lane_that_takes_nothing_in_takes_no_replay(lab: Lab, state: LaneState) -> None:
    """A replay is work like any other that is created; what is no replay says why first."""
    ended, running = await lab.completed(), await lab.started()
    await lab.engine.set_lane_state(lane_id=LANE, lane_state=state)
    async with lab.refuses(LaneClosed, field=state.value):
        await lab.engine.replay_execution(execution_id=ended)
    async with lab.refuses(ExecutionNotTerminal):
        await lab.engine.replay_execution(execution_id=running.execution_id)
    await lab.engine.resume_lane(lane_id=LANE)
    assert isinstance(await lab.engine.replay_execution(execution_id=ended), Replayed)


@scenario
async def test_a_paused_lane_takes_a_replay_in_and_keeps_it(lab: Lab) -> None:
    ended = await lab.completed()
    await lab.engine.pause_lane(lane_id=LANE)
    await lab.engine.replay_execution(execution_id=ended)
    assert await lab.claims() == []
    await lab.engine.resume_lane(lane_id=LANE)
    assert (await lab.claim()).execution_id == ended


@scenario
async def test_work_running_on_a_closed_lane_goes_on_and_waits_there(lab: Lab) -> None:
    """A retry, a resume and a lost lease bring work back to its lane; the lane keeps it."""
    fails = await lab.started(policy=policy(retry_policy=retries(1, 0)))
    waits = await lab.started()
    is_lost = await lab.started()
    await lab.engine.set_lane_state(lane_id=LANE, lane_state=LaneState.DISABLED)
    await lab.engine.fail(fails.handle, reason="x", failure_class=FailureClass.TRANSIENT)
    await lab.engine.delay(waits.handle, delay_until=lab.now)
    await lab.after(60_000)
    for claimed in (fails, waits, is_lost):
        assert await lab.state(claimed.execution_id) is PublicState.WAITING
    assert await lab.claims(limit=9) == []
    await lab.engine.resume_lane(lane_id=LANE)
    assert len(await lab.claims(limit=9)) == 3


@scenario
async def test_the_end_of_lost_work_needs_no_open_lane(lab: Lab) -> None:
    """A takeover over the cap starts nothing: it ends the execution."""
    execution_id = await lost(lab)
    await lab.engine.pause_lane(lane_id=LANE)
    answer = await lab.engine.reclaim_execution(
        execution_id=execution_id, max_reclaim_count=0, **WORKER
    )
    assert isinstance(answer, ReclaimCapExceeded)
    assert await lab.state(execution_id) is PublicState.FAILED


@scenario
async def test_a_lane_is_shut_for_the_rest_of_its_own_batch(lab: Lab) -> None:
    """A batch means what its commands mean one by one: a claim behind the pause gets nothing."""
    await lab.create()
    engine = lab.direct
    pause = SwitchLane(lane_id=LANE, lane_state=LaneState.PAUSED, reason="")
    resume = SwitchLane(lane_id=LANE, lane_state=LaneState.ACTIVE, reason="")
    claim = Claim(
        offer=Offer(("default",), (LANE,)),
        worker_id="w1",
        worker_instance_id="w1-1",
        lease_ttl_ms=30_000,
        limit=1,
        backend=engine.backend_label(),
    )
    commands: list[Command[object]] = [pause, claim, resume, claim]
    changed, shut, again, opened = await engine.execute_together(commands)
    assert changed == LaneChanged(LANE, LaneState.PAUSED, LaneState.ACTIVE)
    assert shut == []
    assert again == LaneChanged(LANE, LaneState.ACTIVE, LaneState.PAUSED)
    assert isinstance(opened, list)
    assert len(opened) == 1
