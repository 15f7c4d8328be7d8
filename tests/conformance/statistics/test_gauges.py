"""Gauges: what stands where, by a bounded look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowfabric import limits
from flowfabric.model.gauges import LaneGauge
from tests.support.lab import LANE, Lab, scenario
from tests.support.statistics import roll_up
from tests.support.waits import suspended

if TYPE_CHECKING:
    import pytest


@scenario
async def test_ready_running_and_suspended_work_is_counted_by_lane(lab: Lab) -> None:
    await lab.completed()
    await suspended(lab)
    await lab.started(lane_id="mail")
    await lab.create(lane_id="mail")
    first_at = lab.now
    lab.clock.advance(5_000)
    await lab.create("brief", lane_id="mail")
    gauges = await lab.engine.read_gauges()
    assert gauges.at == lab.now
    assert gauges.lanes == (
        LaneGauge(lane_id=LANE, suspended=1),
        LaneGauge(lane_id="mail", ready=2, running=1, ready_since=first_at),
    )


@scenario
async def test_what_no_live_worker_offers_is_unroutable_until_one_does(lab: Lab) -> None:
    needs = ("gpu", "eu")
    await lab.create(policy={"routing_requirements": {"required_capabilities": list(needs)}})
    await lab.create(policy={"routing_requirements": {"required_capabilities": list(needs)}})
    assert (await lab.engine.read_gauges()).unroutable == {"gpu": 2, "eu": 2}
    words: dict[str, Any] = {"worker_id": "w", "lanes": (LANE,), "liveness_ttl_ms": 30_000}
    await lab.engine.register_worker(**words, worker_instance_id="a", capabilities=("eu",))
    assert (await lab.engine.read_gauges()).unroutable == {"gpu": 2}
    await lab.engine.register_worker(**words, worker_instance_id="b", capabilities=needs)
    gauges = await lab.engine.read_gauges()
    assert (gauges.unroutable, gauges.workers) == ({}, {LANE: 2})


@scenario
async def test_more_than_so_many_are_not_looked_at(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STANDING_MAX", 3)
    for _ in range(5):
        await lab.create()
    (lane,) = (await lab.engine.read_gauges()).lanes
    assert lane.ready == 3


@scenario
async def test_what_is_due_and_how_far_statistics_are_is_told(lab: Lab) -> None:
    await roll_up(lab)
    counted = (await lab.engine.read_gauges()).counted_until
    await lab.create(delay_until=lab.now + 10)
    assert (await lab.engine.read_gauges()).overdue == 0
    lab.clock.advance(20_000)
    assert (await lab.engine.read_gauges()).overdue == 1
    await lab.engine.tick()
    await roll_up(lab)
    gauges = await lab.engine.read_gauges()
    assert gauges.overdue == 0
    assert gauges.counted_until > counted
