"""Frames per second into many streams at once, and how soon a tail shows one."""

from __future__ import annotations

import asyncio

from flowfabric.api.backend import EngineBackend
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, check_count, percentiles_ms, versions
from flowfabric.bench.workload import LANE, WORKER, new_execution
from flowfabric.clock import monotonic
from flowfabric.model.handle import Handle
from flowfabric.model.stream import NewFrame
from flowfabric.sdk.fabric import Fabric

N = 64_000  # frames
EXECUTIONS = 64
PER_APPEND = 10  # as many as gather in a worker while an append is under way
LAPS = 200
FRAME_BYTES = 200


def measure(databases: Databases, n: int | None = None) -> Measurement:
    """Appends of ten frames each; of one frame each, and the tail, in `extra`."""
    count = n or N
    with databases.empty() as url:
        throughput = asyncio.run(_throughput(url, count, PER_APPEND))
    with databases.empty() as url:
        alone = asyncio.run(_throughput(url, count // 4, 1))
    with databases.empty() as url:
        laps = asyncio.run(_laps(url))
    return Measurement(
        scenario="stream",
        store=databases.store,
        n=count,
        throughput_per_s=round(throughput, 1),
        **percentiles_ms(laps),
        settings={
            "executions": EXECUTIONS,
            "frame_bytes": FRAME_BYTES,
            "frames_per_append": PER_APPEND,
            "latency": "append to visible in a tail of the same process",
        },
        extra={"one_frame_per_append_per_s": round(alone, 1)},
        versions=versions(),
    )


async def _claimed(engine: EngineBackend, count: int) -> list[Handle]:
    await engine.create_executions([new_execution() for _ in range(count)])
    claims = await engine.claim(
        lanes=(LANE,), worker_id=WORKER, worker_instance_id=WORKER, limit=count
    )
    check_count("claimed", len(claims), count)
    return [each.handle for each in claims]


async def _throughput(url: str, count: int, per_append: int) -> float:
    """Frames per second of writers that each wait for their own appends."""
    async with Fabric(url) as fabric:
        engine = await fabric.start()
        handles = await _claimed(engine, EXECUTIONS)
        each = max(1, count // EXECUTIONS // per_append)
        started = monotonic()
        await asyncio.gather(*(_write(engine, handle, each, per_append) for handle in handles))
        seconds = monotonic() - started
        last = await engine.read_stream(
            execution_id=handles[-1].execution_id, attempt_index=0, count_limit=10_000
        )
        check_count("frames of one stream", len(last.frames), min(10_000, each * per_append))
        return EXECUTIONS * each * per_append / seconds


async def _write(engine: EngineBackend, handle: Handle, appends: int, size: int) -> None:
    payload = b"x" * FRAME_BYTES
    for number in range(appends):
        frames = tuple(NewFrame(payload=payload, seq=number * size + at + 1) for at in range(size))
        await engine.append_frames(handle, frames=frames)


async def _laps(url: str) -> list[float]:
    """Seconds from the call of an append until a waiting tail has its frame."""
    async with Fabric(url) as fabric:
        engine = await fabric.start()
        (handle,) = await _claimed(engine, 1)
        laps, after = [], "0-0"
        frame = NewFrame(payload=b"x" * FRAME_BYTES)
        for _ in range(LAPS):
            tail = asyncio.create_task(
                engine.tail_stream(
                    execution_id=handle.execution_id, attempt_index=0, after=after, wait_ms=30_000
                )
            )
            await asyncio.sleep(0.01)  # it has looked and waits
            started = monotonic()
            await engine.append_frame(handle, frame=frame)
            page = await tail
            laps.append(monotonic() - started)
            check_count("frames of a tail", len(page.frames), 1)
            after = page.next_cursor
        return laps
