"""What user code does to the event loop costs nobody else a lease."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from flowfabric import Context, EngineConfig, Fabric, PublicState, StoreUnavailable
from flowfabric.engine.engine import Engine
from tests.sdk.workshop import until, within, working

LEASE = "1s"
BLOCK_S = 1.7  # longer than the lease


def block(seconds: float = BLOCK_S, *, busy: bool = False) -> None:
    """Hold the event loop up: asleep, or at work in Python, which shares the interpreter lock."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not busy:
            time.sleep(0.05)


def test_handlers_that_block_the_loop_cost_no_task_its_lease(url: str) -> None:
    ff = Fabric(url)
    ran: Counter[str] = Counter()

    @ff.task(priority=9, recoveries=1)
    async def greedy(number: int) -> str:
        ran[f"greedy {number}"] += 1
        block(busy=number == 1)
        return "done"

    @ff.task(recoveries=1)
    async def quick(number: int) -> str:
        ran[f"quick {number}"] += 1
        return "done"

    @ff.task(priority=10, recoveries=1)
    async def halfway() -> str:
        ran["halfway"] += 1
        await asyncio.sleep(0.05)
        return "done"

    @ff.task(priority=10, recoveries=1)
    def thread() -> str:
        ran["thread"] += 1
        time.sleep(0.05)
        return "done"

    async def main() -> None:
        async with ff:
            runs = await ff.submit_many(
                [
                    *(greedy.call(number) for number in range(2)),
                    *(quick.call(number) for number in range(2)),
                    halfway.call(),
                    thread.call(),
                ]
            )
            async with working(ff, lease_ttl=LEASE):
                assert {await run.result("60s") for run in runs} == {"done"}
            for run in runs:
                info = await run.info()
                assert (info.total_attempt_count, info.reclaim_count) == (1, 0)

    asyncio.run(main())
    assert set(ran.values()) == {1}, ran


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_the_log_names_the_task_that_blocks_once_and_says_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def greedy() -> None:
        block()

    async def main() -> str:
        async with ff, working(ff, lease_ttl=LEASE):
            run = await ff.submit(greedy)
            await run.result("60s")

            async def is_told() -> bool:
                return any("goes on" in line for line in messages(caplog))

            await until(is_told)
            return run.id

    with caplog.at_level(logging.WARNING, "flowfabric.worker"):
        execution_id = asyncio.run(main())
    blocked, over = messages(caplog)
    assert f"by greedy {execution_id[-8:]} at {__file__}:" in blocked
    assert " in block; leases are renewed all the same" in blocked
    assert over.startswith("the event loop goes on, it was blocked for 1.")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a task does not tell its context")
def test_the_log_names_the_execution_with_the_task_that_blocks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def greedy() -> None:
        async def part() -> None:
            block()

        await asyncio.gather(part(), asyncio.sleep(0))

    async def main() -> str:
        async with ff, working(ff, lease_ttl=LEASE):
            run = await ff.submit(greedy)
            await run.result("60s")
            return run.id

    with caplog.at_level(logging.WARNING, "flowfabric.worker"):
        execution_id = asyncio.run(main())
    assert f"by greedy {execution_id[-8:]}" in messages(caplog)[0]


def test_an_outage_during_a_blockage_is_waited_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ff = Fabric("memory://")
    tries = 0
    start = Engine.start

    async def flaky(engine: Engine, *, migrate: bool = True) -> None:
        nonlocal tries
        if not migrate:  # the watchdog's own
            tries += 1
            if tries < 3:
                raise StoreUnavailable("down")
        await start(engine, migrate=migrate)

    monkeypatch.setattr(Engine, "start", flaky)

    @ff.task(recoveries=1)
    async def greedy() -> str:
        block()
        return "kept"

    async def main() -> None:
        async with ff, working(ff, lease_ttl=LEASE):
            run = await ff.submit(greedy)
            assert await run.result("60s") == "kept"
            assert (await run.info()).total_attempt_count == 1

    with caplog.at_level(logging.WARNING, "flowfabric.worker"):
        asyncio.run(main())
    assert tries == 3
    assert "cannot renew leases for the blocked event loop" in messages(caplog)[1]


def test_a_handler_with_a_lease_revoked_during_a_blockage_is_stopped_after_it() -> None:
    ff = Fabric("memory://")
    started, stopped = asyncio.Event(), asyncio.Event()
    seen: list[bool] = []

    @ff.task
    async def innocent(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.cancelled)
            stopped.set()

    @ff.task
    async def greedy(execution_id: str) -> None:
        engine = (await ff.start()).again()

        async def revoke() -> None:
            await engine.start(migrate=False)
            await engine.revoke_lease(execution_id=execution_id, reason="suspect")
            await engine.close()

        thread = threading.Thread(target=lambda: asyncio.run(revoke()))
        thread.start()
        thread.join()
        block()

    async def main() -> None:
        async with ff, working(ff, lease_ttl=LEASE):
            run = await ff.submit(innocent)
            await within(started.wait())
            await ff.submit(greedy, run.id)
            await within(stopped.wait())
            assert seen == [True]
            await run.result("60s")

    asyncio.run(main())


def test_the_watchdog_ends_with_its_worker(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def greedy() -> None:
        block(0.7)

    def watchdogs() -> list[str]:
        return [each.name for each in threading.enumerate() if "watchdog" in each.name]

    async def main() -> None:
        async with ff:
            async with working(ff, lease_ttl="1s"):
                run = await ff.submit(greedy)
                await run.result("60s")
                assert len(watchdogs()) == 1
            assert await run.state() is PublicState.COMPLETED
        assert watchdogs() == []

    asyncio.run(main())


def test_a_worker_stopped_while_its_loop_is_blocked_reports_what_was_in_hand() -> None:
    ff = Fabric("memory://")
    blocking = threading.Event()

    @ff.task
    async def greedy() -> str:
        blocking.set()
        block()
        return "reported"

    async def main() -> None:
        async with ff:
            run = await ff.submit(greedy)
            async with working(ff, lease_ttl=LEASE) as worker:

                def stop() -> None:
                    assert blocking.wait(60)
                    worker.stop()

                await asyncio.to_thread(stop)
            assert await run.result("60s") == "reported"
            assert (await run.info()).total_attempt_count == 1

    asyncio.run(main())


PROGRAM = """
import asyncio, pathlib, sys
from flowfabric import Fabric, Worker

ff = Fabric(sys.argv[1])
flag = pathlib.Path(sys.argv[2])

@ff.task(recoveries=1)
async def wait_for_flag() -> str:
    while not flag.exists():
        await asyncio.sleep(0.01)
    return "finished"

if __name__ == "__main__":
    asyncio.run(Worker(ff, poll_interval="50ms", lease_ttl="1s").run())
"""


def test_a_process_that_was_stopped_past_its_leases_uses_up_no_recovery(
    durable_url: str, tmp_path: Path
) -> None:
    program, flag = tmp_path / "app.py", tmp_path / "flag"
    program.write_text(PROGRAM)

    async def main(process: subprocess.Popen[bytes]) -> None:
        # Without loops of its own: only the stopped process can take the work back.
        async with Fabric(durable_url, config=EngineConfig(loops=False)) as ff:
            engine = await ff.start()
            run = await ff.submit("wait_for_flag")
            for attempts in (1, 2, 3):

                async def is_active(attempts: int = attempts) -> bool:
                    info = await run.info()
                    return info.total_attempt_count == attempts and info.current_lease is not None

                await until(is_active)
                os.kill(process.pid, signal.SIGSTOP)

                async def is_lapsed() -> bool:
                    lease = (await run.info()).current_lease
                    assert lease is not None
                    return lease.expires_at < await engine.server_time_ms()

                await until(is_lapsed)
                os.kill(process.pid, signal.SIGCONT)

                async def is_taken_back(attempts: int = attempts) -> bool:
                    return (await run.info()).total_attempt_count > attempts

                await until(is_taken_back)
            flag.touch()
            assert await run.result("60s") == "finished"
            assert (await run.info()).reclaim_count == 0

    with subprocess.Popen([sys.executable, str(program), durable_url, str(flag)]) as process:
        try:
            asyncio.run(main(process))
        finally:
            process.kill()
