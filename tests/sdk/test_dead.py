"""`ff.dead`: what failed or expired, until it is run again or dismissed."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric import EngineConfig, Fabric
from flowfabric.errors import InvalidInput
from flowfabric.limits import FAILED_RETENTION_MS_DEFAULT
from flowfabric.model.dead import DeadCount

URL = "memory://"


def test_dead_letters_are_counted_retried_and_dismissed() -> None:
    ff = Fabric(URL, config=EngineConfig(retention_ms=1_000))

    @ff.task
    async def crawl() -> None: ...

    @ff.task(failed_retention="2d", retention="1h")
    async def brief() -> None: ...

    async def main() -> None:
        async with ff:
            runs = [await ff.submit(crawl) for _ in range(3)] + [await ff.submit(brief)]
            engine = await ff.start()
            for each in await engine.claim(
                lanes=["default"], worker_id="w", worker_instance_id="w", limit=9
            ):
                await engine.fail(each.handle, reason="gone", failure_class="permanent")
            kinds = [(each.execution_kind, each.number) for each in await ff.dead.count()]
            assert kinds == [("crawl", 3), ("brief", 1)]
            infos = [await each.info() for each in runs]
            kept = [(each.purge_at or 0) - (each.completed_at or 0) for each in infos]
            assert kept == [FAILED_RETENTION_MS_DEFAULT] * 3 + [2 * 86_400_000]
            (latest,) = await ff.dead.list(kind=crawl, limit=1)
            assert "gone" in latest.reason
            again = await ff.dead.retry(kind=crawl, limit=1, reason="try")
            assert (again.done, again.refused) == (1, {})
            assert (await ff.run(latest.execution_id).info()).replay_count == 1
            gone = await ff.dead.dismiss([runs[3].id, latest.execution_id], reason="known")
            assert (gone.done, gone.refused) == (1, {"execution_not_eligible": 1})
            assert (await ff.dead.dismiss(category=latest.category)).done == 2
            assert await ff.dead.count() == ()
            letters = await ff.dead.list(dismissed=True)
            assert len(letters) == 3
            assert (await ff.dead.restore(category=latest.category, limit=1)).done == 1
            left = [each.execution_id for each in await ff.dead.list(dismissed=True)]
            other = runs[3].id if runs[3].id in left else left[0]
            assert (await ff.dead.restore([other], reason="ours")).done == 1
            assert len(await ff.dead.list(dismissed=True)) == 1
            assert (await ff.dead.restore(kind=crawl)).refused == {}
            assert sum(each.number for each in await ff.dead.count()) == 3
            with pytest.raises(InvalidInput, match="ids"):
                await ff.dead.retry([runs[0].id], kind=crawl)
            with pytest.raises(InvalidInput, match="limit"):
                await ff.dead.retry(limit=0)

    asyncio.run(main())


def test_without_asyncio_it_is_the_same() -> None:
    sync = Fabric(URL).sync
    try:
        assert sync.dead.count() == ()
        assert sync.dead.list(kind="x") == []
        assert sync.dead.retry().matched == sync.dead.dismiss(kind="x").matched == 0
        assert sync.dead.restore().matched == 0
        assert DeadCount("a", "b", 1).number == 1
    finally:
        sync.close()
