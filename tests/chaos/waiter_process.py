"""A worker whose executions suspend, to be killed: python -m tests.chaos.waiter_process …

A fresh execution suspends on a waitpoint; a resumed one is completed. It says `waits ID WAITPOINT
KID:MAC` after an acknowledged suspend, `holding N` after a claim, `resumed ID SIGNALS` and `done ID
EPOCH` after an acknowledged completion.
"""

from __future__ import annotations

import argparse
import asyncio

from flowfabric.api.waits import SuspendRequest
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import ExecutionNotActive, StateError
from flowfabric.model.handle import HandleKind
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import Count, CountKind, Suspended
from tests.chaos.worker_process import CLAIM_AT_ONCE, claim, say

REQUEST = SuspendRequest(
    resume_condition=Count(2, CountKind.DISTINCT_SOURCES, ("go",), "ok"), idempotency_key="wait"
)


async def step(engine: Engine, each: Claimed) -> None:
    """One claim: wait, or end."""
    if each.handle.kind is not HandleKind.RESUMED:
        begun = await engine.suspend(each.handle, REQUEST)
        if isinstance(begun, Suspended):
            address = begun.waitpoints[0]
            say("waits", each.execution_id, address.waitpoint_id, address.token.reveal())
        return
    signals = await engine.observe_signals(each.handle)
    say("resumed", each.execution_id, len(signals))
    await engine.complete(each.handle, result=b"done")
    say("done", each.execution_id, each.lease_epoch)


async def work(engine: Engine, name: str) -> None:
    """Claim and go on, for ever."""
    while True:
        claimed = await claim(engine, name, CLAIM_AT_ONCE)
        if claimed:
            say("holding", len(claimed))
        for each in claimed:
            try:
                await step(engine, each)
            except (StateError, ExecutionNotActive) as refusal:  # too slow for the lease
                say("refused", type(refusal).__name__)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("mode")
    asked = parser.parse_args()
    config = EngineConfig(pool_size=3, poll_interval_ms=200)
    async with open_engine(asked.url, config=config) as engine:
        await work(engine, asked.name)


if __name__ == "__main__":
    asyncio.run(main())
