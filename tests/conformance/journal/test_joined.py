"""Entries in a caller's own Postgres transaction: with its rows, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest

from flowfabric.errors import (
    Corruption,
    FlowFabricError,
    IdempotencyConflict,
    InvalidInput,
    LeaseRevoked,
)
from flowfabric.model.budget import Ok
from flowfabric.model.journal import Checkpointed, Settlement
from tests.support.budgets import BUDGET, held, make_budget, reserve, usage
from tests.support.journal import entry, keys, record
from tests.support.lab import Lab, scenario


@pytest.fixture
def postgres_lab(postgres_url: str) -> Any:
    lab = Lab(postgres_url)
    lab.open()
    yield lab
    lab.close()


@asynccontextmanager
async def connected(lab: Lab) -> AsyncIterator[Any]:
    """A connection of a caller's own, and a table."""
    connection: Any = await asyncpg.connect(lab.url)
    try:
        await connection.execute("CREATE TEMP TABLE orders (id INT)")
        yield connection
    finally:
        await connection.close()


def test_entries_and_rows_are_there_together_or_not_at_all(postgres_lab: Lab) -> None:
    async def story(lab: Lab) -> None:
        claimed = await lab.started()
        await make_budget(lab, hard={"a": 100})
        await reserve(lab, claimed, {"a": 10})
        paying = entry(0, "debit", settles=(Settlement(BUDGET, "h", {"a": 4}),))
        async with connected(lab) as mine:
            transaction = mine.transaction()
            await transaction.start()
            await mine.execute("INSERT INTO orders VALUES (1)")
            reply = await lab.engine.checkpoint_in(claimed.handle, mine, entries=[paying])
            assert reply == Checkpointed(0, (Ok(),))
            await transaction.rollback()
            assert await keys(lab, claimed.execution_id) == []
            assert await held(lab) == {"a": 10}
            async with mine.transaction():
                await mine.execute("INSERT INTO orders VALUES (2)")
                await lab.engine.checkpoint_in(claimed.handle, mine, entries=[paying])
            assert await keys(lab, claimed.execution_id) == ["debit"]
            assert (await usage(lab), await held(lab)) == ({"a": 4}, {})
            assert await mine.fetch("SELECT id FROM orders") == [(2,)]

    postgres_lab.run(story(postgres_lab))


def test_a_lost_lease_is_refused_in_the_transaction(postgres_lab: Lab) -> None:
    async def story(lab: Lab) -> None:
        claimed = await lab.started()
        async with connected(lab) as mine:
            transaction = mine.transaction()
            await transaction.start()
            await mine.execute("INSERT INTO orders VALUES (1)")
            await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="x")
            with pytest.raises(LeaseRevoked):
                await lab.engine.checkpoint_in(claimed.handle, mine, entries=[entry(0)])
            await transaction.rollback()
            assert await mine.fetch("SELECT id FROM orders") == []
            assert await keys(lab, claimed.execution_id) == []

    postgres_lab.run(story(postgres_lab))


def test_the_lease_cannot_be_lost_between_the_check_and_the_commit(postgres_lab: Lab) -> None:
    """The execution is held: what would take it away waits."""

    async def story(lab: Lab) -> None:
        claimed = await lab.started()
        execution_id = claimed.execution_id
        async with connected(lab) as mine:
            async with mine.transaction():
                await lab.engine.checkpoint_in(claimed.handle, mine, entries=[entry(0)])
                revoking = asyncio.create_task(
                    lab.engine.revoke_lease(execution_id=execution_id, reason="x")
                )
                done, _ = await asyncio.wait([revoking], timeout=0.2)
                assert not done
            await revoking
            assert await keys(lab, execution_id) == ["step#1"]

    postgres_lab.run(story(postgres_lab))


def test_an_entry_that_was_committed_is_not_taken_for_the_present_call(postgres_lab: Lab) -> None:
    """Its rows were committed with it; a repeated call must roll back what it has written."""

    async def story(lab: Lab) -> None:
        claimed = await lab.started()
        async with connected(lab) as mine:
            for number in range(2):
                try:
                    async with mine.transaction():
                        await mine.execute("INSERT INTO orders VALUES ($1)", number)
                        await lab.engine.checkpoint_in(claimed.handle, mine, entries=[entry(0)])
                except IdempotencyConflict:
                    assert number == 1
            assert await mine.fetch("SELECT id FROM orders") == [(0,)]
            assert await keys(lab, claimed.execution_id) == ["step#1"]
            with pytest.raises(Corruption):
                async with mine.transaction():
                    await lab.engine.checkpoint_in(claimed.handle, mine, entries=[entry(0, "b")])
            await record(lab, claimed, entry(1))

    postgres_lab.run(story(postgres_lab))


def test_it_is_told_whether_a_connection_leads_to_the_same_tables(postgres_lab: Lab) -> None:
    async def story(lab: Lab) -> None:
        async with connected(lab) as mine:
            async with mine.transaction():
                assert await lab.engine.shares_database(mine) is True
            async with mine.transaction():
                await mine.execute("SET LOCAL search_path TO pg_catalog")
                assert await lab.engine.shares_database(mine) is False
            with pytest.raises(InvalidInput, match="no open transaction"):
                await lab.engine.shares_database(mine)
        async with await psycopg.AsyncConnection.connect(lab.url) as theirs:
            assert await lab.engine.shares_database(theirs) is True

    postgres_lab.run(story(postgres_lab))


@scenario
async def test_a_store_without_such_transactions_refuses(lab: Lab) -> None:
    claimed = await lab.started()
    for wrong in (None, "connection", object()):
        async with lab.unchanged():
            with pytest.raises(FlowFabricError, match="connection"):
                await lab.engine.checkpoint_in(claimed.handle, wrong, entries=[entry(0)])
    told = lab.engine.capabilities()
    assert told.supports["checkpoint_in"] is (told.family == "postgres")
    if told.family != "postgres":
        assert await lab.engine.shares_database(None) is False
