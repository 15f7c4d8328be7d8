"""A writer or a reader of streams, to be killed: python -m tests.chaos.stream_process …

A writer claims, appends numbered frames one by one and completes with a last one; it says `wrote ID
ATTEMPT NUMBER FRAME` after an acknowledged append. A reader follows one execution after a place; it
says `saw PLACE NUMBER` for each frame and `closed REASON` at the end.
"""

from __future__ import annotations

import argparse
import asyncio

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import ExecutionNotActive, StateError
from flowfabric.model.results import Claimed
from flowfabric.model.stream import NewFrame
from tests.chaos.worker_process import claim, say

FRAMES = 40
CLAIM_AT_ONCE = 2


def frame(number: int) -> NewFrame:
    return NewFrame(payload=str(number).encode(), seq=number)


async def talk(engine: Engine, each: Claimed) -> None:
    """Frames one by one, each asked for twice now and then, the last one with the end."""
    for number in range(1, FRAMES):
        appended = await engine.append_frame(each.handle, frame=frame(number))
        if number % 3 == 0:
            appended = await engine.append_frame(each.handle, frame=frame(number))
        say("wrote", each.execution_id, each.attempt_index, number, appended.frame_ids[0])
        await asyncio.sleep(0.002)
    await engine.complete(each.handle, frames=(frame(FRAMES),))
    say("done", each.execution_id, each.lease_epoch)


async def write(engine: Engine, name: str) -> None:
    """Claim and talk, for ever."""
    while True:
        claimed = await claim(engine, name, CLAIM_AT_ONCE)
        if claimed:
            say("holding", len(claimed))
        for each in claimed:
            try:
                await talk(engine, each)
            except (StateError, ExecutionNotActive) as refusal:  # too slow for the lease
                say("refused", type(refusal).__name__)


async def read(engine: Engine, execution_id: str, after: str) -> None:
    """Follow one execution to its end, then wait to be killed."""
    place = None if after == "none" else after
    while True:
        page = await engine.read_execution_stream(
            execution_id=execution_id, after=place, limit=7, wait_ms=30_000
        )
        for each in page.frames:
            say("saw", each.cursor, each.text)
        place = page.next_cursor
        if page.closed_reason is not None:
            say("closed", page.closed_reason.value)
            await asyncio.Event().wait()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("mode")
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    config = EngineConfig(pool_size=3, poll_interval_ms=200)
    async with open_engine(asked.url, config=config) as engine:
        if asked.mode == "read":
            await read(engine, *asked.words)
        else:
            await write(engine, asked.name)


if __name__ == "__main__":
    asyncio.run(main())
