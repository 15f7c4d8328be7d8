"""`python -m flowfabric.bench.worker_process URL CONCURRENCY N`: one worker, as users run one.

With N it works until N executions are completed and prints its report as one JSON object; with 0 it
says `ready` and works until its input is closed.
"""

from __future__ import annotations

import asyncio
import sys
import time

from flowfabric.bench.workload import Stopwatch, Tally, no_op_task
from flowfabric.model.record import to_json
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker import Worker


async def drain(url: str, concurrency: int, n: int) -> dict[str, float]:
    """Empty a prepared backlog."""
    tally = Tally()
    fabric = Fabric(url)
    no_op_task(fabric, tally)
    async with fabric:
        watch = Stopwatch(await fabric.start())
        worker = Worker(fabric, concurrency=concurrency)
        finished = asyncio.Event()
        watch.on_completion = lambda: finished.set() if watch.completed >= n else None
        cpu = time.process_time()
        running = asyncio.create_task(worker.run())
        ending = asyncio.create_task(finished.wait())
        await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
        cpu = time.process_time() - cpu
        worker.stop()
        await running
    return {
        "seconds": watch.seconds,
        "handled": tally.handled,
        "completed": watch.completed,
        "cpu_seconds": cpu,
    }


async def serve(url: str, concurrency: int) -> None:
    """Work until the parent closes our input."""
    fabric = Fabric(url)
    no_op_task(fabric, Tally())
    async with fabric:
        worker = Worker(fabric, concurrency=concurrency)
        running = asyncio.create_task(worker.run())
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        worker.stop()
        await running


def main() -> None:
    """The entry of the process."""
    url, concurrency, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if n:
        seen = asyncio.run(drain(url, concurrency, n))
        sys.stdout.write(to_json(seen).decode() + "\n")
    else:
        asyncio.run(serve(url, concurrency))


if __name__ == "__main__":
    main()
