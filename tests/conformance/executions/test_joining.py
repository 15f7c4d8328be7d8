"""Creating inside a caller's own Postgres transaction: with its data, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import ContentionError, FlowFabricError, IdempotencyConflict, InvalidInput
from flowfabric.ids import new_uuid7s
from flowfabric.model.flow_results import FlowDuplicate, FlowSubmitted
from flowfabric.model.results import Created, Duplicate
from tests.support.flows import Graph, arrows, assert_woven, node
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
    """Validated first; the caller's own rows are untouched."""

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
async def test_a_connection_without_an_open_transaction_is_refused_with_a_typed_error(
    lab: Lab,
) -> None:
    """A connection of something else, of nothing, or outside any transaction."""
    await lab.create()
    for wrong in (None, "connection", object()):
        async with lab.unchanged():
            with pytest.raises(FlowFabricError, match="connection"):
                await lab.engine.create_executions_in(wrong, [WORK])


# --- whole flows -------------------------------------------------------------------------------

GRAPH: dict[str, Any] = {
    "nodes": [node("a", input_payload=b"in"), node("b", tags={"a.b": "c"}), node("c")],
    "edges": arrows("a>b", "a>c", passes_result=True),
    "tags": {"of.all": "x"},
    "idempotency_key": "k",
}


def test_a_flow_exists_when_and_only_if_the_caller_commits(postgres_lab: Lab) -> None:
    """I1: nothing of it after a rollback, and it runs to its end after a commit."""

    async def story(lab: Lab) -> None:
        engine = lab.engine
        await engine.submit_flow(nodes=[node("warm")])  # what outlives a rollback is there: a route
        connection: Any = await asyncpg.connect(lab.url)
        try:
            async with lab.unchanged():
                transaction = connection.transaction()
                await transaction.start()
                lost = await engine.submit_flow(**GRAPH, connection=connection)
                assert isinstance(lost, FlowSubmitted)
                assert await engine.describe_flow(flow_id=lost.flow_id) is None
                await transaction.rollback()
            async with connection.transaction():
                made = await engine.submit_flow(**GRAPH, connection=connection)
                assert isinstance(made, FlowSubmitted)
                assert await engine.describe_flow(flow_id=made.flow_id) is None
            graph = Graph(lab, made.flow_id, made.execution_ids)
            assert await graph.states() == {
                "a": "waiting",
                "b": "waiting_children",
                "c": "waiting_children",
            }
            async with connection.transaction():
                again = await engine.submit_flow(**GRAPH, connection=connection)
            assert again == FlowDuplicate(made.flow_id)
            await graph.complete("a", result=b"1")
            assert await graph.payload("b") == b"1"
            await graph.complete("b", "c")
            assert await graph.events() == ["completed"]
        finally:
            await connection.close()
        await assert_woven(lab)

    postgres_lab.run(story(postgres_lab))


def test_a_refused_flow_leaves_the_callers_transaction_usable(postgres_lab: Lab) -> None:
    async def story(lab: Lab) -> None:
        engine, flow_id = lab.engine, new_uuid7s(1)[0]
        await engine.submit_flow(nodes=[node("a")], idempotency_key="k", flow_id=flow_id)
        connection: Any = await asyncpg.connect(lab.url)
        try:
            await connection.execute("CREATE TEMP TABLE orders (id INT)")
            async with lab.unchanged(), connection.transaction():
                await connection.execute("INSERT INTO orders VALUES (1)")
                for fields, error in (
                    (GRAPH, IdempotencyConflict),
                    ({"nodes": [node("a")], "flow_id": flow_id}, FlowFabricError),
                    ({"nodes": [node("a"), node("a")]}, InvalidInput),
                ):
                    with pytest.raises(error):
                        await engine.submit_flow(**fields, connection=connection)
                await connection.execute("INSERT INTO orders VALUES (2)")
            assert len(await connection.fetch("SELECT id FROM orders")) == 2
        finally:
            await connection.close()

    postgres_lab.run(story(postgres_lab))


def test_a_rival_for_the_same_flow_is_told_to_run_again(postgres_lab: Lab) -> None:
    """Two callers name one flow: whoever comes second cannot be answered in its transaction."""

    async def story(lab: Lab) -> None:
        engine = lab.engine
        first: Any = await asyncpg.connect(lab.url)
        second: Any = await asyncpg.connect(lab.url)
        fields: dict[str, Any] = {"nodes": [node("a")], "flow_id": new_uuid7s(1)[0]}
        try:
            ahead, behind = first.transaction(), second.transaction()
            await ahead.start()
            await behind.start()
            await engine.submit_flow(**fields, connection=first)
            waits = asyncio.create_task(engine.submit_flow(**fields, connection=second))
            await asyncio.sleep(0.1)
            assert not waits.done()
            await ahead.commit()
            with pytest.raises(ContentionError, match="run your transaction again"):
                await waits
            await behind.rollback()
        finally:
            await first.close()
            await second.close()
        await assert_woven(lab)

    postgres_lab.run(story(postgres_lab))


@scenario
async def test_a_flow_is_refused_what_is_no_open_transaction(lab: Lab) -> None:
    await lab.create()
    for wrong in ("connection", object(), 0):
        async with lab.refuses(InvalidInput, "connection"):
            await lab.engine.submit_flow(**GRAPH, connection=wrong)
