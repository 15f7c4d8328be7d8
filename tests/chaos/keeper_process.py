"""An engine with loops, to be killed: python -m tests.chaos.keeper_process URL …"""

from __future__ import annotations

import asyncio
import sys

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from tests.chaos.worker_process import say


async def main() -> None:
    async with open_engine(sys.argv[1], config=EngineConfig(pool_size=2)):
        say("working")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
