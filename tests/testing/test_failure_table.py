"""Rows of the table of failures in docs/RELIABILITY.md that no other test holds, on every store."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric import Context, Run, RunCancelled
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
