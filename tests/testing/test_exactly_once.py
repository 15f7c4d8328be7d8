"""Steps once and in transactions under the kit: crashes, doubles and the replay check."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from flowfabric import Fabric, StepInterrupted
from flowfabric.stores.callers.receipts import receipts_sql
from flowfabric.testing import Crash, TestFabric
from tests.testing.conftest import Play

ff = Fabric("memory://")
FILES: list[Path] = []


def connect() -> sqlite3.Connection:
    return sqlite3.connect(FILES[-1])


@ff.step(once=True)
async def pay(amount: int) -> str:
    return f"paid {amount}"


@ff.step(transaction=connect)
def sell(connection: sqlite3.Connection, n: int) -> int:
    connection.execute("INSERT INTO sold VALUES (?)", (n,))
    return n


@ff.step
async def note(text: str) -> str:
    return text


@ff.task
async def order() -> str:
    await note("before")
    try:
        paid = await pay(7)
    except StepInterrupted:
        paid = "unknown"
    return await note(paid)


@ff.task
async def shop() -> int:
    sold: Any = sell(3)
    await note("after")
    return int(await sold) + await sell_later()


async def sell_later() -> int:
    sold: Any = sell(4)
    return int(await sold)


@pytest.fixture
def sold(tmp_path: Path) -> Any:
    """The rows of a shop."""
    FILES.append(tmp_path / "shop.db")
    with connect() as connection:
        connection.execute("CREATE TABLE sold (n INT)")
        connection.execute(receipts_sql("sqlite"))
    return lambda: [row[0] for row in connect().execute("SELECT n FROM sold ORDER BY n")]


@pytest.mark.parametrize(
    ("crash", "expected"),
    [
        (None, "paid 7"),
        (Crash(before="note"), "paid 7"),
        (Crash(before="pay"), "unknown"),
        (Crash(after="pay"), "unknown"),
        (Crash(before="note", nth=2), "paid 7"),
    ],
)
def test_a_crash_in_a_once_step_leaves_doubt(
    play: Play, crash: Crash | None, expected: str
) -> None:
    """And the replay check takes no run for interrupted that was not."""

    async def scenario(fabric: TestFabric) -> None:
        if crash is not None:
            fabric.crash(crash)
        run = await fabric.submit(order)
        await fabric.settle()
        await fabric.settle(skip=True)
        assert await run.result() == expected
        assert [each.key for each in fabric.runs_of_steps].count("pay") <= 1

    play(scenario, ff)


@pytest.mark.parametrize(
    "crash", [Crash(after="sell"), Crash(after="sell", at="checkpoint"), Crash(before="sell")]
)
def test_rows_are_there_once_wherever_a_worker_dies(play: Play, sold: Any, crash: Crash) -> None:
    async def scenario(fabric: TestFabric) -> None:
        fabric.crash(crash)
        run = await fabric.submit(shop)
        await fabric.settle()
        await fabric.settle(skip=True)
        assert await run.result() == 7
        assert sold() == [3, 4]

    play(scenario, ff)


def test_a_double_needs_no_database(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        spy = fabric.stub(sell, returns=5)
        run = await fabric.submit(shop)
        await fabric.settle()
        assert await run.result() == 10
        assert list(spy.calls) == [(3,), (4,)]

    play(scenario, ff)
