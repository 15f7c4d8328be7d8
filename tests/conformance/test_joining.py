"""Creating inside a caller's own Postgres transaction: with its data, or not at all."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from flowfabric.engine.requests import NewExecution
from flowfabric.errors import FlowFabricError, IdempotencyConflict, InvalidInput
from flowfabric.model.results import Created, Duplicate
from tests.support.lab import Lab, scenario

WORK = NewExecution(execution_kind="work", input_payload=b"in", idempotency_key="k")


@pytest.fixture
def postgres_lab(postgres_url: str) -> Any:
    lab = Lab(postgres_url)
    lab.open()
    yield lab
    lab.close()


def test_executions_exist_when_and_only_if_the_caller_commits(postgres_lab: Lab) -> None:
    """I1: an application enqueues atomically with its data."""

    async def story(lab: Lab) -> None:
        connection: Any = await asyncpg.connect(lab.url)
        try:
            await connection.execute("CREATE TEMP TABLE orders (id INT)")
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("INSERT INTO orders VALUES (1)")
            (created,) = await lab.engine.create_executions_in(connection, [WORK])
            assert isinstance(created, Created)
            execution_id = created.execution_id
            assert await lab.engine.describe_execution(execution_id=execution_id) is None
            await transaction.rollback()
            assert await lab.claims() == []
            async with connection.transaction():
                (created,) = await lab.engine.create_executions_in(connection, [WORK])
                await connection.execute("INSERT INTO orders VALUES (2)")
            assert (await lab.claim()).execution_id == created.execution_id
            assert await connection.fetch("SELECT id FROM orders") == [(2,)]
            async with connection.transaction():
                (again,) = await lab.engine.create_executions_in(connection, [WORK])
            assert again == Duplicate(created.execution_id)
        finally:
            await connection.close()

    postgres_lab.run(story(postgres_lab))


def test_a_refusal_leaves_the_callers_transaction_usable(postgres_lab: Lab) -> None:
    """D18: validated first; the caller's own rows are untouched."""

    async def story(lab: Lab) -> None:
        await lab.create(idempotency_key="k", priority=9)
        connection: Any = await asyncpg.connect(lab.url)
        try:
            await connection.execute("CREATE TEMP TABLE orders (id INT)")
            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES (1)")
                for request, error in (
                    (WORK, IdempotencyConflict),
                    (NewExecution(execution_kind=""), InvalidInput),
                ):
                    with pytest.raises(error, match=r"requests\[1\]"):
                        await lab.engine.create_executions_in(
                            connection, [NewExecution(execution_kind="fine"), request]
                        )
                await connection.execute("INSERT INTO orders VALUES (2)")
            assert len(await connection.fetch("SELECT id FROM orders")) == 2
            assert await lab.engine.count_executions() == {"default": {"waiting": 1}}
        finally:
            await connection.close()

    postgres_lab.run(story(postgres_lab))


@scenario
async def test_what_is_no_open_transaction_is_refused_with_a_typed_error(lab: Lab) -> None:
    """A connection of something else, of nothing, or outside any transaction."""
    await lab.create()
    for wrong in (None, "connection", object()):
        async with lab.unchanged():
            with pytest.raises(FlowFabricError, match="connection"):
                await lab.engine.create_executions_in(wrong, [WORK])
