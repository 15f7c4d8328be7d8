"""kill -9 around the commits of steps in transactions: the rows of the program are those of steps
that completed, each once.

FF_SELLER_KILLS=500 at night (`bin/soak`).
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import asyncpg
import pytest

from flowfabric import Run
from flowfabric.stores.callers.receipts import receipts_sql
from tests.chaos.processes import crew
from tests.chaos.seller_process import STEPS, Till, selling_fabric
from tests.chaos.verdict import check_store
from tests.property.budget import budget
from tests.support.databases import PostgresServer
from tests.support.inner import inner

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

SELLERS = "tests.chaos.seller_process"
KILLS = budget("FF_SELLER_KILLS", 8)


@pytest.mark.parametrize("where", ["the same database", "another one, by receipts"])
def test_rows_are_those_of_completed_steps(where: str, postgres: PostgresServer) -> None:
    with (
        asyncio.Runner() as runner,
        postgres.empty_database() as url,
        postgres.empty_database() as other,
    ):
        shop = url if where == "the same database" else other
        till = Till(shop, 0)
        fabric = selling_fabric(url, till)
        runner.run(opened(shop, receipts=shop != url))
        orders = 4 * KILLS

        async def submitted() -> list[Run[Any]]:
            return [await fabric.submit("order") for _ in range(orders)]

        async def left() -> int:
            counts = await (await fabric.start()).count_executions()
            return orders - sum(states.get("completed", 0) for states in counts.values())

        runs = runner.run(submitted())
        with crew(url) as sellers:
            seller = sellers.hire("sell", SELLERS, shop)
            chance = random.Random(KILLS)
            for count in range(KILLS):
                seller.tell(str(chance.randint(1, 2 * STEPS)))
                sellers.wait_until(lambda at=count: seller.heard("died") > at, "a death")  # type: ignore[misc]
            seller.tell("0")
            sellers.wait_until(lambda: runner.run(left()) == 0, "the rest of the orders")
            began = seller.heard("began")

        async def ended() -> tuple[list[str], list[str], dict[str, list[Any]], Any]:
            words = [word for run in runs for word in await run.result("10s")]
            engine = await fabric.start()
            dump, report = await inner(engine).dump(), await engine.doctor()
            await fabric.close()
            return words, await sold(shop), dump, report.problems

        words, rows, dump, problems = runner.run(ended())
    assert sorted(rows) == sorted(words)
    assert len(words) == len(set(words)) == orders * STEPS
    assert began > len(words), "no kill has taken a row back"
    check_store(dump)
    assert problems == ()


async def opened(url: str, *, receipts: bool) -> None:
    """The table of the program, and that of receipts."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE TABLE sold (word text)")
        if receipts:
            await connection.execute(receipts_sql("postgres"))
    finally:
        await connection.close()


async def sold(url: str) -> list[str]:
    """The rows of the program."""
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch("SELECT word FROM sold")]
    finally:
        await connection.close()
