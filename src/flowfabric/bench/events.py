"""Events per second that a subscriber reads, that a group hands out, and how soon one is seen."""

from __future__ import annotations

import asyncio

from flowfabric.api.backend import EngineBackend
from flowfabric.api.leases import Complete
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, check_count, percentiles_ms, versions
from flowfabric.bench.workload import LANE, WORKER, new_execution
from flowfabric.clock import monotonic
from flowfabric.limits import PAGE_MAX
from flowfabric.model.results import Claimed
from flowfabric.sdk.fabric import Fabric

N = 40_000  # events: a lease and a completion for each execution
AT_ONCE = 500
LAPS = 200
_COMPLETIONS = ("completion",)


def measure(databases: Databases, n: int | None = None) -> Measurement:
    """A subscriber that catches up; a group that does, and the latency, beside it."""
    count = n or N
    with databases.empty() as url:
        read, handed_out = asyncio.run(_throughput(url, max(1, count // 2)))
    with databases.empty() as url:
        laps = asyncio.run(_laps(url))
    return Measurement(
        scenario="events",
        store=databases.store,
        n=count,
        throughput_per_s=round(read, 1),
        **percentiles_ms(laps),
        settings={
            "page": PAGE_MAX,
            "latency": "completion to its subscriber in the same process",
        },
        extra={"group_per_s": round(handed_out, 1)},
        versions=versions(),
    )


async def _claimed(engine: EngineBackend, count: int) -> list[Claimed]:
    await engine.create_executions([new_execution() for _ in range(count)])
    claims = await engine.claim(
        lanes=(LANE,), worker_id=WORKER, worker_instance_id=WORKER, limit=count
    )
    check_count("claimed", len(claims), count)
    return claims


async def _throughput(url: str, executions: int) -> tuple[float, float]:
    async with Fabric(url) as fabric:
        engine = await fabric.start()
        await engine.create_consumer_group(group_id="bench", kinds=_COMPLETIONS, after=None)
        for first in range(0, executions, AT_ONCE):
            claims = await _claimed(engine, min(AT_ONCE, executions - first))
            await engine.complete_many([Complete(handle=each.handle) for each in claims])
        return await _read(engine, 2 * executions), await _handed_out(engine, executions)


async def _read(engine: EngineBackend, count: int) -> float:
    started, after, seen = monotonic(), None, 0
    while True:
        page = await engine.read_events(kinds=("lease", "completion"), after=after, limit=PAGE_MAX)
        seen, after = seen + len(page.events), page.cursor
        if page.is_end:
            break
    check_count("events", seen, count)
    return count / (monotonic() - started)


async def _handed_out(engine: EngineBackend, count: int) -> float:
    started, seen = monotonic(), 0
    while seen < count:
        taken = await engine.read_group(
            group_id="bench", consumer=WORKER, limit=PAGE_MAX, wait_ms=0
        )
        check_count("events of a delivery", len(taken.events), min(PAGE_MAX, count - seen))
        await engine.ack_group(group_id="bench", consumer=WORKER, delivery=taken.delivery)
        seen += len(taken.events)
    return count / (monotonic() - started)


async def _laps(url: str) -> list[float]:
    """Seconds from the call of a completion until its subscriber has the event."""
    async with Fabric(url) as fabric:
        engine = await fabric.start()
        laps: list[float] = []
        after = (await engine.read_events(kinds=_COMPLETIONS, after="now")).cursor
        for each in await _claimed(engine, LAPS):
            waiting = asyncio.create_task(
                engine.subscribe_events(kinds=_COMPLETIONS, after=after, wait_ms=30_000)
            )
            await asyncio.sleep(0.03)  # it has looked and waits
            started = monotonic()
            await engine.complete(each.handle)
            page = await waiting
            laps.append(monotonic() - started)
            check_count("events of a subscriber", len(page.events), 1)
            after = page.cursor
        return laps
