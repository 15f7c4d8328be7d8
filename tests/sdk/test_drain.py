from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flowfabric import Context, Fabric, PublicState, SyncContext, Worker
from tests.sdk.workshop import until, within, working


def test_a_stopped_worker_lets_its_handlers_finish_and_claims_no_more(url: str) -> None:
    ff = Fabric(url)
    started, go_on = asyncio.Event(), asyncio.Event()

    @ff.task
    async def finish() -> str:
        started.set()
        await go_on.wait()
        return "finished"

    async def main() -> None:
        async with ff:
            run = await ff.submit(finish)
            worker = Worker(ff, poll_interval="50ms", concurrency=1)
            running = asyncio.create_task(worker.run(handle_signals=False))
            await within(started.wait())
            worker.stop()
            second = await ff.submit(finish)
            go_on.set()
            await within(running)
            assert await run.state() is PublicState.COMPLETED
            assert await second.state() is PublicState.WAITING

    asyncio.run(main())


def test_handlers_over_the_drain_deadline_are_handed_to_another_worker(url: str) -> None:
    ff = Fabric(url)
    started = asyncio.Event()
    go_on, thread_started, over = threading.Event(), threading.Event(), threading.Event()

    @ff.task
    async def endless(ctx: Context) -> str:
        if ctx.is_resumed:
            return f"attempt {ctx.attempt}"
        started.set()
        await asyncio.Event().wait()
        return "never"

    @ff.task
    def stuck(ctx: SyncContext) -> str:
        if ctx.is_resumed:
            return f"attempt {ctx.attempt}"
        thread_started.set()
        go_on.wait(60)
        over.set()
        return "too late"

    async def main() -> None:
        async with ff:
            runs = [await ff.submit(endless), await ff.submit(stuck)]
            async with working(ff, drain_timeout="50ms"):
                await within(started.wait())
                await within(asyncio.to_thread(thread_started.wait))
            assert [await run.state() for run in runs] == [PublicState.WAITING] * 2
            async with working(ff):
                assert [await run.result("60s") for run in runs] == ["attempt 1"] * 2
            go_on.set()
            await within(asyncio.to_thread(over.wait))

    asyncio.run(main())


def test_a_handler_that_finishes_when_interrupted_by_the_drain_counts(url: str) -> None:
    ff = Fabric(url)
    started = threading.Event()

    @ff.task
    def careful(ctx: SyncContext) -> str:
        started.set()
        ctx.wait_cancelled(60)
        return "saved in time"

    async def main() -> None:
        async with ff:
            run = await ff.submit(careful)
            async with working(ff, drain_timeout="50ms"):
                await within(asyncio.to_thread(started.wait))
            assert await run.result("60s") == "saved in time"

    asyncio.run(main())


def test_a_worker_that_started_its_fabric_closes_it(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def greet() -> None: ...

    async def main() -> None:
        async with working(ff):

            async def is_up() -> bool:
                return ff.is_started

            await until(is_up)
        assert not ff.is_started

    asyncio.run(main())


PROGRAM = """
import asyncio, pathlib, sys
from flowfabric import Fabric, Worker

ff = Fabric(sys.argv[1])
flag = pathlib.Path(sys.argv[2])

@ff.task
async def wait_for_flag() -> str:
    while not flag.exists():
        await asyncio.sleep(0.01)
    return "finished"

@ff.task
def hang() -> None:
    while True:
        pass

if __name__ == "__main__":
    asyncio.run(Worker(ff, poll_interval="50ms").run())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_a_worker_process(
    durable_url: str, tmp_path: Path, number: signal.Signals
) -> None:
    flag = tmp_path / "flag"
    with _worker_process(durable_url, tmp_path, flag) as process:

        async def main() -> None:
            async with Fabric(durable_url) as ff:
                run = await ff.submit("wait_for_flag")

                async def is_active() -> bool:
                    return await run.state() is PublicState.ACTIVE

                await until(is_active)
                os.kill(process.pid, number)
                flag.touch()
                assert await within(asyncio.to_thread(process.wait)) == 0
                assert await run.result("60s") == "finished"
                assert (await (await ff.start()).list_workers()).items == ()

        asyncio.run(main())


def test_a_second_signal_skips_the_wait_even_for_a_thread_that_hangs(
    durable_url: str, tmp_path: Path
) -> None:
    with _worker_process(durable_url, tmp_path, tmp_path / "flag") as process:

        async def main() -> None:
            async with Fabric(durable_url) as ff:
                runs = [await ff.submit("wait_for_flag"), await ff.submit("hang")]

                async def are_active() -> bool:
                    return {await run.state() for run in runs} == {PublicState.ACTIVE}

                await until(are_active)
                # Two kinds, because the system may merge two pending signals of one kind.
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGINT)
                assert await within(asyncio.to_thread(process.wait)) == 0
                assert {await run.state() for run in runs} == {PublicState.WAITING}
                assert (await (await ff.start()).list_workers()).items == ()

        asyncio.run(main())


@contextmanager
def _worker_process(url: str, directory: Path, flag: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = directory / "app.py"
    program.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(program), url, str(flag)]) as process:
        try:
            yield process
        finally:
            process.kill()  # a test that failed must not wait for it
