"""What serial and unique keys and hooks cost a submit, and what others pay while many executions
wait in lines, or while a bulk operation changes very many.

Everything takes turns on databases of one run, call by call: what else the machine does slows down
all of it alike. Figures are ratios of medians.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from statistics import median
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.executions import NewExecution, NewHook, NewUnique
from flowfabric.api.leases import Complete
from flowfabric.assemble import open_engine
from flowfabric.bench.databases import Databases, settle
from flowfabric.bench.measurement import Measurement, MeasurementFailed, check_count, versions
from flowfabric.bench.workload import LANE, RESULT, WORKER, new_execution
from flowfabric.clock import monotonic
from flowfabric.config import EngineConfig
from flowfabric.model.record import replace

N: Final = 100_000  # that wait in lines, or are changed by an operation
LINES: Final = 1_000
LAPS: Final = 20
BATCH: Final = 500
CALLERS: Final = 64
_CLAIMED: Final = 200
_HOUR_MS: Final = 3_600_000
_FORMS: Final = ("plain", "serial", "unique", "hooks")


def measure(databases: Databases, n: int | None = None, *, laps: int = LAPS) -> Measurement:
    """Submits of four forms in turns; claims beside lines; claims beside an operation."""
    count = n or N
    with databases.empty() as url:
        submits = asyncio.run(_submits(url, laps))
    with databases.empty() as empty, databases.empty() as full:
        beside_lines = asyncio.run(_beside(empty, full, count, laps, _fill_lines))
    with databases.empty() as empty, databases.empty() as full:
        beside_bulk = asyncio.run(_beside(empty, full, count, laps, _begin_operation))
    plain = median(submits["plain"])
    return Measurement(
        scenario="order",
        store=databases.store,
        n=count,
        throughput_per_s=round(BATCH / plain, 1),
        settings={"laps": laps, "batch": BATCH, "callers": CALLERS, "lines": min(LINES, count)},
        extra={
            **{f"{form}_to_plain": round(plain / median(submits[form]), 3) for form in _FORMS[1:]},
            **{
                f"{form}_to_plain_one_by_one": round(
                    median(submits["plain, one by one"]) / median(submits[f"{form}, one by one"]),
                    3,
                )
                for form in _FORMS[1:]
            },
            "beside_lines": beside_lines,
            "beside_operation": beside_bulk,
        },
        versions=versions(),
    )


# --- submits --------------------------------------------------------------------------------------


def _work(form: str, number: int) -> NewExecution:
    """A new execution of a form. No unique key is taken, and lines have a few places each."""
    base = new_execution()
    match form:
        case "serial":
            return replace(base, serial_key=f"k{number % LINES}")
        case "unique":
            return replace(base, unique=NewUnique(key=f"u{number}"))
        case "hooks":
            return replace(base, on_success=_HOOK, on_failure=_HOOK)
        case _:
            return base


_HOOK: Final = NewHook(execution_kind="told")


async def _submits(url: str, laps: int) -> dict[str, list[float]]:
    """Seconds of a batch of each form, and of as many submits by callers of their own."""
    engine: EngineBackend = open_engine(url, config=EngineConfig(loops=False))
    await engine.start(migrate=True)
    took: dict[str, list[float]] = {}
    made = 0
    try:
        for lap in range(laps + 1):
            for form in _FORMS if lap % 2 else reversed(_FORMS):
                works = [_work(form, made + at) for at in range(2 * BATCH)]
                made += len(works)
                whole = await _timed(engine.create_executions(works[:BATCH]))
                single = await _timed(_by_callers(engine, works[BATCH:]))
                if lap:  # the first one of each form learns its routes
                    took.setdefault(form, []).append(whole)
                    took.setdefault(f"{form}, one by one", []).append(single)
        counts = await engine.count_executions()
        check_count("submits", sum(map(sum, (each.values() for each in counts.values()))), made)
    finally:
        await engine.close()
    return took


async def _by_callers(engine: EngineBackend, works: Sequence[NewExecution]) -> None:
    left = iter(works)

    async def caller() -> None:
        for work in left:
            await engine.call(work)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def _timed(work: Any) -> float:
    started = monotonic()
    await work
    return monotonic() - started


# --- others ---------------------------------------------------------------------------------------


async def _beside(
    empty: str, full: str, count: int, laps: int, fill: Callable[[EngineBackend, int], Any]
) -> dict[str, Any]:
    """Plain work on an empty database, and on one where much else waits or goes on, in turns."""
    async with AsyncExitStack() as stack:
        sides = []
        for url in (empty, full):
            loops = url is full and fill is _begin_operation
            engine = open_engine(url, config=EngineConfig(loops=loops))
            stack.push_async_callback(engine.close)
            await engine.start(migrate=True)
            sides.append(_Side(engine))
        told = await fill(sides[1].engine, count)
        await settle(full)
        for lap in range(laps + 1):
            for side in sides if lap % 2 else reversed(sides):
                await side.lap(is_counted=lap > 0)
        if fill is _begin_operation:
            told |= await _progress(sides[1].engine)
    claims = [median(side.claims) for side in sides]
    cycles = [median(side.cycles) for side in sides]
    return {
        **told,
        "claim_ratio": round(claims[0] / claims[1], 3),
        "cycle_ratio": round(cycles[0] / cycles[1], 3),
        "plain_claim_p50_ms": round(claims[0] * 1000, 2),
        "claim_p50_ms": round(claims[1] * 1000, 2),
    }


class _Side:
    """One of two engines that take turns."""

    def __init__(self, engine: EngineBackend) -> None:
        self.engine = engine
        self.claims: list[float] = []
        self.cycles: list[float] = []

    async def lap(self, *, is_counted: bool) -> None:
        """Create, claim and complete a few."""
        engine, started = self.engine, monotonic()
        await engine.create_executions([new_execution()] * _CLAIMED)
        asked_at = monotonic()
        claimed = await engine.claim(
            lanes=[LANE],
            worker_id=WORKER,
            worker_instance_id=f"{WORKER}-1",
            limit=_CLAIMED,
            lease_ttl_ms=_HOUR_MS,
        )
        took = monotonic() - asked_at
        check_count("claimed", len(claimed), _CLAIMED)
        replies = await engine.complete_many(
            [Complete(handle=e.handle, result=RESULT, result_encoding="json") for e in claimed]
        )
        if any(isinstance(each, Exception) for each in replies):
            raise MeasurementFailed("a completion was refused")
        if is_counted:
            self.claims.append(took)
            self.cycles.append(monotonic() - started)


async def _fill_lines(engine: EngineBackend, count: int) -> dict[str, Any]:
    """All but the heads wait behind others; the heads run. They are on the lane of the others."""
    lines = min(LINES, count)
    work, started = new_execution(), monotonic()
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        wanted = [replace(work, serial_key=f"k{(first + at) % lines}") for at in range(size)]
        await engine.create_executions(wanted)
    seconds = monotonic() - started
    heads = 0
    while claimed := await engine.claim(
        lanes=[LANE],
        worker_id="other",
        worker_instance_id="other-1",
        limit=BATCH,
        lease_ttl_ms=_HOUR_MS,
    ):
        heads += len(claimed)
    check_count("heads", heads, lines)
    return {"waiting": count - lines, "lines": lines, "submits_per_s": round(count / seconds, 1)}


async def _begin_operation(engine: EngineBackend, count: int) -> dict[str, Any]:
    """Another lane's work gets another priority."""
    work = replace(new_execution(), lane_id="bulk")
    for first in range(0, count, BATCH):
        await engine.create_executions([work] * min(BATCH, count - first))
    await engine.start_operation(action="priority", lane_id="bulk", new_priority=7)
    return {"matched": count}


async def _progress(engine: EngineBackend) -> dict[str, Any]:
    """How far it came meanwhile: an operation that was over early would have slowed down nobody."""
    (found,) = (await engine.list_operations()).items
    return {"changed_meanwhile": found.done, "is_over": found.is_over}
