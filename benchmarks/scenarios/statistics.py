"""What the roll-up of minute statistics costs beside the work that it counts."""

from __future__ import annotations

import asyncio
import time
from statistics import median

from flowfabric.assemble import open_engine
from flowfabric.bench import worker
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, check_count, versions
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.engine.unit.records import Rows, save_rows
from flowfabric.stores.base import Transaction
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import MINUTES, ROLL_UP, AnyTable

N = 20_000
ROUNDS = 3


def measure(databases: Databases, n: int | None = None) -> Measurement:
    """A backlog is drained by a worker, then all of it is counted, with its process's CPU time."""
    count = n or N
    rounds = []
    for _ in range(ROUNDS):
        with databases.empty() as url:
            _, _, work_us = worker.drain_rate(url, count, worker.CONCURRENCY)
            seconds, cpu_s = asyncio.run(_rolled_up(url, count))
            rounds.append((work_us, cpu_s / count * 1e6, count / seconds))
    work_us, roll_up_us, rate = (median(each) for each in zip(*rounds, strict=True))
    return Measurement(
        scenario="statistics",
        store=databases.store,
        n=count,
        throughput_per_s=round(rate, 1),
        settings={"concurrency": worker.CONCURRENCY, "rounds": ROUNDS},
        extra={
            "worker_cpu_us_per_task": round(work_us, 1),
            "roll_up_cpu_us_per_task": round(roll_up_us, 2),
            "roll_up_percent_of_worker": round(100 * roll_up_us / work_us, 2),
        },
        versions=versions(),
    )


async def _rolled_up(url: str, n: int) -> tuple[float, float]:
    """Seconds and CPU seconds of counting everything. What the worker's own loop has counted is
    counted again; twice, because a worker has just written what it counts, and this process has
    not read it before."""
    seconds = cpu = 0.0
    async with open_engine(url, config=EngineConfig(loops=False)) as engine:
        for _ in range(2):
            await _forget(engine)
            started, cpu = time.monotonic(), time.process_time()
            while await engine.roll_up():
                continue
            cpu = time.process_time() - cpu
            seconds = time.monotonic() - started
        lines = (await engine.read_statistics(by="total", limit=1000)).items
    check_count("executions counted", sum(each.succeeded for each in lines), n)
    return seconds, cpu


async def _forget(engine: Engine) -> None:
    async def work(tx: Transaction) -> None:
        await tx.catalog()
        rows = Rows()
        tables: tuple[AnyTable, ...] = (ROLL_UP, MINUTES)
        for table in tables:
            found = {table.key_of(each): each for each in await tx.search(Search(by_key(table)))}
            rows.take(table, found)
            rows.drop(table, found)
        await save_rows(tx, rows)

    await engine.transact(work)
