"""A worker outlives its store's outages, and no report is lost in them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric import Fabric, OutcomeUnknown, PublicState, RunFailed, StoreUnavailable
from flowfabric.errors import FlowFabricError, SchemaMismatch
from flowfabric.sdk.worker import Worker, presence
from tests.sdk.workshop import until, within, working

Operation = Callable[..., Awaitable[Any]]


class Flaky:
    """An operation that fails so many times, before or after it did its work."""

    def __init__(self, operation: Operation, error: FlowFabricError, *, times: int) -> None:
        self._operation = operation
        self._error = error
        self._times = times
        self.calls = 0

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls > self._times:
            return await self._operation(*args, **kwargs)
        if isinstance(self._error, OutcomeUnknown):
            await self._operation(*args, **kwargs)
        raise self._error


async def make_flaky(ff: Fabric, name: str, error: FlowFabricError, *, times: int) -> Flaky:
    engine = await ff.start()
    flaky = Flaky(getattr(engine, name), error, times=times)
    setattr(engine, name, flaky)
    return flaky


@pytest.mark.parametrize("operation", ["claim", "complete_many", "register_worker"])
@pytest.mark.parametrize("error", [StoreUnavailable("down"), OutcomeUnknown("cut off")])
def test_a_worker_waits_an_outage_out(url: str, operation: str, error: FlowFabricError) -> None:
    ff = Fabric(url)

    @ff.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    async def main() -> None:
        async with ff:
            flaky = await make_flaky(ff, operation, error, times=3)
            runs = await ff.submit_many(greet, ["ada", "bob"])
            # A claim whose answer was lost holds its leases until they lapse.
            async with working(ff, lease_ttl="1s"):
                assert [await run.result("60s") for run in runs] == ["hello ada", "hello bob"]

                async def is_over() -> bool:
                    return flaky.calls > 3

                await until(is_over)

    asyncio.run(main())


def test_a_failure_is_reported_after_an_outage(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def broken() -> None:
        raise ValueError("broken")

    async def main() -> None:
        async with ff:
            await make_flaky(ff, "fail_many", StoreUnavailable("down"), times=2)
            async with working(ff):
                with pytest.raises(RunFailed, match="broken"):
                    await (await ff.submit(broken)).result("60s")

    asyncio.run(main())


def test_an_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def greet() -> None: ...

    async def main() -> None:
        async with ff:
            await make_flaky(ff, "claim", StoreUnavailable("down"), times=4)
            async with working(ff):
                await (await ff.submit(greet)).result("60s")

    with caplog.at_level(logging.WARNING, "flowfabric.worker"):
        asyncio.run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        f"the store is failing, trying on: {StoreUnavailable('down')}",
        "the store is back",
    ]


def test_a_failure_that_the_next_try_heals_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def greet() -> None: ...

    async def main() -> None:
        async with ff:
            for operation in ("claim", "complete_many"):
                await make_flaky(ff, operation, StoreUnavailable("cancelled"), times=1)
            async with working(ff):
                await (await ff.submit(greet)).result("60s")

    with caplog.at_level(logging.DEBUG, "flowfabric.worker"):
        asyncio.run(main())
    failures = [each for each in caplog.records if "cancelled" in each.getMessage()]
    assert [each.levelno for each in failures] == [logging.DEBUG] * 2


def test_renewal_survives_an_outage_that_is_shorter_than_the_lease(url: str) -> None:
    ff = Fabric(url)
    go_on = asyncio.Event()

    @ff.task
    async def patient() -> str:
        await go_on.wait()
        return "kept"

    async def main() -> None:
        async with ff:
            flaky = await make_flaky(ff, "renew_many", StoreUnavailable("down"), times=3)
            async with working(ff, lease_ttl="4s"):
                run = await ff.submit(patient)

                async def is_renewed() -> bool:
                    return flaky.calls > 3

                await until(is_renewed)
                go_on.set()
                assert await run.result("60s") == "kept"
                assert (await run.info()).total_attempt_count == 1

    asyncio.run(main())


def test_a_handler_is_stopped_when_its_lease_surely_ran_out_in_an_outage() -> None:
    ff = Fabric("memory://")
    started, stopped = asyncio.Event(), asyncio.Event()

    @ff.task
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def main() -> None:
        async with ff:
            await make_flaky(ff, "renew_many", StoreUnavailable("down"), times=1_000_000)
            async with working(ff, lease_ttl="1s", drain_timeout=0):
                await ff.submit(endless)
                await within(started.wait())
                await within(stopped.wait())

    asyncio.run(main())


def test_a_worker_waits_for_a_store_that_is_down_at_its_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ff = Fabric("memory://")
    ran = asyncio.Event()

    @ff.task
    async def greet() -> None:
        ran.set()

    async def main() -> None:
        flaky = Flaky(ff.start, StoreUnavailable("down"), times=2)
        monkeypatch.setattr(ff, "start", flaky)
        async with working(ff):

            async def is_up() -> bool:
                return flaky.calls > 2

            await until(is_up)
            await ff.submit(greet)
            await within(ran.wait())

    with caplog.at_level(logging.WARNING, "flowfabric.worker"):
        asyncio.run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        f"the store is failing, trying on: {StoreUnavailable('down')}",
        "the store is back",
    ]


def test_a_worker_ends_with_an_error_no_patience_can_cure() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def greet() -> None: ...

    async def main() -> None:
        async with ff:
            await make_flaky(ff, "claim", SchemaMismatch("newer"), times=1_000_000)
            with pytest.raises(SchemaMismatch):
                await within(Worker(ff).run(handle_signals=False))

    asyncio.run(main())


def test_a_worker_that_was_forgotten_registers_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_BEATS", 300)  # ten a second: its entry never lapses meanwhile
    ff = Fabric(url)

    @ff.task(lane="slow", needs={"gpu"})
    async def greet() -> None: ...

    async def main() -> None:
        async with ff:
            engine = await ff.start()

            async def is_there() -> bool:
                return len((await engine.list_workers()).items) == 1

            async with working(ff, capabilities={"gpu"}, worker_id="pool") as worker:
                await until(is_there)
                (entry,) = (await engine.list_workers()).items
                assert (entry.worker_id, entry.lanes) == ("pool", ("slow",))
                assert (entry.capabilities, entry.kinds) == (("gpu",), ("greet",))
                instance = worker.settings.instance_id
                await engine.mark_worker_dead(worker_instance_id=instance, reason="test")
                await until(is_there)
            assert (await engine.list_workers()).items == ()

    asyncio.run(main())


def test_stopping_during_an_outage_gives_up_on_reports_and_the_work_is_run_again() -> None:
    ff = Fabric("memory://")
    done = asyncio.Event()

    @ff.task
    async def greet() -> str:
        done.set()
        return "hello"

    async def main() -> None:
        async with ff:
            engine = await ff.start()
            complete_many = engine.complete_many
            await make_flaky(ff, "complete_many", StoreUnavailable("down"), times=1_000_000)
            run = await ff.submit(greet)
            async with working(ff, lease_ttl="1s", drain_timeout=0):
                await within(done.wait())
            assert await run.state() is not PublicState.COMPLETED  # the lease may have lapsed
            engine.complete_many = complete_many  # type: ignore[method-assign]
            async with working(ff):
                assert await run.result("60s") == "hello"
            assert (await run.info()).reclaim_count == 1

    asyncio.run(main())
