"""A worker that answers scrapes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import httpx
import pytest

from flowfabric import Fabric, InvalidInput, Worker
from tests.sdk.workshop import within, working
from tests.support.scrape import Scrape


def test_a_worker_tells_its_slots_and_what_its_engine_and_store_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flowfabric.worker")

    async def story() -> None:
        ff = Fabric(f"sqlite:///{tmp_path}/a.db")
        runs, ends = asyncio.Event(), asyncio.Event()

        @ff.task
        async def wait() -> None:
            runs.set()
            await ends.wait()

        async with ff, working(ff, concurrency=7, metrics="127.0.0.1:0"):
            run = await ff.submit("wait")
            await within(runs.wait())
            (line,) = [each for each in caplog.records if "metrics at" in each.getMessage()]
            address = f"http://{line.__dict__['address']}/metrics"
            async with httpx.AsyncClient() as client:
                scrape = Scrape((await client.get(address)).text)
                ends.set()
                await within(run.result())
                later = Scrape((await client.get(address)).text)
        assert scrape.value("ff_worker_slots", lane="default") == 7
        assert scrape.value("ff_worker_slots_busy", lane="default") == 1
        assert scrape.value("ff_store_up") == 1
        assert scrape.total("ff_batch_size_count") > 0
        assert later.value("ff_worker_slots_busy", lane="default") == 0

    asyncio.run(story())


@pytest.mark.parametrize("address", [":x", 5, "a" * 300])
def test_an_address_that_is_none_is_refused_where_the_worker_is_made(address: object) -> None:
    ff = Fabric("memory://")

    @ff.task
    def nothing() -> None:
        """Do nothing."""

    with pytest.raises(InvalidInput, match="metrics"):
        Worker(ff, metrics=address)  # type: ignore[arg-type]
