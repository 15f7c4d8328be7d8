"""Every tick has its fate: on time, late, paused, beside a run that has not ended, refused."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowNode, SubmitFlow
from flowfabric.api.schedules import ScheduledStart
from flowfabric.model.schedule import (
    CatchUp,
    Fate,
    Overlap,
    ScheduleSnapshot,
    Timing,
)
from flowfabric.model.state import PublicState
from tests.support import schedules as support
from tests.support.lab import Lab, scenario
from tests.support.schedules import HOUR_MS, HOURLY, MINUTE_MS, settled


async def schedule(lab: Lab, timing: Timing = HOURLY, **fields: Any) -> ScheduleSnapshot:
    """A schedule that begins a minute before a full hour."""
    lab.clock.set(lab.now // HOUR_MS * HOUR_MS + HOUR_MS - MINUTE_MS)
    return await support.schedule(lab, timing, **fields)


async def fates(lab: Lab) -> list[str]:
    """The fates of all ticks of the calendar, oldest first."""
    return [each for each in await support.fates(lab) if each != "manual"]


async def runs(lab: Lab) -> list[Any]:
    """The snapshots of all runs, oldest first."""
    page = await lab.engine.list_executions(execution_kind="report")
    return list(page.items)[::-1]


async def run_ended(lab: Lab, how: str = "complete") -> None:
    """The oldest waiting run is done."""
    claimed = await lab.claim()
    if how == "complete":
        await lab.engine.complete(claimed.handle)
    else:
        await lab.engine.fail(claimed.handle, reason="no", failure_class="permanent")
    await settled(lab)


@scenario
async def test_a_tick_starts_a_run_that_knows_its_tick(lab: Lab) -> None:
    made = await schedule(lab)
    tick = lab.now + MINUTE_MS
    assert made.next_tick == tick
    await lab.after(MINUTE_MS - 1)
    assert await runs(lab) == []
    await lab.after(1)
    (run,) = await runs(lab)
    assert run.tags["schedule.id"] == "report"
    assert run.tags["schedule.number"] == "1"
    assert run.tags["schedule.tick"].endswith(":00:00Z")
    (told,) = await lab.engine.read_ticks(schedule_id="report", after=0)
    assert (told.tick, told.fate, told.run_id) == (tick, Fate.RAN, run.execution_id)
    await lab.engine.tick()
    assert len(await runs(lab)) == 1


@pytest.mark.parametrize("catch_up", list(CatchUp))
@scenario
async def test_after_three_hours_of_downtime(lab: Lab, catch_up: CatchUp) -> None:
    await schedule(lab, catch_up=catch_up, overlap=Overlap.ALLOW)
    await lab.engine.trigger_schedule(schedule_id="report")
    await lab.after(3 * HOUR_MS)  # ticks 3 h, 2 h and 1 h late: less the minute before the first
    expected = {
        CatchUp.ONE: ["merged", "merged", "caught_up"],
        CatchUp.SKIP: ["missed_window"] * 3,
        CatchUp.ALL: ["caught_up"] * 3,
    }[catch_up]
    assert await fates(lab) == expected
    await lab.after(MINUTE_MS)
    assert await fates(lab) == [*expected, "ran"]
    caught_up = [each for each in await runs(lab) if "schedule.caught_up" in each.tags]
    assert len(caught_up) == expected.count("caught_up")


@scenario
async def test_the_window_and_the_most_to_catch_up_drop_the_oldest(lab: Lab) -> None:
    policy: dict[str, Any] = {"catch_up": CatchUp.ALL, "overlap": Overlap.ALLOW}
    await schedule(lab, **policy, catch_up_max=2, catch_up_window_ms=3 * HOUR_MS)
    await lab.after(5 * HOUR_MS)
    assert await fates(lab) == ["missed_window"] * 3 + ["caught_up"] * 2


@pytest.mark.parametrize(
    ("overlap", "expected", "count"),
    [
        (Overlap.SKIP, ["ran", "skipped_overlap", "skipped_overlap", "skipped_overlap"], 1),
        (Overlap.ALLOW, ["ran"] * 4, 4),
        (Overlap.QUEUE_ONE, ["ran", "merged", "merged", "queued"], 1),
        (Overlap.CANCEL_PREVIOUS, ["ran"] * 4, 4),
    ],
)
@scenario
async def test_a_run_longer_than_three_ticks(
    lab: Lab, overlap: Overlap, expected: list[str], count: int
) -> None:
    await schedule(lab, overlap=overlap)
    await lab.after(MINUTE_MS)
    for _ in range(3):
        await lab.after(HOUR_MS)
    assert await fates(lab) == expected
    found = await runs(lab)
    assert len(found) == count
    if overlap is Overlap.CANCEL_PREVIOUS:
        states = [each.public_state for each in found]
        assert states == [PublicState.CANCELLED] * 3 + [PublicState.WAITING]
    if overlap is Overlap.QUEUE_ONE:
        await run_ended(lab)
        assert await fates(lab) == ["ran", "merged", "merged", "ran"]
        assert len(await runs(lab)) == 2


@scenario
async def test_failures_in_a_row_pause_it(lab: Lab) -> None:
    await schedule(lab, pause_on_failure=2)
    await lab.after(MINUTE_MS)
    for how in ("fail", "complete", "fail", "fail"):
        await run_ended(lab, how)
        await lab.after(HOUR_MS)
    told = await lab.engine.describe_schedule(schedule_id="report")
    assert told is not None
    assert told.paused_by == "pause_on_failure"
    assert (await fates(lab))[-1] == "missed_paused"
    resumed = await lab.engine.resume_schedule(schedule_id="report", actor="ada")
    assert resumed.schedule.failures == 0
    await lab.after(HOUR_MS)
    assert (await fates(lab))[-1] == "ran"
    events = [each.event_type.value for each in await lab.operator_events("report")]
    assert events == ["schedule_created", "schedule_paused", "schedule_resumed"]


@scenario
async def test_ticks_are_missed_while_it_is_paused(lab: Lab) -> None:
    await schedule(lab)
    paused = await lab.engine.pause_schedule(schedule_id="report", reason="holiday", actor="ada")
    assert paused.version_before == 1
    assert paused.schedule.paused_by == "ada"
    await lab.after(MINUTE_MS)
    lab.clock.advance(HOUR_MS)
    await lab.engine.resume_schedule(schedule_id="report")
    assert await fates(lab) == ["missed_paused"] * 2
    await lab.after(HOUR_MS)
    assert await fates(lab) == ["missed_paused"] * 2 + ["ran"]


@scenario
async def test_a_refused_start_never_stops_it(lab: Lab) -> None:
    await schedule(lab)
    await lab.engine.drain_lane(lane_id="default", reason="closed")
    await lab.after(MINUTE_MS)
    (told,) = await lab.engine.read_ticks(schedule_id="report")
    assert told.fate is Fate.REFUSED
    assert "lane_closed" in told.error
    await lab.engine.resume_lane(lane_id="default")
    await lab.after(HOUR_MS)
    assert await fates(lab) == ["refused", "ran"]


@scenario
async def test_a_flow_is_started_whole_and_looked_back_at(lab: Lab) -> None:
    nodes = [FlowNode(name="only", execution=NewExecution(execution_kind="report"))]
    start = ScheduledStart(flow=SubmitFlow(nodes=nodes, flow_kind="nightly"))
    await schedule(lab, starts=start, overlap=Overlap.QUEUE_ONE, pause_on_failure=1)
    await lab.after(MINUTE_MS)
    await lab.after(HOUR_MS)
    assert await fates(lab) == ["ran", "queued"]
    (run,) = await runs(lab)
    assert run.flow_id is not None
    assert run.tags["schedule.id"] == "report"
    await run_ended(lab)
    assert await fates(lab) == ["ran", "ran"]
    await run_ended(lab, "fail")
    told = await lab.engine.describe_schedule(schedule_id="report")
    assert told is not None
    assert told.paused_at is not None
    assert told.is_flow


@scenario
async def test_a_flow_is_cancelled_for_the_next_one(lab: Lab) -> None:
    nodes = [FlowNode(name="only", execution=NewExecution(execution_kind="report"))]
    start = ScheduledStart(flow=SubmitFlow(nodes=nodes))
    await schedule(lab, starts=start, overlap=Overlap.CANCEL_PREVIOUS)
    await lab.after(MINUTE_MS)
    await lab.after(HOUR_MS)
    states = [each.public_state for each in await runs(lab)]
    assert states == [PublicState.CANCELLED, PublicState.WAITING]


@scenario
async def test_the_last_of_its_runs_ends_it(lab: Lab) -> None:
    await schedule(lab, max_runs=2, overlap=Overlap.ALLOW)
    await lab.after(MINUTE_MS)
    await lab.after(HOUR_MS)
    await lab.after(HOUR_MS)
    assert await fates(lab) == ["ran", "ran"]
    told = await lab.engine.describe_schedule(schedule_id="report")
    assert told is not None
    assert told.next_tick is None


@scenario
async def test_jitter_moves_a_run_and_not_its_tick(lab: Lab) -> None:
    made = await schedule(lab, Timing(every_ms=HOUR_MS, jitter_ms=30 * MINUTE_MS))
    assert made.next_tick is not None
    assert made.next_at is not None
    assert made.next_tick < made.next_at <= made.next_tick + 30 * MINUTE_MS
    lab.clock.set(made.next_at - 1)
    await lab.engine.tick()
    assert await fates(lab) == []
    await lab.after(1)
    (told,) = await lab.engine.read_ticks(schedule_id="report")
    assert (told.tick, told.fate) == (made.next_tick, Fate.RAN)


@scenario
async def test_ticks_are_kept_as_long_as_their_fate_says(lab: Lab) -> None:
    day = 86_400_000
    await schedule(lab, Timing(every_ms=HOUR_MS, ends=lab.now // HOUR_MS * HOUR_MS + 3 * HOUR_MS))
    await lab.after(MINUTE_MS)
    await lab.after(HOUR_MS)
    assert await fates(lab) == ["ran", "skipped_overlap"]
    await lab.after(7 * day)
    await lab.engine.sweep()
    assert "ran" not in await fates(lab)
    lab.clock.advance(91 * day)
    await lab.engine.sweep()
    assert await fates(lab) == []
