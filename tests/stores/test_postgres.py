"""What only Postgres offers: the caller's own transaction, and hints through the server."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.errors import FlowFabricError, InvalidInput, StoreUnavailable

SLOW_POLL = EngineConfig(loops=False, poll_interval_ms=3_600_000)


async def claim(engine: Any, **fields: Any) -> Any:
    return await engine.claim(
        lanes=("default",), worker_id="w", worker_instance_id="i", limit=10, **fields
    )


@pytest.mark.parametrize("commits", [True, False])
def test_work_is_created_with_the_callers_own_rows_or_not_at_all(
    postgres_url: str, commits: bool
) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=SLOW_POLL) as engine:
            connection = await asyncpg.connect(postgres_url)
            await connection.execute("CREATE TEMP TABLE orders (id INT)")
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("INSERT INTO orders VALUES (1)")
            created = await engine.create_executions_in(
                connection, [NewExecution(execution_kind="ship", idempotency_key="order-1")]
            )
            assert await claim(engine) == []
            await (transaction.commit() if commits else transaction.rollback())
            claimed = await claim(engine)
            assert [each.execution_id for each in claimed] == (
                [created[0].execution_id] if commits else []
            )
            assert await connection.fetchval("SELECT count(*) FROM orders") == int(commits)
            await connection.close()

    asyncio.run(story())


def test_a_refused_create_leaves_the_callers_transaction_usable(postgres_url: str) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=SLOW_POLL) as engine:
            first: dict[str, Any] = {"execution_kind": "ship", "idempotency_key": "k"}
            await engine.create_execution(**first, input_payload=b"1")
            connection = await asyncpg.connect(postgres_url)
            async with connection.transaction():
                await connection.execute("CREATE TEMP TABLE orders (id INT)")
                with pytest.raises(FlowFabricError):
                    await engine.create_executions_in(
                        connection, [NewExecution(**first, input_payload=b"2")]
                    )
                await connection.execute("INSERT INTO orders VALUES (1)")
            assert await connection.fetchval("SELECT count(*) FROM orders") == 1
            await connection.close()

    asyncio.run(story())


def test_other_stores_say_that_they_cannot_join_a_transaction() -> None:
    async def story() -> None:
        async with open_engine("memory://") as engine:
            with pytest.raises(InvalidInput) as refused:
                await engine.create_executions_in(None, [NewExecution(execution_kind="k")])
            assert refused.value.fields["field"] == "connection"

    asyncio.run(story())


def test_a_waiting_claim_in_another_process_is_woken_by_the_server(postgres_url: str) -> None:
    """The poll interval is an hour: only a hint can have woken it."""

    async def story() -> None:
        async with (
            open_engine(postgres_url, config=SLOW_POLL) as worker,
            open_engine(postgres_url, config=SLOW_POLL) as submitter,
        ):
            await submitter.create_execution(execution_kind="k")
            (first,) = await claim(worker, wait_ms=60_000)
            waiting = asyncio.create_task(claim(worker, wait_ms=60_000))
            result = asyncio.create_task(
                submitter.wait_for_result(execution_id=first.execution_id, wait_ms=60_000)
            )
            await asyncio.sleep(0)
            # Until the listeners are connected a hint may be lost, so more work may be needed.
            while not waiting.done():
                await submitter.create_execution(execution_kind="k")
                await asyncio.wait((waiting,), timeout=0.2)
            assert len(await waiting) >= 1
            await worker.complete(first.handle, result=b"1")
            assert (await result).public_state.value == "completed"

    asyncio.run(story())


def test_a_lost_connection_is_a_typed_error_and_the_next_call_reconnects(
    postgres_url: str,
) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=SLOW_POLL) as engine:
            await engine.create_execution(execution_kind="k")
            connection = await asyncpg.connect(postgres_url)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
            await connection.close()
            for _ in range(20):  # each broken pooled connection may be met once
                try:
                    await engine.create_execution(execution_kind="k")
                    break
                except StoreUnavailable:
                    continue
            else:
                pytest.fail("never reconnected")

    asyncio.run(story())


def test_an_unreachable_server_is_a_typed_error() -> None:
    async def story() -> None:
        engine = open_engine("postgresql://nobody@127.0.0.1:1/none", config=SLOW_POLL)
        with pytest.raises(StoreUnavailable):
            await engine.start()

    asyncio.run(story())


def test_two_changes_of_one_lane_at_once_are_both_kept(postgres_url: str) -> None:
    """The catalog is read without a lock: what it says of the lane may be over by then."""

    async def story() -> None:
        async with open_engine(postgres_url, config=SLOW_POLL) as engine:
            await engine.configure_lane(lane_id="video", weight=2)
            rival = await asyncpg.connect(postgres_url)
            async with rival.transaction():
                await rival.execute("UPDATE ff_lane_registry SET weight = 7")
                pausing = asyncio.create_task(
                    engine.set_lane_state(lane_id="video", lane_state="paused")
                )
                waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
                while not await rival.fetch(waiting):
                    await rival.execute("SELECT pg_sleep(0.01)")
            await pausing
            await rival.close()
            lanes = (await engine.list_lanes()).items
            assert [(each.weight, each.lane_state.value) for each in lanes] == [(7, "paused")]

    asyncio.run(story())
