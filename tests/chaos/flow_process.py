"""A worker that dies at a named point: python -m tests.chaos.flow_process URL NAME POINT

It claims one execution, ends it, perhaps does what is owed, and kills itself with SIGKILL exactly
where the point says. It says `claimed ID` before that, and `survived` if the point was never met.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.engine.machine import Machine
from flowfabric.engine.unit.flows.cascade import Cascade
from flowfabric.engine.unit.flows.catch_up import CatchUp
from flowfabric.model.attempt import FailureClass
from flowfabric.model.handle import Handle
from tests.chaos.worker_process import claim, say

TRIES = 200
LEASE_MS = 600_000  # it dies by its own hand, never because the machine was too slow for its lease


def die(*_: Any, **__: Any) -> None:
    """kill -9, by one's own hand."""
    os.kill(os.getpid(), signal.SIGKILL)


def after(owner: type, name: str, times: int = 1) -> None:
    """Die when a method has been done so many times, before whatever follows it."""
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)
    done = 0

    async def last(self: Any, *args: Any, **fields: Any) -> Any:
        nonlocal done
        result = await original(self, *args, **fields)
        done += 1
        if done >= times:
            die()
        return result

    setattr(owner, name, last)


def after_commit() -> None:
    """Die between a commit and its answer: what is published comes next."""
    Machine.publish = die  # type: ignore[method-assign]


async def begin(engine: Engine, name: str) -> Handle:
    claimed = await claim(engine, name, 1, LEASE_MS)
    say("claimed", claimed[0].execution_id)
    return claimed[0].handle


async def do_what_is_deferred(engine: Engine) -> None:
    for _ in range(TRIES):
        await engine.move_due()


async def before_the_end_commits(engine: Engine, handle: Handle) -> None:
    after(Cascade, "follow_up")
    await engine.complete(handle)


async def after_the_end_commits(engine: Engine, handle: Handle) -> None:
    after_commit()
    await engine.complete(handle)


async def after_a_failure_commits(engine: Engine, handle: Handle) -> None:
    after_commit()
    await engine.fail(handle, reason="x", failure_class=FailureClass.PERMANENT)


async def in_the_continuation(engine: Engine, handle: Handle) -> None:
    await engine.complete(handle)
    after(CatchUp, "_go_on")
    await do_what_is_deferred(engine)


async def between_continuations(engine: Engine, handle: Handle) -> None:
    await engine.complete(handle)
    after_commit()
    await do_what_is_deferred(engine)


async def in_the_sibling_cancel(engine: Engine, handle: Handle) -> None:
    await engine.complete(handle)
    after(CatchUp, "_cancel_siblings")
    await do_what_is_deferred(engine)


async def after_a_repeated_cascade(engine: Engine, handle: Handle) -> None:
    await engine.complete(handle)
    after_commit()
    await engine.cascade_completion(execution_id=handle.execution_id)


POINTS: dict[str, Callable[[Engine, Handle], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        before_the_end_commits,
        after_the_end_commits,
        after_a_failure_commits,
        in_the_continuation,
        between_continuations,
        in_the_sibling_cancel,
        after_a_repeated_cascade,
    )
}


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("point")
    asked = parser.parse_args()
    config = EngineConfig(loops=False, pool_size=2)
    async with open_engine(asked.url, config=config) as engine:
        handle = await begin(engine, asked.name)
        await POINTS[asked.point](engine, handle)
    say("survived")


if __name__ == "__main__":
    asyncio.run(main())
