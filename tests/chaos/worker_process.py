"""A worker as a process of its own, to be killed: python -m tests.chaos.worker_process …

It speaks on standard output, one line per thing that happened, so that a test can wait for exactly
that: `holding N` after a claim, `done ID EPOCH` after an acknowledged completion, `made KEY ID`
after an acknowledged create, `refused NAME` when a write was turned down.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from flowfabric.api.leases import Complete
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import ExecutionNotActive, FlowFabricError, StateError, StoreError
from flowfabric.model.results import Claimed

LEASE_MS = 1_000
CLAIM_AT_ONCE = 5
WORK_S = 0.004  # what each execution takes


def say(*words: object) -> None:
    """Tell the test, in one write that a kill cannot interleave."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def claim(engine: Engine, name: str, limit: int, lease_ms: int = LEASE_MS) -> list[Claimed]:
    return await engine.claim(
        lanes=("default",),
        worker_id=name,
        worker_instance_id=name,
        limit=limit,
        lease_ttl_ms=lease_ms,
        wait_ms=500,
    )


async def work(engine: Engine, name: str) -> None:
    """Claim, work, complete, for ever."""
    while True:
        claimed = await claim(engine, name, CLAIM_AT_ONCE)
        if not claimed:
            continue
        say("holding", len(claimed))
        for each in claimed:
            await asyncio.sleep(WORK_S)
            try:
                await engine.complete(each.handle, result=name.encode())
            except (StateError, ExecutionNotActive) as refusal:  # too slow for the lease
                say("refused", type(refusal).__name__)
            else:
                say("done", each.execution_id, each.lease_epoch)


async def hold(engine: Engine, name: str) -> None:
    """Claim one execution and wait for a word; then try everything an owner may do."""
    claimed: list[Claimed] = []
    while not claimed:
        claimed = await claim(engine, name, 1)
    handle = claimed[0].handle
    say("holding", 1)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for write in (
        engine.renew(handle),
        engine.progress(handle, percent=99),
        engine.delay(handle, delay_until=1),
        engine.fail(handle, reason="late"),
        engine.complete(handle, result=b"stale"),
    ):
        try:
            await write
        except FlowFabricError as refusal:
            say("refused", type(refusal).__name__)
        else:
            say("accepted")
    say("end")


async def make(engine: Engine, name: str) -> None:
    """Create, claim and complete, as fast as the store allows; say what was acknowledged."""
    number = 0
    while True:
        keys = [f"{name}-{number + offset}" for offset in range(4)]
        number += len(keys)
        created = await asyncio.gather(
            *(engine.create_execution(execution_kind="w", idempotency_key=key) for key in keys)
        )
        for key, made in zip(keys, created, strict=True):
            say("made", key, made.execution_id)
        claimed = await claim(engine, name, len(keys))
        requests = [Complete(handle=each.handle, result=name.encode()) for each in claimed]
        replies = await engine.complete_many(requests)
        for each, reply in zip(claimed, replies, strict=True):
            if not isinstance(reply, FlowFabricError):
                say("done", each.execution_id, each.lease_epoch)


MODES = {"work": work, "hold": hold, "make": make}


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("mode", choices=MODES)
    asked = parser.parse_args()
    config = EngineConfig(loops=asked.mode != "hold", pool_size=3, poll_interval_ms=200)
    async with open_engine(asked.url, config=config) as engine:
        try:
            await MODES[asked.mode](engine, asked.name)
        except StoreError as outage:
            say("outage", type(outage).__name__, outage.detail)
            raise


if __name__ == "__main__":
    asyncio.run(main())
