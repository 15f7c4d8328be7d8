"""A row of a journal that cannot be read: its run is held, others go on, an operator decides."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import asyncpg

from flowfabric import Context, Fabric, PublicState, Run
from flowfabric.model.state import BlockingReason
from tests.sdk.workshop import until, within, working


def test_a_damaged_row_holds_its_run_and_no_other(durable_url: str) -> None:
    ff, ran = Fabric(durable_url), list[str]()

    def work(name: str) -> str:
        ran.append(name)
        return name

    @ff.task(retries=3, backoff="1ms")
    async def handle(ctx: Context, name: str) -> str:
        await ctx.step("work", work, name)
        await ctx.wait_for("go", timeout="1h")
        return name

    async def reaches(run: Run[Any], reason: BlockingReason | None) -> None:
        async def is_there() -> bool:
            info = await run.info()
            is_suspended = info.public_state is PublicState.SUSPENDED
            return is_suspended and reason in (None, info.blocking_reason)

        await until(is_there)

    async def main() -> None:
        async with ff:
            bad, good = await ff.submit(handle, "bad"), await ff.submit(handle, "good")
            async with working(ff):
                await reaches(bad, None)
                await reaches(good, None)
            where = f"execution_id = '{bad.id}' AND position = 0"
            await change(durable_url, f"UPDATE ff_journal SET error = '[' WHERE {where}")
            for run in (bad, good):
                await ff.signal(run, "go")
            async with working(ff):
                assert await within(good.result()) == "good"
                await reaches(bad, BlockingReason.PAUSED_BY_POLICY)
            assert "cannot be read; it is damaged" in (await bad.explain()).summary
            assert (await bad.info()).retry_count == 0
            problems = (await (await ff.start()).doctor()).problems
            assert [each.code for each in problems] == ["corrupt"]
            assert bad.id[-36:] in problems[0].subject

    asyncio.run(main())
    assert sorted(ran) == ["bad", "good"]


async def change(url: str, statement: str) -> None:
    """Change a store behind the engine's back."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute(statement)
            connection.commit()
        return
    server = await asyncpg.connect(url)
    try:
        await server.execute(statement)
    finally:
        await server.close()
