"""One run per tick, whatever happens between two of them: deaths, outages, rivals, deploys."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from flowfabric.assemble import open_engine
from flowfabric.errors import InvalidSchedule, StoreError
from flowfabric.model.schedule import Overlap, ScheduleRow, TickRow, Timing
from tests.support.lab import Lab, scenario
from tests.support.schedules import (
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    declare,
    declared,
    fates,
    schedule,
    settled,
    told,
)


class _Cut(Exception):
    pass


def dying(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    """The process dies between all that it writes and the commit."""
    store = lab.direct.store
    whole = store.transact

    async def cut(work: Any) -> Any:
        async def dies(tx: Any) -> Any:
            await work(tx)
            raise _Cut

        return await whole(dies)

    monkeypatch.setattr(store, "transact", cut)


async def runs_of_ticks(lab: Lab) -> Counter[tuple[str, str]]:
    """How many runs each tick has."""
    found = (await lab.dump())["executions"]
    return Counter((each.tags["schedule.id"], each.tags["schedule.tick"]) for each in found)


@scenario
async def test_a_process_that_dies_at_a_tick_leaves_it_to_another(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await schedule(lab)
    assert made.next_at is not None
    lab.clock.set(made.next_at)
    async with lab.unchanged():
        with monkeypatch.context() as patch:
            dying(patch, lab)
            with suppress(StoreError, _Cut):
                await lab.direct.tick()
    assert await fates(lab) == []
    for _ in range(3):  # what has failed is left alone for a moment
        await lab.after(10 * SECOND_MS)
    assert await fates(lab) == ["ran"]
    assert set((await runs_of_ticks(lab)).values()) == {1}


@scenario
async def test_a_store_that_is_down_at_a_tick_runs_it_later(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await schedule(lab)
    assert made.next_at is not None

    async def down(_work: Any) -> Any:
        raise StoreError("no connection")

    lab.clock.set(made.next_at)
    with monkeypatch.context() as patch:
        patch.setattr(lab.direct.store, "transact", down)
        with suppress(StoreError):
            await lab.direct.tick()
    lab.clock.advance(2 * HOUR_MS + 2 * MINUTE_MS)  # a tick is on time up to a minute late
    await settled(lab)
    assert await fates(lab) == ["merged", "merged", "caught_up"]
    assert set((await runs_of_ticks(lab)).values()) == {1}


@scenario
async def test_rivals_start_one_run_for_each_tick(lab: Lab) -> None:
    for n in range(10):
        every_second = Timing(every_ms=SECOND_MS)
        await schedule(lab, every_second, name=f"s{n}", overlap=Overlap.ALLOW)
    engines: list[Any] = [lab.engine]
    if not lab.url.startswith("memory"):
        for _ in range(3):
            engines.append(open_engine(lab.url, config=lab.config, clock=lab.clock))
            await engines[-1].start()
    for _ in range(6):
        lab.clock.advance(SECOND_MS)
        await asyncio.gather(*(each.tick() for each in engines for _ in range(2)))
    for each in engines:
        while await each.tick():
            continue
    for each in engines[1:]:
        await each.close()
    runs = await runs_of_ticks(lab)
    assert (len(runs), set(runs.values())) == (60, {1})
    rows: list[TickRow] = (await lab.dump())["ff_schedule_tick"]
    assert Counter(row.schedule_id for row in rows) == {f"s{n}": 6 for n in range(10)}


@scenario
async def test_a_pause_survives_a_deploy_and_what_is_declared_no_more_is_listed(lab: Lab) -> None:
    lab.clock.set(lab.now // HOUR_MS * HOUR_MS)
    first = declared()
    await declare(lab, first, declared("gone"))
    await lab.engine.pause_schedule(schedule_id="report", reason="holiday", actor="ada")
    async with lab.unchanged():
        await declare(lab, first, declared("gone"))  # a restart changes nothing
    await declare(lab, declared(timing=Timing(every_ms=2 * HOUR_MS)))
    paused = await told(lab)
    assert paused.timing is not None
    assert (paused.timing.every_ms, paused.version) == (2 * HOUR_MS, 3)
    assert (paused.paused_by, paused.pause_reason) == ("ada", "holiday")
    lost = await lab.engine.list_schedules(is_undeclared=True)
    assert [each.schedule_id for each in lost.items] == ["gone"]
    await lab.after(HOUR_MS)
    assert await fates(lab, "gone") == ["ran"]  # it goes on
    assert (await lab.engine.prune_schedules()).schedule_ids == ("gone",)
    rows: list[ScheduleRow] = (await lab.dump())["ff_schedule"]
    assert [row.schedule_id for row in rows] == ["report"]


@scenario
async def test_a_backfill_that_died_half_way_is_repeated_and_each_tick_runs_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowfabric.limits.BACKFILL_BATCH", 20)
    await schedule(lab, Timing(every_ms=MINUTE_MS))
    end = lab.now // MINUTE_MS * MINUTE_MS
    start = end - 49 * MINUTE_MS
    span: dict[str, Any] = {"schedule_id": "report", "end": end}
    first = await lab.engine.backfill_schedule(**span, begin=start)
    assert (len(first.started), first.total) == (20, 50)
    assert first.next_begin is not None
    with monkeypatch.context() as patch:
        dying(patch, lab)
        with pytest.raises(StoreError):
            await lab.direct.backfill_schedule(**span, begin=first.next_begin)
    begin: int | None = start  # the caller knows nothing of the first
    started = 0
    while begin is not None:
        done = await lab.engine.backfill_schedule(**span, begin=begin)
        started, begin = started + len(done.started), done.next_begin
    assert started == 30
    runs = await runs_of_ticks(lab)
    assert (len(runs), set(runs.values())) == (50, {1})
    assert await fates(lab) == ["backfilled"] * 50


@scenario
async def test_a_range_that_makes_no_sense_is_refused(lab: Lab) -> None:
    await schedule(lab, Timing(every_ms=SECOND_MS))
    for begin, end, word in (
        (lab.now - 3 * HOUR_MS, lab.now, "10801 ticks"),
        (lab.now, lab.now - 1, "end"),
    ):
        async with lab.refuses(InvalidSchedule, word):
            await lab.engine.backfill_schedule(schedule_id="report", begin=begin, end=end)
