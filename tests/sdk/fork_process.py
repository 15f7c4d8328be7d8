"""A program that forks: python -m tests.sdk.fork_process URL STORY

Each story ends by printing what a test compares; a story that hangs is killed by its test.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable

from flowfabric import Fabric, Worker
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import ForkedProcess
from flowfabric.sdk.context.context import SyncContext
from tests.property.budget import budget

FORKS = budget("FF_FORKS", 6)
ff = Fabric(sys.argv[1], config=EngineConfig(poll_interval_ms=200))


@ff.task
async def greet(name: str) -> str:
    return f"hello {name}"


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def fork(work: Callable[[], None], *, exits: bool = True) -> None:
    """Run something in a forked child and wait for its end.

    `exits`: the child ends as programs do, so that everything it inherited is cleaned up there.
    """
    child = os.fork()
    if child == 0:
        gc.collect()
        try:
            work()
        except Exception:  # noqa: BLE001 - told by the exit code, and not by going on as the parent
            traceback.print_exc()
            os._exit(1)
        if exits:
            sys.exit(0)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    say("child", os.waitstatus_to_exitcode(status))


def submit() -> None:
    ff.sync.submit(greet, "ada")


def use_sync() -> None:
    """gunicorn --preload: the parent has used the fabric, its children go on using it."""
    submit()
    for _ in range(3):
        fork(submit)
        submit()
    ff.sync.close()


def use_a_grandchild() -> None:
    def child() -> None:
        submit()
        fork(submit)
        submit()

    submit()
    fork(child)
    submit()


async def submit_here() -> None:
    async with ff:
        await ff.submit(greet, "bob")


def use_async_after_a_loop() -> None:
    """The engine was left open on an event loop that is over."""

    async def leave_open() -> None:
        await ff.submit(greet, "bob")

    with asyncio.Runner() as runner:
        runner.run(leave_open())
        fork(lambda: asyncio.run(submit_here()), exits=False)
        runner.run(leave_open())
        runner.run(ff.close())


def use_async_inside_a_loop() -> None:
    """multiprocessing from a coroutine, while the engine is at work."""

    async def main() -> None:
        async with ff:
            for _ in range(3):
                await ff.submit(greet, "bob")
                child = multiprocessing.get_context("fork").Process(
                    target=lambda: asyncio.run(submit_here())
                )
                child.start()
                await asyncio.to_thread(child.join)
                say("child", child.exitcode)

    asyncio.run(main())


def use_a_pool() -> None:
    """A child has connections of its own, not the parent's pool."""

    async def parent() -> None:
        import asyncpg  # only where there is a Postgres

        async with asyncpg.create_pool(sys.argv[1], min_size=1, max_size=2) as pool:
            mine = Fabric(sys.argv[1], pool=pool, config=EngineConfig(loops=False))
            mine.add_task(greet)

            async def once() -> None:
                await mine.submit(greet, "ada")

            await once()
            fork(lambda: asyncio.run(_closing(mine, once)), exits=False)
            await once()
            await mine.close()

    asyncio.run(parent())


async def _closing(fabric: Fabric, work: Callable[[], Awaitable[None]]) -> None:
    await work()
    await fabric.close()


def use_the_engine() -> None:
    """An engine knows no other event loop to open itself on: it says what to do."""

    async def refused(call: Callable[[], Awaitable[object]]) -> None:
        told: ForkedProcess | None = None
        try:
            await call()
        except ForkedProcess as error:
            told = error
        assert told is not None
        assert "Fabric" in str(told)
        assert not told.retryable

    async def child(engine: Engine) -> None:
        await refused(lambda: engine.create_execution(execution_kind="k"))
        await refused(engine.count_executions)
        await refused(
            lambda: engine.claim(lanes=("default",), worker_id="w", worker_instance_id="w-1")
        )
        await refused(engine.doctor)
        await engine.close()

    async def main() -> None:
        async with open_engine(sys.argv[1]) as engine:
            await engine.create_execution(execution_kind="k")
            process = multiprocessing.get_context("fork").Process(
                target=lambda: asyncio.run(child(engine))
            )
            process.start()
            await asyncio.to_thread(process.join)
            say("child", process.exitcode)
            await engine.create_execution(execution_kind="k")

    asyncio.run(main())


@ff.task
def splitting(ctx: SyncContext, name: str) -> str:
    """A handler that forks."""

    def child() -> None:
        try:
            ctx.progress(1, "from the child")
        except ForkedProcess:
            submit()
            return
        raise AssertionError("it is not refused")

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    ctx.progress(50, "from the parent")
    return f"{name}: {process.exitcode}"


def fork_in_a_handler() -> None:
    async def main() -> None:
        worker = Worker(ff, lease_ttl="2s", poll_interval="200ms")
        async with ff:
            running = asyncio.create_task(worker.run(handle_signals=False))
            runs = await ff.submit_many(splitting, ["a", "b", "c"])
            say("ended", *[await run.result("60s") for run in runs])
            worker.stop()
            await running

    asyncio.run(main())


def fork_while_busy() -> None:
    """Threads write and read without a pause while the process forks again and again."""
    submit()  # a fork in the middle of an import would leave half a module to the child
    over = threading.Event()
    done = [0, 1]

    def busy(place: int) -> None:
        while not over.is_set():
            submit()
            done[place] += 1

    threads = [threading.Thread(target=busy, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(FORKS):
        fork(submit)
    over.set()
    for thread in threads:
        thread.join()
    say("made", sum(done) + FORKS)


STORIES = {
    each.__name__: each
    for each in (
        use_sync,
        use_a_grandchild,
        use_async_after_a_loop,
        use_async_inside_a_loop,
        use_a_pool,
        use_the_engine,
        fork_in_a_handler,
        fork_while_busy,
    )
}

if __name__ == "__main__":
    STORIES[sys.argv[2]]()
