"""The cycle of `ff bench cycle`, each round of it beside a round of its floor."""

from __future__ import annotations

import asyncio
from statistics import median

from benchmarks.scenarios.floor import measure_floor
from benchmarks.scenarios.specimen import Specimen, read_specimen
from flowfabric.assemble import open_engine
from flowfabric.bench import cycle
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement
from flowfabric.clock import SystemClock
from flowfabric.model.record import replace

_FAR_MS = 365 * 86_400_000


def measure(
    databases: Databases, n: int | None = None, *, rounds: int = cycle.ROUNDS, drivers: int = 1
) -> Measurement:
    """Engine and floor in turn, each on databases of its own; medians of the rounds."""
    count = n or cycle.N
    found, floors, ratios, wide = [], [], [], []
    for _ in range(rounds):
        rate, cpu_us = cycle.engine_round(databases, count, drivers)
        found.append((rate, cpu_us))
        floors.append(_floor_round(databases, count, drivers))
        ratios.append(rate / floors[-1])
        if databases.store == "sqlite":
            wide.append(rate / _floor_round(databases, count, drivers, wide=True))
    alone = cycle.measurement(databases.store, count, found, drivers=drivers)
    return replace(
        alone,
        floor_per_s=round(median(floors), 1),
        ratio_to_floor=round(median(ratios), 3),
        extra={
            **alone.extra,
            "floor_rounds_per_s": [round(floor, 1) for floor in floors],
            **({"ratio_to_wide_floor": round(median(wide), 3)} if wide else {}),
        },
    )


def _floor_round(databases: Databases, n: int, drivers: int, *, wide: bool = False) -> float:
    with databases.empty() as url, databases.empty() as scratch:
        specimen = asyncio.run(_prepared(url, scratch))
        return asyncio.run(measure_floor(url, specimen, n, cycle.BATCH, drivers=drivers, wide=wide))


async def _prepared(url: str, scratch: str) -> Specimen:
    """Rows read elsewhere, and the same schema on the database that is measured."""
    engine = open_engine(url)
    await engine.start(migrate=True)
    await engine.close()
    return await read_specimen(scratch, delay_until=SystemClock().now_ms() + _FAR_MS)
