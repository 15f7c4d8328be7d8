"""Rows of the table of failures in docs/RELIABILITY.md that no other test holds, on every store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from flowfabric import Context, Run, RunCancelled
from flowfabric.model.schedule import Fate
from flowfabric.testing import TestFabric
from tests.testing.conftest import Play


async def keys(fabric: TestFabric, run: Run[object]) -> list[str]:
    """What it has recorded."""
    return [entry.key for entry in (await fabric.history(run)).entries]


def test_a_cancel_in_a_wait_ends_it_at_once_and_runs_no_code(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        ran: list[str] = []

        @fabric.task
        async def dun(ctx: Context) -> None:
            ran.append("began")
            await ctx.sleep("30d")
            ran.append("went on")

        run = await fabric.submit(dun)
        await fabric.settle()
        await run.cancel()
        assert await run.state() == "cancelled"
        await fabric.advance("60d")
        assert ran == ["began"]

    play(scenario, replay="off")


def test_a_cancel_while_a_step_runs_ends_it_at_once_and_records_nothing(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        ends: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(20)
                ends.append("whole")
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        @fabric.task
        async def handle(ctx: Context) -> None:
            await ctx.step("work", work)

        run = await fabric.submit(handle)
        await fabric.advance("1s")
        await run.cancel()
        assert await run.state() == "cancelled"
        await fabric.advance("1m")
        assert ends == ["cancelled"]
        assert await keys(fabric, run) == []
        with pytest.raises(RunCancelled):
            await run.result()

    play(scenario, replay="off")


def test_an_attempt_out_of_time_in_a_step_keeps_what_is_recorded(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        ran: list[str] = []

        @fabric.step
        async def quick() -> None:
            ran.append("quick")

        @fabric.step
        async def slow() -> None:
            ran.append("slow")
            if ran.count("slow") == 1:
                await asyncio.sleep(100)

        @fabric.task(timeout="10s", retries=1, backoff="1s")
        async def handle() -> str:
            await quick()
            await slow()
            return "done"

        run = await fabric.submit(handle)
        await fabric.advance("1m")
        assert await run.result() == "done"
        assert ran == ["quick", "slow", "slow"]

    play(scenario, replay="off")


def test_a_clock_that_jumps_forward_brings_a_sleep_early_and_once(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        ran: list[str] = []

        async def work() -> None:
            ran.append("work")

        @fabric.task
        async def handle(ctx: Context) -> None:
            await ctx.sleep("1h")
            await ctx.step("work", work)

        run = await fabric.submit(handle)
        await fabric.settle()
        fabric.clock_jump("2h")
        await fabric.settle()
        assert await run.state() == "completed"
        await fabric.advance("3h")
        assert ran == ["work"]

    play(scenario, replay="off")


def test_a_clock_that_jumps_fires_each_tick_at_most_once(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        ran: list[datetime] = []

        @fabric.task
        async def work(ctx: Context) -> None:
            assert ctx.schedule is not None
            ran.append(ctx.schedule.tick)

        await fabric.schedules.create("ticks", work, every="10m", overlap="allow")
        await fabric.advance("25m")
        assert len(ran) == 2
        fabric.clock_jump("-20m")
        await fabric.advance("24m")  # to one minute before the next tick
        assert len(ran) == 2
        fabric.clock_jump("+31m")  # four are due, three of them late
        await fabric.advance("1m")
        assert len(ran) == len(set(ran))
        fates = {each.tick: each.fate for each in await fabric.schedules.ticks("ticks")}
        began = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp() * 1000)
        found = {(tick - began) // 600_000: fate for tick, fate in fates.items()}
        late = {3: Fate.MERGED, 4: Fate.MERGED, 5: Fate.CAUGHT_UP}
        assert found == {1: Fate.RAN, 2: Fate.RAN, **late, 6: Fate.RAN}

    play(scenario, replay="off")
