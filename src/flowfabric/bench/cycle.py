"""create → claim → complete through the engine's own calls, in batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from statistics import median

from flowfabric.api.backend import EngineBackend
from flowfabric.api.leases import Complete
from flowfabric.assemble import open_engine
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, MeasurementFailed, check_count, versions
from flowfabric.bench.workload import LANE, RESULT, WORKER, new_execution
from flowfabric.clock import monotonic

BATCH = 500
ROUNDS = 3
N = 20_000


def measure(
    databases: Databases, n: int | None = None, *, rounds: int = ROUNDS, drivers: int = 1
) -> Measurement:
    """Each round on a database of its own; medians of the rounds."""
    count = n or N
    found = [engine_round(databases, count, drivers) for _ in range(rounds)]
    return measurement(databases.store, count, found, drivers=drivers)


def measurement(
    store: str, n: int, found: Sequence[tuple[float, float]], *, drivers: int
) -> Measurement:
    """Rounds of (cycles per second, CPU µs per cycle) as one object."""
    return Measurement(
        scenario="cycle",
        store=store,
        n=n,
        throughput_per_s=round(median(rate for rate, _ in found), 1),
        settings={"batch": BATCH, "rounds": len(found), "drivers": drivers, "durable": True},
        extra={
            "rounds_per_s": [round(rate, 1) for rate, _ in found],
            "cpu_us_per_cycle": round(median(cpu for _, cpu in found), 1),
        },
        versions=versions(),
    )


def engine_round(databases: Databases, n: int, drivers: int) -> tuple[float, float]:
    """See `engine_rate`; on an empty database."""
    with databases.empty() as url:
        return asyncio.run(engine_rate(url, n, drivers=drivers))


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


async def _drive(engine: EngineBackend, sizes: Iterator[int], number: int) -> None:
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


async def _completed(engine: EngineBackend) -> int:
    counts = await engine.count_executions()
    return sum(states.get("completed", 0) for states in counts.values())
