"""What an idle engine with one worker asks of its database."""

from __future__ import annotations

import asyncio
from collections import Counter

from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, versions
from flowfabric.bench.statements import queries, watching
from flowfabric.bench.workload import TOPIC, Tally, no_op_task
from flowfabric.clock import monotonic
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker import Worker

SECONDS = 60  # housekeeping comes once in such a time
WARM_UP_S = 3.0


def measure(databases: Databases, n: int | None = None) -> Measurement:
    """Statements per second over n seconds; BEGIN, COMMIT and ROLLBACK counted apart."""
    seconds = n or SECONDS
    statements: Counter[str] = Counter()
    with databases.empty() as url, watching(databases.store, statements):
        elapsed = asyncio.run(_idle(url, seconds, statements))
    per_s, total = round(queries(statements) / elapsed, 2), sum(statements.values())
    return Measurement(
        scenario="idle",
        store=databases.store,
        n=seconds,
        throughput_per_s=per_s,
        settings={"seconds": seconds, "workers": 1, "counted": "queries without BEGIN/COMMIT"},
        extra={
            "queries_per_s": per_s,
            "with_transaction_brackets_per_s": round(total / elapsed, 2),
            "by_statement": dict(statements.most_common(20)),
        },
        versions=versions(),
    )


async def _idle(url: str, seconds: float, statements: Counter[str]) -> float:
    fabric = Fabric(url)
    task = no_op_task(fabric, Tally())
    async with fabric:
        worker = Worker(fabric)
        running = asyncio.create_task(worker.run(handle_signals=False))
        await (await task.submit(TOPIC)).result()  # an engine that has never worked asks less
        await asyncio.sleep(WARM_UP_S)
        statements.clear()
        started = monotonic()
        await asyncio.sleep(seconds)
        elapsed = monotonic() - started
        seen = statements.copy()
        worker.stop()
        await running
    statements.clear()
    statements.update(seen)
    return elapsed
