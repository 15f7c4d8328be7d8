"""A backfill, to be killed: python -m tests.chaos.filler_process URL NAME MODE SCHEDULE FROM TO."""

from __future__ import annotations

import asyncio
import sys

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from tests.chaos.worker_process import say


async def main() -> None:
    url, _, _, schedule, first, last = sys.argv[1:]
    async with open_engine(url, config=EngineConfig(loops=False, pool_size=2)) as engine:
        begin: int | None = int(first)
        while begin is not None:
            part = await engine.backfill_schedule(
                schedule_id=schedule, begin=begin, end=int(last), again=True
            )
            begin = part.next_begin
            say("filled", len(part.started), part.have_run)
        say("done")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
