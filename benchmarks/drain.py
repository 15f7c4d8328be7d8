"""`python benchmarks/drain.py URL CONCURRENCY N`: one drain, by the package on the path.

It imports nothing of this folder, so that `drains` can run it on the code of another commit.
"""

import asyncio
import json
import sys
from typing import Any

from flowfabric.bench import worker
from flowfabric.bench.worker_process import drain
from flowfabric.engine.batch import Batcher
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker import Worker


def main() -> None:
    url, concurrency, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    asyncio.run(worker.submit(url, n))
    commits = _counted_commits()
    slots = _default() if concurrency == "default" else int(concurrency)
    seen = asyncio.run(drain(url, slots, n))
    figures = {
        "slots": slots,
        "per_s": n / seen["seconds"],
        "cpu_us": seen["cpu_seconds"] / n * 1e6,
        "commits": len(commits) / n * 1_000,
    }
    assert seen["completed"] == seen["handled"] == n
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}))


def _default() -> int:
    """Of a worker with async tasks only."""
    fabric = Fabric("memory://")

    @fabric.task
    async def work() -> None: ...

    return Worker(fabric).settings.concurrency


def _counted_commits() -> list[int]:
    """The number of commands of every commit from now on."""
    sizes: list[int] = []
    finish = Batcher._finish

    async def counted(self: Batcher, batch: list[Any]) -> None:
        sizes.append(len(batch))
        await finish(self, batch)

    setattr(Batcher, "_finish", counted)  # noqa: B010 - a method is replaced
    return sizes


if __name__ == "__main__":
    main()
