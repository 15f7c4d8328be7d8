"""`ff.operations`: changes to many runs, as durable work."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric import EngineConfig, Fabric, RunFilter
from flowfabric.errors import InvalidInput, NotFound, WaitTimeout
from flowfabric.model.bulk import BulkState

URL = "memory://"


def test_an_operation_is_started_counted_awaited_and_listed() -> None:
    async def main() -> None:
        async with Fabric(URL) as ff:
            runs = [await ff.submit("brief", {}) for _ in range(3)]
            other = await ff.submit("other", {})
            chosen = RunFilter(kind="brief")
            assert await ff.operations.count("cancel", chosen) == 3
            assert await ff.operations.count("priority", chosen) == 3
            operation = await ff.operations.start("cancel", chosen, reason="enough", limit=2)
            outcome = await operation.wait("30s")
            assert (outcome.matched, outcome.done, outcome.state) == (3, 2, BulkState.DONE)
            assert await ff.operations.list(state="running") == []
            assert await ff.operations.list() == [await ff.operations.get(operation.id).info()]
            assert (await runs[0].info()).public_state == "waiting"
            assert (await runs[2].info()).cancellation_reason == "enough"
            moved = await ff.operations.start("priority", chosen, priority=5)
            assert (await moved.wait()).done == 1
            assert (await runs[0].info()).priority == 5
            assert (await other.info()).priority == 0
            assert await moved.stop() == await moved.info()
            with pytest.raises(InvalidInput, match="chosen"):
                await ff.operations.start("cancel", "brief")  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="action"):
                await ff.operations.start("burn", chosen)
            with pytest.raises(NotFound):
                await ff.operations.get("01890000-0000-7000-8000-000000000001").info()

    asyncio.run(main())


def test_a_wait_that_is_too_short_says_that_the_operation_goes_on() -> None:
    async def main() -> None:
        async with Fabric(URL, config=EngineConfig(loops=False)) as ff:
            await ff.submit("brief", {})
            operation = await ff.operations.start("hold", RunFilter())
            with pytest.raises(WaitTimeout, match="goes on"):
                await operation.wait("10ms")
            assert (await operation.stop()).state is BulkState.STOPPED

    asyncio.run(main())


def test_without_asyncio_it_is_the_same() -> None:
    ff = Fabric(URL)
    sync = ff.sync
    try:
        run = sync.submit("brief", {})
        assert sync.operations.count("hold", RunFilter()) == 1
        operation = sync.operations.start("hold", RunFilter(), reason="look")
        assert operation.wait("30s").done == 1
        assert sync.operations.get(operation.id).info() == sync.operations.list()[0]
        assert operation.stop().state is BulkState.DONE
        assert run.explain().summary == "look"
    finally:
        sync.close()
