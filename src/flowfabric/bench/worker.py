"""One worker process drains a backlog of no-op tasks; every result is stored."""

from __future__ import annotations

import asyncio
from statistics import median

from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, check_count, versions
from flowfabric.bench.processes import drained_by_process
from flowfabric.bench.workload import TOPIC, Tally, no_op_task
from flowfabric.clock import monotonic
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker.settings import CONCURRENCY as DEFAULT_CONCURRENCY

N = 20_000
ROUNDS = 3
CONCURRENCY = 500  # as PgQueuer's best batch; the default is measured beside it


def measure(
    databases: Databases,
    n: int | None = None,
    *,
    rounds: int = ROUNDS,
    concurrency: int = CONCURRENCY,
) -> Measurement:
    """Executions per second from the first claim to the last completion; medians of the rounds."""
    count = n or N
    best = [_round(databases, count, concurrency) for _ in range(rounds)]
    usual = [_round(databases, count, DEFAULT_CONCURRENCY) for _ in range(rounds)]
    return Measurement(
        scenario="worker",
        store=databases.store,
        n=count,
        throughput_per_s=round(median(rate for rate, _, _ in best), 1),
        settings={"concurrency": concurrency, "rounds": rounds, "processes": 1, "durable": True},
        extra={
            "rounds_per_s": [round(rate, 1) for rate, _, _ in best],
            "default_concurrency": DEFAULT_CONCURRENCY,
            "default_concurrency_per_s": round(median(rate for rate, _, _ in usual), 1),
            "submit_many_per_s": round(median(submit for _, submit, _ in best), 1),
            "worker_cpu_us_per_task": round(median(cpu for _, _, cpu in best), 1),
        },
        versions=versions(),
    )


def _round(databases: Databases, n: int, concurrency: int) -> tuple[float, float, float]:
    with databases.empty() as url:
        return drain_rate(url, n, concurrency)


def drain_rate(url: str, n: int, concurrency: int) -> tuple[float, float, float]:
    """Drain rate, submit rate and the worker's CPU µs per task, on a database of any content."""
    before = asyncio.run(_completed(url))
    submit_rate = asyncio.run(submit(url, n))
    seen = drained_by_process(url, concurrency, n)
    check_count("handlers run", int(seen["handled"]), n)
    check_count("completions answered", int(seen["completed"]), n)
    check_count("completed in the store", asyncio.run(_completed(url)) - before, n)
    return n / seen["seconds"], submit_rate, seen["cpu_seconds"] / n * 1e6


async def submit(url: str, n: int) -> float:
    """Prepare a backlog; how many were submitted per second."""
    fabric = Fabric(url)
    task = no_op_task(fabric, Tally())
    async with fabric:
        started = monotonic()
        await fabric.submit_many(task, [TOPIC] * n)
        return n / (monotonic() - started)


async def _completed(url: str) -> int:
    async with Fabric(url) as fabric:
        counts = await (await fabric.start()).count_executions()
    return sum(states.get("completed", 0) for states in counts.values())
