"""One worker for several tenants."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric import Context, Fabric, InvalidInput, Worker
from tests.sdk.workshop import until, working


def test_a_worker_serves_the_tenants_it_names_and_no_other(durable_url: str) -> None:
    ff = Fabric(durable_url)

    @ff.task
    async def whose(ctx: Context) -> str:
        return ctx.namespace

    async def main() -> None:
        others = {name: Fabric(durable_url, namespace=name) for name in ("acme", "bolt", "core")}
        async with ff, others["acme"], others["bolt"], others["core"]:
            runs = {name: await fabric.submit("whose") for name, fabric in others.items()}
            async with working(ff, namespaces=["acme", "bolt"]):
                assert await runs["acme"].result("60s") == "acme"
                assert await runs["bolt"].result("60s") == "bolt"
                assert await runs["core"].state() == "waiting"
                engine = await ff.start()

                async def is_registered() -> bool:
                    entries = (await engine.list_workers()).items
                    return [entry.namespace for entry in entries] == ["acme", "bolt"]

                await until(is_registered)
            assert (await (await ff.start()).list_workers()).items == ()

    asyncio.run(main())


def test_no_tenant_starves_another(durable_url: str) -> None:
    """A tenant with much work and high priority gets its part, not everything."""
    ff = Fabric(durable_url)
    order: list[str] = []

    @ff.task
    async def work(ctx: Context) -> None:
        order.append(ctx.namespace)

    async def main() -> None:
        large, small = (Fabric(durable_url, namespace=name) for name in ("large", "small"))
        async with ff, large, small:
            for _ in range(40):
                await large.submit("work", priority=9000)
            last = [await small.submit("work") for _ in range(4)]
            async with working(ff, namespaces=["large", "small"], concurrency=4):
                for run in last:
                    await run.result("60s")
            assert order.index("small") < 8
            assert [i for i, name in enumerate(order) if name == "small"][-1] < 20

    asyncio.run(main())


def test_namespaces_are_checked_where_the_worker_is_made() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def work() -> None: ...

    with pytest.raises(InvalidInput, match=r"namespaces: write \['acme'\]"):
        Worker(ff, namespaces="acme")
    with pytest.raises(InvalidInput, match="at least one"):
        Worker(ff, namespaces=[])
    assert Worker(ff, namespaces=["b", "a", "b"]).settings.namespaces == ("a", "b")
    assert Worker(ff).settings.namespaces is None
