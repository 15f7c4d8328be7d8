from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flowfabric import (
    EngineConfig,
    EventLoopRunning,
    Fabric,
    InvalidInput,
    PublicState,
    RunFailed,
    Worker,
)
from tests.sdk.workshop import working
from tests.support.loopback import Loopback


def test_a_fabric_serves_one_event_loop_after_another(durable_url: str) -> None:
    ff = Fabric(durable_url)

    @ff.task
    async def double(number: int) -> int:
        return 2 * number

    async def submit() -> str:
        try:
            return (await ff.submit(double, 21)).id
        finally:
            await ff.close()

    async def finish(execution_id: str) -> int:
        async with ff, working(ff):
            return await ff.run(execution_id, double).result("60s")

    assert asyncio.run(finish(asyncio.run(submit()))) == 42


def test_a_fabric_on_two_running_loops_is_refused() -> None:
    ff = Fabric("memory://")

    async def main() -> None:
        async with ff:
            with pytest.raises(InvalidInput, match="another running event loop"):
                await asyncio.to_thread(asyncio.run, _start(ff))

    asyncio.run(main())


async def _start(ff: Fabric) -> None:
    await ff.start()


def test_many_first_uses_at_once_start_one_engine(url: str) -> None:
    ff = Fabric(url)

    async def main() -> None:
        engines = await asyncio.gather(*(ff.start() for _ in range(10)))
        assert len(set(map(id, engines))) == 1
        await ff.close()
        assert not ff.is_started

    asyncio.run(main())


def test_the_url_comes_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOWFABRIC_URL", raising=False)
    assert Fabric().url == "sqlite:///flowfabric.db"
    monkeypatch.setenv("FLOWFABRIC_URL", "memory://")
    assert Fabric().url == "memory://"
    assert Fabric("sqlite:///x.db").url == "sqlite:///x.db"


def test_the_password_in_a_url_is_not_shown() -> None:
    assert "secret" not in repr(Fabric("postgresql://me:secret@host/db"))


def test_namespaces_keep_work_apart(durable_url: str) -> None:
    ours, theirs = Fabric(durable_url, namespace="ours"), Fabric(durable_url, namespace="theirs")

    @ours.task(name="greet")
    async def greet() -> str:
        return "ours"

    @theirs.task(name="greet")
    async def greet_too() -> str:
        return "theirs"

    async def main() -> None:
        async with ours, theirs:
            first, second = await ours.submit(greet), await theirs.submit(greet_too)
            async with working(theirs):
                assert await second.result("60s") == "theirs"
                assert await first.state() is PublicState.WAITING
            assert (await first.info()).namespace == "ours"

    asyncio.run(main())


def test_code_without_asyncio_submits_and_waits(durable_url: str) -> None:
    ff = Fabric(durable_url, config=EngineConfig(poll_interval_ms=50))

    @ff.task
    def double(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return 2 * number

    worker = Worker(ff, poll_interval="50ms")
    thread = threading.Thread(target=lambda: asyncio.run(worker.run(handle_signals=False)))
    thread.start()
    try:
        with ff.sync as sync:
            run = sync.submit(double, 21, key="once", priority=5)
            assert run.result(timeout="60s") == 42
            assert not sync.submit(double, 21, key="once", priority=5).is_new
            assert run.state() is PublicState.COMPLETED
            assert run.info().priority == 5
            assert sync.run(run.id, double).result() == 42
            runs = sync.submit_many(double, [1, 2, 3])
            assert [sync.result(each, "60s") for each in runs] == [2, 4, 6]
            with pytest.raises(RunFailed, match="negative"):
                sync.submit(double, -1).result("60s")
            waiting = sync.submit(double, 1, delay="1h")
            waiting.cancel("changed my mind")
            assert waiting.state() is PublicState.CANCELLED
            with pytest.raises(InvalidInput, match="double: number"):
                sync.submit(double, "x")  # type: ignore[call-overload]
    finally:
        worker.stop()
        thread.join()


@pytest.mark.filterwarnings("error")  # a coroutine that was never awaited
def test_the_sync_facade_is_refused_where_a_loop_runs_with_what_to_write_instead() -> None:
    ff = Fabric("memory://")

    @ff.task
    def paint() -> None: ...

    run = ff.sync.submit(paint)
    with ff.sync.flow("pictures") as flow:
        flow.add(paint)
    nodes = flow.submit()
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: ff.sync.submit(paint), r"write await ff\.submit\(…\)"),
        (lambda: ff.sync.submit_many(paint, [()]), r"write await ff\.submit_many\(…\)"),
        (lambda: ff.sync.create_budget("b", hard={"n": 1}), r"await ff\.create_budget\(…\)"),
        (lambda: ff.sync.approve(run, "k", by="ada"), r"await ff\.approve\(…\)"),
        (lambda: run.result("1s"), r"await run\.result\(…\)"),
        (lambda: nodes.result("1s"), r"await run\.result\(…\)"),
        (lambda: list(nodes.watch()), r"async for … in run\.watch\(\)"),
        (ff.sync.flow("more").submit, r"await flow\.submit\(…\)"),
    ]

    async def main() -> None:
        for call, instead in calls:
            with pytest.raises(EventLoopRunning, match=instead):
                call()
        state = await asyncio.to_thread(run.state)  # a thread beside the loop is welcome
        assert state is PublicState.WAITING

    asyncio.run(main())
    ff.sync.close()


def test_the_sync_facade_works_again_after_close() -> None:
    ff = Fabric("memory://")

    @ff.task
    def paint() -> None: ...

    assert ff.sync.submit(paint).state() is PublicState.WAITING
    ff.sync.close()
    ff.sync.close()
    assert ff.sync.submit(paint).is_new
    ff.sync.close()


@pytest.mark.parametrize("where", ["memory://", "sqlite"])
def test_in_this_suite_a_fabric_in_memory_is_behind_a_wire(where: str, tmp_path: Path) -> None:
    async def main() -> bool:
        async with Fabric(where if where != "sqlite" else f"sqlite:///{tmp_path}/a.db") as ff:
            return isinstance(await ff.start(), Loopback)

    assert asyncio.run(main()) is (where == "memory://")
