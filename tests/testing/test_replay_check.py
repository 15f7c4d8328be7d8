"""The replay check finds handlers that do not do the same again, and no others."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from flowfabric import Context, Fabric, Fatal, RunFailed, StepFailed, SyncContext
from flowfabric.testing import ReplayMismatch, TestFabric, run
from tests.testing.conftest import Play

ff = Fabric("memory://")
COUNTER = itertools.count()
SEEN: list[int] = []
Handler = Callable[[Context], Coroutine[Any, Any, Any]]


@ff.step
async def note(value: Any) -> Any:
    return value


@ff.step
async def fast() -> str:
    return "fast"


@ff.step
async def late() -> str:
    await asyncio.sleep(5)
    return "late"


# --- twelve faults --------------------------------------------------------------------------------


async def by_time(ctx: Context) -> None:
    await note("a")
    await note(time.time_ns())


async def by_chance(ctx: Context) -> Any:
    return [await note("a"), random.random()]


async def by_uuid(ctx: Context) -> None:
    await ctx.step(f"upload-{uuid4()}", str)


async def by_counter(ctx: Context) -> None:
    if next(COUNTER) % 2 == 0:
        await note("even")
    await note("all")


async def by_list(ctx: Context) -> None:
    SEEN.append(1)
    for number in range(len(SEEN)):
        await note(number)


async def by_environment(ctx: Context) -> None:
    if os.environ.get("FLOWFABRIC_REGION") is None:
        await note("home")
    await note("away")


async def by_attempt(ctx: Context) -> None:
    await note(ctx.attempt)


async def by_replaying(ctx: Context) -> None:
    await note("a")
    if ctx.is_replaying:
        return
    await note("b")


async def by_address(ctx: Context) -> None:
    await note("a")
    await note(repr(object()))


async def by_first(ctx: Context) -> str:
    async def one(name: str, step: Any) -> Any:
        async with ctx.branch(name):
            return await step()

    tasks = [asyncio.create_task(one("left", late)), asyncio.create_task(one("right", fast))]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    done = [task.result() for task in tasks if task.done()]
    await note(done)
    return str(await tasks[0])


async def by_monotonic(ctx: Context) -> float:
    await note("a")
    return time.perf_counter()


FAULTS: tuple[Handler, ...] = (
    by_time,
    by_chance,
    by_uuid,
    by_counter,
    by_list,
    by_environment,
    by_attempt,
    by_replaying,
    by_address,
    by_first,
    by_monotonic,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault: Handler, play: Play) -> None:
    """7.1.50."""

    async def scenario(fabric: TestFabric) -> None:
        task = fabric.task(fault)
        await fabric.submit(task)
        with pytest.raises(ReplayMismatch, match=f"{fault.__name__} does not do the same"):
            await fabric.advance("1m")

    play(scenario)


def test_a_file_that_a_step_makes_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "made"

    async def main() -> None:
        async with TestFabric() as fabric:

            @fabric.task
            async def by_file() -> None:
                if not path.exists():
                    await note("missing")
                await note("make")
                path.touch()

            await fabric.submit(by_file)
            with pytest.raises(ReplayMismatch):
                await fabric.settle()

    run(main())


def test_a_raw_task_is_refused_on_its_first_run() -> None:
    async def main() -> None:
        async with TestFabric() as fabric:

            @fabric.task
            async def by_task() -> None:
                await asyncio.create_task(_noted())

            run = await fabric.submit(by_task)
            with pytest.raises(RunFailed, match="order of calls depends on chance"):
                await run.result()

    async def _noted() -> None:
        await note("a")

    run(main())


# --- and no others --------------------------------------------------------------------------------


@ff.task(retries=2, backoff="1s")
async def busy(ctx: Context, count: int) -> dict[str, Any]:
    now = await ctx.now()
    chosen = await ctx.value("chosen", random.random)
    first = await ctx.gather(*(note(number) for number in range(count)))
    second = await ctx.map(note, range(count), limit=2)
    async with asyncio.timeout(60):
        await asyncio.sleep(ctx.random.random())
    await note(ctx.uuid())
    return {"at": now.isoformat(), "chosen": chosen, "sum": sum(first) + sum(second)}


@ff.step(retries=2, backoff="1h")
async def shaky(tries: list[int]) -> str:
    from flowfabric import current_step

    if current_step().attempt < 3:
        raise ConnectionError("not yet")
    return "done"


@ff.task(retries=1, backoff="1s")
async def failing(ctx: Context) -> str:
    try:
        await ctx.step("refused", _refuse)
    except StepFailed as error:
        await note(error.category)
    await shaky([1])
    return await ctx.step.options(secret=True)("token", str, 7)


def _refuse() -> None:
    raise Fatal("no")


@ff.task
def in_thread(ctx: SyncContext, count: int) -> int:
    ctx.map(lambda number: ctx.step("double", int, number * 2), [])
    total = sum(ctx.step("next", int, number) for number in range(count))
    return total + len(ctx.uuid())


@ff.task(retries=1, backoff="1s")
async def broken(ctx: Context) -> None:
    await note("before")
    await ctx.step("explode", _explode)


def _explode() -> None:
    raise ConnectionError("always")


def test_a_deterministic_handler_replays(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        runs = [await fabric.submit(busy, 3), await fabric.submit(failing)]
        runs.append(await fabric.submit(in_thread, 4))
        await fabric.settle(skip=True)
        assert (await runs[0].result())["sum"] == 6
        assert await runs[1].result() == "7"
        assert await runs[2].result() == 6 + 36
        lost = await fabric.submit(broken)
        await fabric.settle(skip=True)
        with pytest.raises(RunFailed, match="always"):
            await lost.result()

    play(scenario, ff)


def test_every_step_is_run_once_and_replayed_when_always_dropped(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        starts: list[int] = []

        @fabric.task
        async def counted(ctx: Context) -> int:
            starts.append(1)
            return sum([await note(number) for number in range(4)])

        run = await fabric.submit(counted)
        await fabric.settle(skip=True)
        assert await run.result() == 6
        assert [each.key for each in fabric.runs_of_steps] == [
            "note",
            *map("note#{}".format, (2, 3, 4)),
        ]
        assert len(starts) >= 4

    play(scenario, replay="always")


def test_a_fault_is_found_without_a_check_when_always_dropped() -> None:
    async def main() -> None:
        async with TestFabric(replay="always") as fabric:
            await fabric.submit(fabric.task(by_address))
            with pytest.raises(ReplayMismatch):
                await fabric.settle(skip=True)

    run(main())


def test_off_checks_nothing() -> None:
    async def main() -> None:
        async with TestFabric(replay="off") as fabric:
            run = await fabric.submit(fabric.task(by_chance))
            await run.result()

    run(main())


def test_a_run_that_waits_is_checked_as_far_as_it_is() -> None:
    async def main() -> None:
        async with TestFabric() as fabric:

            @fabric.task
            async def waiting(ctx: Context) -> str:
                value = await note("a")
                if not ctx.resumed:
                    await ctx.suspend("go")
                await note("b")
                return str(value)

            run = await fabric.submit(waiting)
            await fabric.settle()
            await fabric.signal(run, "go")
            assert await run.result() == "a"
            await fabric.assert_steps(run, ["note", "note#2"])

    run(main())
