"""One claim and one completion at a time, by several callers: work that comes one by one."""

from __future__ import annotations

import asyncio
import time
from statistics import median

from flowfabric.api.backend import EngineBackend
from flowfabric.assemble import open_engine
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, check_count, versions
from flowfabric.bench.workload import LANE, WORKER, new_execution
from flowfabric.clock import monotonic
from flowfabric.model.record import replace

N = 4_000
ROUNDS = 3
CALLERS = 16
PAYLOAD = b'"' + b"x" * 4_094 + b'"'
_CREATED_AT_ONCE = 1_000


def measure(databases: Databases, n: int | None = None, *, rounds: int = ROUNDS) -> Measurement:
    """Each round on a database of its own; medians of the rounds."""
    count = n or N
    found = []
    for _ in range(rounds):
        with databases.empty() as url:
            asyncio.run(submit(url, count))
            found.append(asyncio.run(drain_rate(url, count)))
    return Measurement(
        scenario="single",
        store=databases.store,
        n=count,
        throughput_per_s=round(median(rate for rate, _ in found), 1),
        settings={"callers": CALLERS, "payload_bytes": len(PAYLOAD), "rounds": rounds},
        extra={
            "rounds_per_s": [round(rate, 1) for rate, _ in found],
            "cpu_us_per_cycle": round(median(cpu for _, cpu in found), 1),
        },
        versions=versions(),
    )


async def submit(url: str, n: int) -> None:
    """Prepare a backlog."""
    new = replace(new_execution(), input_payload=PAYLOAD)
    async with open_engine(url) as engine:
        for start in range(0, n, _CREATED_AT_ONCE):
            await engine.create_executions([new] * min(_CREATED_AT_ONCE, n - start))


async def drain_rate(url: str, n: int, callers: int = CALLERS) -> tuple[float, float]:
    """Claims and completions per second of a backlog, and the CPU µs this process spent on each."""
    async with open_engine(url) as engine:
        started, cpu = monotonic(), time.process_time()
        done = await asyncio.gather(*(_drain(engine, number) for number in range(callers)))
        seconds, cpu = monotonic() - started, time.process_time() - cpu
    check_count("completed", sum(done), n)
    return n / seconds, cpu / n * 1e6


async def _drain(engine: EngineBackend, number: int) -> int:
    """Claim one, complete it, until there is no more; how many."""
    done = 0
    while claimed := await engine.claim(
        lanes=[LANE],
        worker_id=WORKER,
        worker_instance_id=f"{WORKER}-{number}",
    ):
        await engine.complete(claimed[0].handle, result=PAYLOAD, result_encoding="json")
        done += 1
    return done
