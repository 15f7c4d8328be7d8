"""A worker that knows nothing but the address of a server: `python -m … URL`."""

from __future__ import annotations

import asyncio
import sys

from flowfabric import Fabric, Worker

ff = Fabric(sys.argv[1] if len(sys.argv) > 1 else "memory://")


@ff.task(retries=3)
async def double(n: int) -> int:
    await asyncio.sleep(0.005)
    return 2 * n


if __name__ == "__main__":
    asyncio.run(Worker(ff, concurrency=20, lease_ttl="3s", drain_timeout="2s").run())
