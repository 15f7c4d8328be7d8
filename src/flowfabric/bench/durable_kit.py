"""Tests of durable tasks by the kit: a month of sleeps, and a test with one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from flowfabric import testing
from flowfabric.bench.measurement import check_count
from flowfabric.sdk.context.context import Context

SLEEPS: Final = 30


def measure(laps: int, *, sleeps: int = SLEEPS) -> dict[str, float | int]:
    """The least CPU time of several, in turns: whole tests, from the open store to the checks at
    their end; what tests of a program take more is the program's."""
    forms = {
        "kit_sleeps_ms": lambda: _sleeping(sleeps, "strict"),
        "kit_sleeps_unreplayed_ms": lambda: _sleeping(sleeps, "off"),
        "kit_step_ms": _one_step,
    }
    found: dict[str, float] = {}
    for _ in range(laps):
        for name, test in forms.items():
            found[name] = min(_cpu(test), found.get(name, float("inf")))
    return {"kit_sleeps": sleeps, **{name: round(each * 1000, 2) for name, each in found.items()}}


def _cpu(test: Callable[[], Coroutine[Any, Any, None]]) -> float:
    started = time.process_time()
    testing.run(test())
    return time.process_time() - started


async def _sleeping(sleeps: int, replay: Any) -> None:
    async with testing.TestFabric(replay=replay) as fabric:

        @fabric.task
        async def month(ctx: Context) -> int:
            for _ in range(sleeps):
                await ctx.sleep("1d")
            return sleeps

        run = await fabric.submit(month)
        await fabric.advance(f"{sleeps}d")
        check_count("days slept", await run.result(), sleeps)


async def _one_step() -> None:
    async with testing.TestFabric() as fabric:

        @fabric.step
        async def step(number: int) -> int:
            return number + 1

        @fabric.task
        async def bench(number: int) -> int:
            return await step(number)

        run = await fabric.submit(bench, 1)
        await fabric.settle()
        check_count("result", await run.result(), 2)
