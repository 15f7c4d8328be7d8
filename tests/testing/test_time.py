"""Time in a test stands still until the test moves it; what is due then happens at its time."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from flowfabric import (
    Context,
    Fabric,
    RunFailed,
    SyncContext,
    UnrecordedTimeout,
    WaitTimeout,
    approval,
    signal,
)
from flowfabric.errors import InvalidInput
from flowfabric.testing import Stuck, TestFabric, run
from tests.testing.conftest import Play

ff = Fabric("memory://")
START = datetime(2030, 1, 1, tzinfo=UTC)


@ff.step
async def slow(number: int) -> int:
    await asyncio.sleep(3_600)
    return number + 1


@ff.task
async def two(number: int) -> int:
    return await slow(await slow(number))


@ff.task
async def waits(ctx: Context, topic: str) -> str:
    if not ctx.resumed:
        await ctx.suspend(approval("publish", of=2), timeout="2d", on_timeout="resume")
    return f"{topic}: {len(ctx.signals)}"


@ff.task(retries=3, backoff="1h")
async def flaky(ctx: Context) -> int:
    if ctx.attempt < 3:
        raise ConnectionError("not yet")
    return ctx.attempt


@ff.task
async def bounded() -> str:
    try:
        async with asyncio.timeout(5):
            await asyncio.sleep(10)
    except TimeoutError:
        return "late"
    return "in time"


@ff.task
async def limited(ctx: Context) -> str:
    try:
        async with asyncio.timeout(5):
            await ctx.sleep("1h")
    except UnrecordedTimeout:
        return "refused"
    return "in time"


@ff.task
def blocking(ctx: SyncContext, number: int) -> int:
    return ctx.step("add", lambda: number + 1) + ctx.step("double", lambda: number * 2)


def test_settle_moves_no_time(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        run = await fabric.submit(two, 1)
        await fabric.settle()
        assert await run.state() == "active"
        assert fabric.now == START
        with pytest.raises(WaitTimeout):
            await run.result()

    play(scenario, ff)


def test_advance_lets_everything_happen_at_its_time(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        run = await fabric.submit(two, 1)
        later = await fabric.submit(two, 5, delay="1d")
        await fabric.advance("3h")
        assert await run.result() == 3
        assert await later.state() == "delayed"
        assert fabric.now == START + timedelta(hours=3)
        times = [entry.recorded_at for entry in await run.journal()]
        assert times == [at(hours=1), at(hours=2)]
        await fabric.advance("2d")
        assert await later.result() == 7

    play(scenario, ff)


def at(**span: int) -> int:
    return int((START + timedelta(**span)).timestamp() * 1000)


def test_skip_goes_to_the_end_of_all_runs(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        runs = [await fabric.submit(flaky), await fabric.submit(two, 1)]
        await fabric.settle(skip=True)
        assert [await each.result() for each in runs] == [3, 3]
        assert fabric.now == START + timedelta(hours=2)

    play(scenario, ff)


def test_open_waits_are_named_and_ended_by_people(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        run = await fabric.submit(waits, "solar")
        await fabric.settle()
        assert fabric.waits(run) == ["publish"]
        fabric.duplicate()
        await fabric.approve(run, "publish", by="ada")
        await fabric.settle()
        assert fabric.waits(run) == ["publish"]
        await fabric.approve(run, "publish", by="bo")
        await fabric.advance("30d")
        assert fabric.waits(run) == []
        assert await run.result() == "solar: 2"

    play(scenario, ff)


def test_a_wait_times_out_when_its_time_has_come(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        run = await fabric.submit(waits, "wind")
        await fabric.advance("47h")
        assert await run.state() == "suspended"
        await fabric.advance("1h")
        assert await run.result() == "wind: 0"

    play(scenario, ff)


def test_timeouts_of_asyncio_count_the_same_time(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        run = await fabric.submit(bounded)
        began = time.monotonic()
        await fabric.advance("6s")
        assert await run.result() == "late"
        assert time.monotonic() - began < 5
        assert await (await fabric.submit(limited)).result() == "refused"

    play(scenario, ff)


def test_sync_handlers_run_in_threads(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        runs = [await fabric.submit(blocking, number) for number in range(10)]
        await fabric.settle()
        assert [await each.result() for each in runs] == [3 * n + 1 for n in range(10)]

    play(scenario, ff)


def test_work_in_an_executor_is_waited_for(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        @fabric.task
        async def elsewhere() -> str:
            await asyncio.to_thread(time.sleep, 0.05)
            return "done"

        run = await fabric.submit(elsewhere)
        await fabric.settle()
        assert await run.result() == "done"

    play(scenario)


def test_tasks_of_the_program_submit_to_the_store_of_the_test(play: Play) -> None:
    app = Fabric("postgresql://nobody@nowhere.invalid/never")

    @app.task
    async def inner(number: int) -> int:
        return number + 1

    @app.task
    async def outer(number: int) -> str:
        return (await inner.submit(number)).id

    async def scenario(fabric: TestFabric) -> None:
        run = await outer.submit(1)
        await fabric.settle()
        assert await fabric.run(await run.result()).result() == 2

    play(scenario, app)
    assert app.url.startswith("postgresql://nobody")


def test_children_and_flows_settle(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        @fabric.task
        async def leaf(number: int) -> int:
            await asyncio.sleep(60)
            return number * 2

        @fabric.task
        async def tree(ctx: Context) -> int:
            children = [await ctx.spawn(leaf, number) for number in range(3)]
            return sum(await ctx.gather(*children))

        run = await fabric.submit(tree)
        await fabric.advance("2m")
        assert await run.result() == 6

    play(scenario)


def test_a_run_that_nothing_ends_is_explained() -> None:
    async def main() -> None:
        async with TestFabric(ff) as fabric:

            @fabric.task
            async def forever(ctx: Context) -> None:
                await ctx.suspend(signal("go"))

            await fabric.submit(forever)
            with pytest.raises(Stuck, match=r"nothing is due.*forever .* is suspended"):
                await fabric.settle(skip=True)

    run(main())


def test_a_handler_that_never_rests_is_named_by_the_guard() -> None:
    async def main() -> None:
        async with TestFabric(guard=0.2) as fabric:

            @fabric.task
            def stubborn() -> None:
                time.sleep(1)

            await fabric.submit(stubborn)
            with pytest.raises(Stuck, match=r"within 0\.2 s.*stubborn .* is active"):
                await fabric.settle()
            fabric.guard = 10
            await fabric.settle()

    run(main())


def test_a_handler_that_spins_is_named_by_the_guard() -> None:
    async def main() -> None:
        async with TestFabric(guard=0.2) as fabric:
            is_over = False

            @fabric.task
            async def spinning() -> None:
                while not is_over:  # noqa: ASYNC110 - it is meant to spin
                    await asyncio.sleep(0)

            await fabric.submit(spinning)
            with pytest.raises(Stuck, match=r"within 0\.2 s.*spinning .* is active"):
                await fabric.settle()
            is_over = True

    run(main())


def test_a_failed_run_raises_what_it_raised(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        @fabric.task
        async def broken() -> None:
            raise ValueError("no such thing")

        run = await fabric.submit(broken)
        with pytest.raises(RunFailed, match="no such thing"):
            await run.result()

    play(scenario)


def test_a_usual_loop_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(InvalidInput, match=r"flowfabric\.testing\.run"):
            await TestFabric(ff).open()

    asyncio.run(main())


def test_thirty_days_of_sleep_take_a_moment() -> None:
    """7.1.31, its first half: less than 30 ms of CPU time for the whole test, replays included."""

    async def main() -> None:
        async with TestFabric() as fabric:

            @fabric.task
            async def month(ctx: Context) -> str:
                await ctx.sleep("30d")
                return "awake"

            run = await fabric.submit(month)
            await fabric.advance("29d")
            assert await run.state() == "suspended"
            await fabric.advance("1d")
            assert await run.result() == "awake"

    def took() -> float:
        began = time.process_time()
        run(main())
        return time.process_time() - began

    assert min(took() for _ in range(5)) < 0.03
