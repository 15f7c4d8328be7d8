"""create → claim → complete through the engine's own calls, in batches, against the floor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median

from flowfabric.api.leases import Complete
from flowfabric.assemble import open_engine
from flowfabric.bench.floor import measure_floor
from flowfabric.bench.measurement import Measurement, MeasurementFailed, check_count, versions
from flowfabric.bench.places import Place
from flowfabric.bench.specimen import (
    LANE,
    RESULT,
    WORKER,
    Specimen,
    new_execution,
    read_specimen,
)
from flowfabric.clock import SystemClock, monotonic
from flowfabric.engine.engine import Engine

BATCH = 500
ROUNDS = 3
N = 20_000
_FAR_MS = 365 * 86_400_000


def measure(
    place: Place, n: int | None = None, *, rounds: int = ROUNDS, drivers: int = 1
) -> Measurement:
    """Engine and floor in turn, each on databases of its own; medians of the rounds."""
    count = n or N
    rates, cpu, floors, ratios, wide = [], [], [], [], []
    for _ in range(rounds):
        rate, cpu_us = _engine_round(place, count, drivers)
        cpu.append(cpu_us)
        floor = _floor_round(place, count, drivers)
        rates.append(rate)
        floors.append(floor)
        ratios.append(rate / floor)
        if place.store == "sqlite":
            wide.append(rate / _floor_round(place, count, drivers, wide=True))
    return Measurement(
        scenario="cycle",
        store=place.store,
        n=count,
        throughput_per_s=round(median(rates), 1),
        floor_per_s=round(median(floors), 1),
        ratio_to_floor=round(median(ratios), 3),
        settings={"batch": BATCH, "rounds": rounds, "drivers": drivers, "durable": True},
        extra={
            "rounds_per_s": [round(rate, 1) for rate in rates],
            "floor_rounds_per_s": [round(floor, 1) for floor in floors],
            "cpu_us_per_cycle": round(median(cpu), 1),
            **({"ratio_to_wide_floor": round(median(wide), 3)} if wide else {}),
        },
        versions=versions(),
    )


def _engine_round(place: Place, n: int, drivers: int) -> tuple[float, float]:
    with place.database() as url:
        return asyncio.run(engine_rate(url, n, drivers=drivers))


def _floor_round(place: Place, n: int, drivers: int, *, wide: bool = False) -> float:
    with place.database() as url, place.database() as scratch:
        specimen = asyncio.run(_prepared(url, scratch))
        return asyncio.run(measure_floor(url, specimen, n, BATCH, drivers=drivers, wide=wide))


async def _prepared(url: str, scratch: str) -> Specimen:
    """Rows read elsewhere, and the same schema on the database that is measured."""
    engine = open_engine(url)
    await engine.start(migrate=True)
    await engine.close()
    return await read_specimen(scratch, delay_until=SystemClock().now_ms() + _FAR_MS)


async def engine_rate(
    url: str, n: int, *, drivers: int = 1, batch: int = BATCH
) -> tuple[float, float]:
    """Cycles per second at default settings, every step durable before the next; and the CPU µs
    this process spent per cycle, which a busy machine disturbs less."""
    engine = open_engine(url)
    await engine.start(migrate=True)
    try:
        before = await _completed(engine)
        sizes = iter([min(batch, n - start) for start in range(0, n, batch)])
        started, cpu = monotonic(), time.process_time()
        await asyncio.gather(*(_drive(engine, sizes, number) for number in range(drivers)))
        seconds, cpu = monotonic() - started, time.process_time() - cpu
        check_count("cycles completed", await _completed(engine) - before, n)
    finally:
        await engine.close()
    return n / seconds, cpu / n * 1e6


async def _drive(engine: Engine, sizes: Iterator[int], number: int) -> None:
    for size in sizes:
        await engine.create_executions([new_execution() for _ in range(size)])
        claimed = await engine.claim(
            lanes=[LANE],
            worker_id=WORKER,
            worker_instance_id=f"{WORKER}-{number}",
            limit=size,
        )
        check_count("claimed", len(claimed), size)
        replies = await engine.complete_many(
            [
                Complete(handle=each.handle, result=RESULT, result_encoding="json")
                for each in claimed
            ]
        )
        refused = [reply for reply in replies if isinstance(reply, Exception)]
        if refused:
            raise MeasurementFailed(f"a completion was refused: {refused[0]}")


async def _completed(engine: Engine) -> int:
    counts = await engine.count_executions()
    return sum(states.get("completed", 0) for states in counts.values())
