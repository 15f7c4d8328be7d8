"""A worker in a storm: python -m tests.chaos.storm_process URL NAME MODE

It says `ready` when it begins, and `ended ID` when a handler is about to return its result.
"""

from __future__ import annotations

import asyncio
import sys

from flowfabric import Worker
from tests.chaos.storm import LEASE, storm_fabric
from tests.chaos.worker_process import say


async def main() -> None:
    url, name = sys.argv[1:3]
    fabric = storm_fabric(url, lambda execution_id: say("ended", execution_id))
    say("ready")
    await Worker(fabric, worker_id=name, concurrency=20, lease_ttl=LEASE).run()


if __name__ == "__main__":
    asyncio.run(main())
