"""submit → result with an idle worker, at default settings."""

from __future__ import annotations

import asyncio
import contextlib

from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import (
    Measurement,
    MeasurementFailed,
    percentiles_ms,
    versions,
)
from flowfabric.bench.processes import worker_beside
from flowfabric.bench.workload import TOPIC, Tally, no_op_task
from flowfabric.clock import monotonic
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.task import Task
from flowfabric.sdk.worker import Worker
from flowfabric.sdk.worker.settings import CONCURRENCY

N = 300
WARM_UP = 20
PAUSE_S = 0.005  # between samples, so that the worker is idle again
_RESULT_TIMEOUT = "30s"


def measure(databases: Databases, n: int | None = None) -> Measurement:
    """The worker in the same process; in a process of its own in `extra`."""
    count = n or N
    with databases.empty() as url:
        laps = laps_in_process(url, count)
    with databases.empty() as url:
        beside = laps_beside(url, count)
    return Measurement(
        scenario="latency",
        store=databases.store,
        n=count,
        **percentiles_ms(laps),
        settings={"worker": "same process", "pause_ms": PAUSE_S * 1000, "warm_up": WARM_UP},
        extra={"separate_worker_process": percentiles_ms(beside)},
        versions=versions(),
    )


def laps_in_process(url: str, n: int) -> list[float]:
    """Seconds of each round trip; submitter and worker share a process and an engine."""
    return asyncio.run(_in_process(url, n))


def laps_beside(url: str, n: int) -> list[float]:
    """The same with the worker in another process."""
    asyncio.run(_migrated(url))
    with worker_beside(url, CONCURRENCY):
        return asyncio.run(_alone(url, n))


async def _in_process(url: str, n: int) -> list[float]:
    fabric = Fabric(url)
    task = no_op_task(fabric, Tally())
    async with fabric:
        worker = Worker(fabric)
        running = asyncio.create_task(worker.run(handle_signals=False))
        try:
            return await _laps(task, n)
        finally:
            worker.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def _alone(url: str, n: int) -> list[float]:
    fabric = Fabric(url)
    task = no_op_task(fabric, Tally())
    async with fabric:
        return await _laps(task, n)


async def _migrated(url: str) -> None:
    async with Fabric(url):
        return


async def _laps(task: Task[..., str], n: int) -> list[float]:
    laps = []
    for number in range(n + WARM_UP):
        await asyncio.sleep(PAUSE_S)
        started = monotonic()
        run = await task.submit(TOPIC)
        answer = await run.result(timeout=_RESULT_TIMEOUT)
        if answer != "done":
            raise MeasurementFailed(f"the result was {answer!r}")
        if number >= WARM_UP:
            laps.append(monotonic() - started)
    return laps
