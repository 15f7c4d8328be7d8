"""Lanes: registered by use, switched by operators."""

from __future__ import annotations

import pytest

from flowfabric.errors import InvalidInput, LaneClosed
from flowfabric.model.results import LaneChanged
from flowfabric.model.route import LaneState
from flowfabric.model.state import PublicState
from tests.support.lab import Lab, scenario


@scenario
async def test_a_lane_is_known_from_its_first_use(lab: Lab) -> None:
    await lab.create(lane_id="b")
    await lab.create(lane_id="a")
    await lab.create(lane_id="a", delay_until=lab.now + 1)
    page = await lab.engine.list_lanes()
    assert [(lane.lane_id, lane.lane_state) for lane in page.items] == [
        ("a", LaneState.ACTIVE),
        ("b", LaneState.ACTIVE),
    ]
    assert page.items[0].counts == {"waiting": 1, "delayed": 1}
    assert page.next_cursor is None
    uncounted = await lab.engine.list_lanes(with_counts=False)
    assert [(lane.lane_id, lane.counts) for lane in uncounted.items] == [("a", {}), ("b", {})]


@scenario
async def test_lanes_are_paged_by_name(lab: Lab) -> None:
    names = [f"lane-{number}" for number in range(5)]
    for name in reversed(names):
        await lab.create(lane_id=name)
    seen: list[str] = []
    cursor = None
    while True:
        page = await lab.engine.list_lanes(cursor=cursor, limit=2)
        seen += [lane.lane_id for lane in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == names
    assert (await lab.engine.list_lanes(limit=0)).items == ()


@scenario
async def test_a_paused_lane_takes_work_in_and_hands_none_out(lab: Lab) -> None:
    """Lane states are enforced."""
    before = await lab.create()
    answer = await lab.engine.pause_lane(lane_id="default", reason="deploy")
    assert answer == LaneChanged("default", LaneState.PAUSED, LaneState.ACTIVE)
    after = await lab.create()
    assert await lab.claims(limit=9) == []
    assert (await lab.engine.list_lanes()).items[0].reason == "deploy"
    (event,) = await lab.operator_events("default")
    assert event.event_type == "lane_changed"
    await lab.engine.resume_lane(lane_id="default")
    assert {each.execution_id for each in await lab.claims(limit=9)} == {before, after}


@scenario
async def test_a_draining_lane_hands_out_and_takes_none_in(lab: Lab) -> None:
    execution_id = await lab.create()
    await lab.engine.drain_lane(lane_id="default")
    async with lab.refuses(LaneClosed, field="default"):
        await lab.create()
    assert (await lab.claim()).execution_id == execution_id


@scenario
async def test_a_disabled_lane_does_neither(lab: Lab) -> None:
    execution_id = await lab.create()
    await lab.engine.set_lane_state(lane_id="default", lane_state="disabled")
    async with lab.refuses(LaneClosed):
        await lab.create()
    assert await lab.claims() == []
    assert await lab.state(execution_id) is PublicState.WAITING


@scenario
async def test_running_work_is_not_disturbed_by_its_lane(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.set_lane_state(lane_id="default", lane_state=LaneState.DISABLED)
    await lab.engine.renew(claimed.handle)
    await lab.engine.complete(claimed.handle)
    assert await lab.state(claimed.execution_id) is PublicState.COMPLETED


@scenario
async def test_a_lane_may_be_switched_before_its_first_use(lab: Lab) -> None:
    await lab.engine.pause_lane(lane_id="new")
    await lab.create(lane_id="new")
    assert await lab.claims(lanes=("new",)) == []


@pytest.mark.parametrize("lane_id", ["", "x" * 65, "tab\t", "naïve", "nul\x00", 5, None])
@scenario
async def test_a_malformed_lane_is_refused(lab: Lab, lane_id: str) -> None:
    """1 to 64 bytes of printable ASCII, on every entrance."""
    async with lab.refuses(InvalidInput, field="lane"):
        await lab.engine.pause_lane(lane_id=lane_id)
    async with lab.refuses(InvalidInput, field="lanes"):
        await lab.claims(lanes=(lane_id,))
    if lane_id is not None:
        async with lab.refuses(InvalidInput, field="lane_id"):
            await lab.create(lane_id=lane_id)


@scenario
async def test_an_unknown_lane_state_is_refused(lab: Lab) -> None:
    async with lab.refuses(InvalidInput, field="lane_state"):
        await lab.engine.set_lane_state(lane_id="default", lane_state="asleep")
