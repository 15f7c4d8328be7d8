"""Crashes, outages and lost replies happen where a test plants them, and runs survive them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings

from flowfabric import Context, Fabric, SyncContext
from flowfabric.errors import InvalidInput
from flowfabric.testing import Crash, TestFabric, run
from flowfabric.testing.strategies import faults
from tests.testing.conftest import Play

ff = Fabric("memory://")
CLEANED: list[str] = []


@ff.step
async def fetch(topic: str) -> str:
    return topic.upper()


@ff.step
async def charge(amount: int) -> int:
    return amount + 1


@ff.step
async def mail(text: str) -> str:
    return f"mailed {text}"


@ff.task
async def order(topic: str) -> str:
    try:
        page = await fetch(topic)
        paid = await charge(7)
        return f"{await mail(page)} {paid}"
    finally:
        CLEANED.append(topic)


@ff.task
def sync_order(ctx: SyncContext, topic: str) -> str:
    page = ctx.step("fetch", str.upper, topic)
    paid = ctx.step("charge", int, 8)
    return f"{ctx.step('mail', str, page)} {paid}"


def ran(fabric: TestFabric) -> list[str]:
    return [each.key for each in fabric.runs_of_steps]


@pytest.mark.parametrize(
    ("crash", "expected"),
    [
        (Crash(before="charge"), ["fetch", "charge", "mail"]),
        (Crash(after="charge"), ["fetch", "charge", "charge", "mail"]),
        (Crash(after="charge", at="checkpoint"), ["fetch", "charge", "charge", "mail"]),
        (Crash(after="charge", at="commit"), ["fetch", "charge", "mail"]),
        (Crash(after="mail", at="commit"), ["fetch", "charge", "mail"]),
    ],
    ids=["before", "body", "checkpoint", "commit", "completion"],
)
def test_a_crash_repeats_only_what_was_not_durable(
    play: Play, crash: Crash, expected: list[str]
) -> None:
    async def scenario(fabric: TestFabric) -> None:
        fabric.crash(crash)
        begun = fabric.now
        run = await fabric.submit(order, "solar")
        await fabric.settle()
        await fabric.settle(skip=True)
        assert await run.result() == "mailed SOLAR 8"
        assert ran(fabric) == expected
        is_over = crash.after == "mail"
        assert fabric.now - begun == timedelta(seconds=0 if is_over else 30)

    play(scenario, ff)


def test_a_dead_worker_cleans_nothing_up() -> None:
    async def main() -> None:
        async with TestFabric(ff, replay="off") as fabric:
            CLEANED.clear()
            fabric.crash(before="charge")
            run = await fabric.submit(order, "solar")
            await fabric.settle()
            assert CLEANED == []
            assert await run.state() == "active"
            await fabric.advance("30s")
            assert CLEANED == ["solar"]

    run(main())


def test_a_sync_handler_crashes_too(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        fabric.crash(after="charge")
        run = await fabric.submit(sync_order, "wind")
        await fabric.settle(skip=True)
        assert await run.result() == "WIND 8"
        assert ran(fabric) == ["fetch", "charge", "charge", "mail"]

    play(scenario, ff)


def test_a_lost_reply_is_asked_for_again(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        fabric.unknown_outcome(nth=2)
        run = await fabric.submit(order, "solar")
        await fabric.settle()
        assert await run.state() == "active"  # the worker pauses before it asks again
        await fabric.advance("10s")
        assert await run.result() == "mailed SOLAR 8"
        await fabric.assert_steps(run, ["fetch", "charge", "mail"])
        fabric.assert_ran_once(charge)

    play(scenario, ff)


def test_an_outage_is_waited_out(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        await fabric.settle()
        fabric.store_down("10s")
        run = await fabric.submit(order, "solar")
        await fabric.advance("9s")
        assert await run.state() == "waiting"
        await fabric.advance("10s")
        assert await run.result() == "mailed SOLAR 8"

    play(scenario, ff)


def test_a_lost_lease_runs_the_work_again(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        @fabric.task
        async def slow(ctx: Context) -> int:
            await fetch("a")
            await asyncio.sleep(60)
            return ctx.attempt

        run = await fabric.submit(slow)
        await fabric.advance("30s")
        await fabric.lose_lease(run)
        await fabric.settle(skip=True)
        await run.result()
        assert ran(fabric) == ["fetch"]

    play(scenario, replay="off")


def test_a_paused_worker_is_overtaken_and_writes_nothing(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        @fabric.task
        async def slow() -> str:
            first = await fetch("a")
            await asyncio.sleep(20)
            return first + await fetch("b")

        run = await fabric.submit(slow)
        await fabric.advance("1s")
        fabric.pause_worker("70s")
        await fabric.advance("32s")
        lease = (await run.info()).current_lease
        assert lease is not None
        assert lease.worker_id == "test-2"
        await fabric.advance("10m")
        assert await run.result() == "AB"
        await fabric.assert_steps(run, ["fetch", "fetch#2"])
        assert (await run.info()).current_lease is None

    play(scenario)


def test_a_clock_that_goes_back_undoes_nothing(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        run = await fabric.submit(order, "solar", delay="10m")
        await fabric.advance("5m")
        fabric.clock_jump("-5m")
        await fabric.advance("6m")
        assert await run.state() == "delayed"
        fabric.clock_jump("+4m")
        await fabric.settle()
        assert await run.result() == "mailed SOLAR 8"

    play(scenario, ff)


@settings(max_examples=60)
@given(faults(["fetch", "charge", "mail"]))
def test_an_order_survives_any_crashes(crashes: list[Crash]) -> None:
    async def main() -> None:
        async with TestFabric(ff) as fabric:
            for crash in crashes:
                fabric.crash(crash)
            run = await fabric.submit(order, "solar")
            await fabric.settle(skip=True)
            assert await run.result() == "mailed SOLAR 8"
            await fabric.assert_steps(run, ["fetch", "charge", "mail"])

    run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"before": "a", "after": "b"},
        {"before": "a", "at": "commit"},
        {"after": "a", "at": "x"},
        {"after": "a", "nth": 0},
    ],
)
def test_a_crash_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Crash(**wrong)
