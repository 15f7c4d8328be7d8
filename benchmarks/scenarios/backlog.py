"""Whether a store with a past is slower: each scenario on an empty and on a full database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from statistics import median

from benchmarks.scenarios.preload import DELAYED, FINISHED, preload
from flowfabric.bench import cycle, latency, worker
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, percentile, versions

ROUNDS = 3


def measure(
    databases: Databases,
    n: int | None = None,
    *,
    finished: int = FINISHED,
    delayed: int = DELAYED,
    rounds: int = ROUNDS,
) -> Measurement:
    """Empty and full in turn, medians; the change is positive where the full one is slower."""
    count = n or cycle.N
    with databases.empty() as empty, databases.empty() as full:
        asyncio.run(preload(full, finished=finished, delayed=delayed))
        asyncio.run(preload(empty, finished=1, delayed=1))
        scenarios: dict[str, Callable[[str], float]] = {
            "cycle_s": lambda url: 1 / asyncio.run(cycle.engine_rate(url, count))[0],
            "worker_s": lambda url: 1 / worker.drain_rate(url, count, worker.CONCURRENCY)[0],
            "latency_s": lambda url: percentile(latency.laps_in_process(url, 100), 50),
        }
        found = {name: _both(run, empty, full, rounds) for name, run in scenarios.items()}
    return Measurement(
        scenario="backlog",
        store=databases.store,
        n=count,
        throughput_per_s=round(1 / found["cycle_s"][1], 1),
        settings={"finished": finished, "delayed": delayed, "rounds": rounds},
        extra={
            "cycle_per_s": [round(1 / each, 1) for each in found["cycle_s"]],
            "worker_per_s": [round(1 / each, 1) for each in found["worker_s"]],
            "latency_p50_ms": [round(each * 1000, 3) for each in found["latency_s"]],
            "slower_percent": {
                name.removesuffix("_s"): round((full_s / empty_s - 1) * 100, 1)
                for name, (empty_s, full_s) in found.items()
            },
        },
        versions=versions(),
    )


def _both(run: Callable[[str], float], empty: str, full: str, rounds: int) -> tuple[float, float]:
    pairs = [(run(empty), run(full)) for _ in range(rounds)]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
