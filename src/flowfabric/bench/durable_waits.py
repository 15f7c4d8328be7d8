"""Handlers that wait: how soon one goes on after its signal, kept in memory and called again, and
how fast a hundred children are called, beside the plain forms of both."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import Any, Final

from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import check_count
from flowfabric.clock import monotonic
from flowfabric.sdk.context.context import Context
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker.worker import Worker

CHILDREN: Final = 100
PAUSE_S: Final = 0.005  # between laps, so that the worker is idle again
_WARM_UP: Final = 2  # laps
_PATIENCE_S: Final = 60.0
_WORD: Final = "go"
_KEPT: Final = {"suspend": 1, "wait_warm": 1, "wait_cold": 0}  # by the worker of each form


def measure(
    databases: Databases, laps: int, families: int, *, children: int = CHILDREN
) -> dict[str, float | int]:
    """The figures of both: `laps` waits of each form, `families` parents of each form."""
    with databases.empty() as url:
        waits = asyncio.run(_waits(url, laps))
    with databases.empty() as url:
        rates = asyncio.run(_families(url, families, children))
    return {
        **{f"{form}_ms": round(seconds * 1000, 3) for form, seconds in waits.items()},
        "wait_warm_to_suspend": round(waits["wait_warm"] / waits["suspend"], 2),
        "wait_cold_to_suspend": round(waits["wait_cold"] / waits["suspend"], 2),
        "children": children,
        **{f"{form}_per_s": round(rate, 1) for form, rate in rates.items()},
        "call_to_spawn": round(rates["call"] / rates["spawn"], 2),
    }


async def _in_turns(
    forms: Mapping[str, Callable[[], Awaitable[float]]], laps: int
) -> dict[str, float]:
    """The median of the seconds of each; the first laps do not count."""
    found: dict[str, list[float]] = {form: [] for form in forms}
    for lap in range(laps + _WARM_UP):
        for form, once in forms.items():
            await asyncio.sleep(PAUSE_S)
            seconds = await once()
            if lap >= _WARM_UP:
                found[form].append(seconds)
    return {form: median(each) for form, each in found.items()}


@asynccontextmanager
async def _working(*workers: Worker) -> AsyncIterator[None]:
    running = [asyncio.create_task(each.run(handle_signals=False)) for each in workers]
    try:
        yield
    finally:
        for each in workers:
            each.stop()
        await asyncio.gather(*running)


# --- signals --------------------------------------------------------------------------------------


class _Lap:
    """When a handler began to wait, and when it went on."""

    def __init__(self) -> None:
        self.suspended = asyncio.Event()
        self.began = self.ended = 0.0
        self.calls: Counter[str] = Counter()


async def _waits(url: str, laps: int) -> dict[str, float]:
    """Seconds from the wait of a handler over its signal, sent as soon as it is suspended, to what
    comes after the wait."""
    lap = _Lap()
    async with Fabric(url) as fabric:
        tasks = _tasks_that_wait(fabric, lap)
        engine = await fabric.start()
        suspend = engine.suspend

        async def told(*args: Any, **more: Any) -> Any:
            answer = await suspend(*args, **more)
            lap.suspended.set()
            return answer

        setattr(engine, "suspend", told)  # noqa: B010 - a method of one object

        async def once(task: Any) -> float:
            lap.began = 0.0
            lap.suspended.clear()
            async with asyncio.timeout(_PATIENCE_S):
                run = await fabric.submit(task)
                await lap.suspended.wait()
                await fabric.signal(run, _WORD, payload=1)
                check_count("payload", await run.result(), 1)
            return lap.ended - lap.began

        workers = [Worker(fabric, lanes=[name], warm=warm) for name, warm in _KEPT.items()]
        async with _working(*workers):
            forms = {name: partial(once, task) for name, task in tasks.items()}
            found = await _in_turns(forms, laps)
    for name in tasks:  # a handler that is kept is not called again
        calls = 1 if name == "wait_warm" else 2
        check_count(f"calls of the handler, {name}", lap.calls[name], calls * (laps + _WARM_UP))
    return found


def _tasks_that_wait(fabric: Fabric, lap: _Lap) -> dict[str, Any]:
    """A task of each form, on a lane of its name."""

    async def plain(ctx: Context) -> Any:
        lap.calls[ctx.kind] += 1
        if not ctx.resumed:
            lap.began = monotonic()
            await ctx.suspend(_WORD)
        lap.ended = monotonic()
        return ctx.signals[-1].payload

    async def wait(ctx: Context) -> int:
        lap.calls[ctx.kind] += 1
        lap.began = lap.began or monotonic()
        payload = await ctx.wait_for(_WORD, int)
        lap.ended = monotonic()
        return payload

    forms: dict[str, Any] = {"suspend": plain, "wait_warm": wait, "wait_cold": wait}
    return {name: fabric.task(name=name, lane=name)(form) for name, form in forms.items()}


# --- children -------------------------------------------------------------------------------------


async def _families(url: str, families: int, children: int) -> dict[str, float]:
    """Children per second, from the first run of their parent to the end of its last one."""
    began = ended = 0.0
    ran = 0
    async with Fabric(url) as fabric:

        @fabric.task
        async def child(number: int) -> int:
            nonlocal ran
            ran += 1
            return number

        @fabric.task
        async def calls(ctx: Context) -> int:
            nonlocal began, ended
            began = began or monotonic()
            found = await ctx.gather(*(ctx.call(child, number) for number in range(children)))
            ended = monotonic()
            return sum(found)

        @fabric.task
        async def spawns(ctx: Context) -> int:
            nonlocal began, ended
            began = began or monotonic()
            found = await ctx.gather(*await ctx.spawn_many(child, range(children)))
            ended = monotonic()
            return sum(found)

        async def once(task: Any) -> float:
            nonlocal began
            began = 0.0
            async with asyncio.timeout(_PATIENCE_S):
                run = await fabric.submit(task)
                check_count("sum", await run.result(), sum(range(children)))
            return ended - began

        forms = {"call": partial(once, calls), "spawn": partial(once, spawns)}
        async with _working(Worker(fabric)):
            found = await _in_turns(forms, families)
    check_count("children run", ran, children * len(forms) * (families + _WARM_UP))
    return {form: children / seconds for form, seconds in found.items()}
