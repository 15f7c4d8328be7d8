"""A claim is bounded by the bytes of its inputs as well as by their number."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.engine.unit.commands import claims
from flowfabric.model.results import Created
from tests.support.gates import QUOTA, quota
from tests.support.lab import LANE, Lab, scenario

KIB = 1024
ROOM = 10 * KIB


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is the same for megabytes, which would take long to write."""
    monkeypatch.setattr(claims, "CLAIM_BYTES_MAX", ROOM)


async def submit(lab: Lab, sizes: list[int], **fields: Any) -> list[str]:
    """New executions with inputs of so many bytes."""
    fields = {"execution_kind": "work", **fields}
    made = await lab.engine.create_executions(
        [NewExecution(input_payload=b"x" * size, **fields) for size in sizes]
    )
    return [each.execution_id for each in made if isinstance(each, Created)]


async def sizes(lab: Lab, **fields: Any) -> list[int]:
    """The sizes of what one claim hands out, in its order."""
    return [len(each.payload) for each in await lab.claims(limit=1000, **fields)]


@scenario
async def test_a_claim_stops_at_the_input_that_fills_it(lab: Lab) -> None:
    """In order of age, none left out and none twice; the rest waits for the next claim."""
    made = await submit(lab, [4 * KIB] * 7)
    seen: list[str] = []
    for expected in (3, 3, 1, 0):
        claimed = await lab.claims(limit=1000)
        assert len(claimed) == expected
        seen += [each.execution_id for each in claimed]
    assert seen == made


@scenario
async def test_at_least_one_is_handed_out_however_large(lab: Lab) -> None:
    await submit(lab, [3 * ROOM, 2 * ROOM, 1])
    assert await sizes(lab) == [3 * ROOM]
    assert await sizes(lab) == [2 * ROOM]
    assert await sizes(lab) == [1]


@scenario
async def test_small_inputs_are_all_handed_out_at_once(lab: Lab) -> None:
    await submit(lab, [10] * 300)
    assert await sizes(lab) == [10] * 300


@scenario
async def test_priority_decides_which_input_still_fits(lab: Lab) -> None:
    await submit(lab, [6 * KIB] * 3, priority=1)
    (urgent,) = await submit(lab, [6 * KIB], priority=9)
    claimed = await lab.claims(limit=1000)
    assert len(claimed) == 2
    assert claimed[0].execution_id == urgent


@scenario
async def test_no_lane_is_starved_by_the_large_inputs_of_another(lab: Lab) -> None:
    """Each line has its part of the room, and at least one."""
    for lane in ("a", "b", "c"):
        await submit(lab, [4 * KIB] * 4, lane_id=lane)
    claimed = await lab.claims(lanes=("a", "b", "c"), limit=999)
    assert {each.lane_id for each in claimed} == {"a", "b", "c"}
    assert sum(len(each.payload) for each in claimed) <= ROOM + 3 * 4 * KIB


@scenario
async def test_several_kinds_share_the_room_in_order(lab: Lab) -> None:
    made = []
    for number in range(6):
        made += await submit(lab, [4 * KIB], execution_kind=f"kind-{number % 3}")
    assert [each.execution_id for each in await lab.claims(limit=1000)] == made[:3]


@scenario
async def test_an_execution_blocked_by_a_quota_takes_no_bytes_from_others(lab: Lab) -> None:
    await quota(lab, cap=1)
    bounded = await submit(lab, [4 * KIB] * 5, quota_policy_id=QUOTA, priority=5)
    await submit(lab, [4 * KIB] * 5)
    handed = [each.execution_id for each in await lab.claims(limit=1000)]
    assert handed[0] == bounded[0]
    assert len(handed) == 3
    assert not set(handed[1:]) & set(bounded)


@scenario
async def test_a_worker_is_told_that_more_waits(lab: Lab) -> None:
    """Or it would wait for its next look, with slots free and work there."""
    await submit(lab, [4 * KIB] * 7)
    woken: list[Any] = []
    lab.engine.store.hints.subscribe(woken.append)
    await lab.claims(limit=1000)
    assert any(f"lane:{LANE}" in topics for topics in woken)
