"""A pool of the program's own: used, shared, and left as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from flowfabric import Fabric, Worker
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.errors import InvalidInput, StoreError, StoreUnavailable
from flowfabric.stores.postgres.session import PLANNER

QUIET = EngineConfig(loops=False)
MINE = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", *PLANNER)


@asynccontextmanager
async def pool_of(url: str, size: int = 3, **options: Any) -> AsyncIterator[Any]:
    pool = await asyncpg.create_pool(url, min_size=1, max_size=size, **options)
    yield pool
    pool.terminate()


async def settings(pool: Any) -> dict[str, str]:
    async with pool.acquire() as connection:
        return {name: await connection.fetchval(f"SHOW {name}") for name in MINE}


async def keep(connection: Any) -> None:
    """A reset that resets nothing: what we would set for a session would stay."""


@pytest.mark.parametrize("reset", [None, keep], ids=["reset", "no-reset"])
def test_a_program_shares_its_pool_and_gets_it_back_as_it_was(
    postgres_url: str, reset: Any
) -> None:
    async def story() -> None:
        async with pool_of(postgres_url, reset=reset) as pool:
            before = await settings(pool)
            ff = Fabric(postgres_url, pool=pool)

            @ff.task
            async def work(number: int) -> int:
                return number + 1

            async with ff:
                worker = Worker(ff, concurrency=5)
                shift = asyncio.create_task(worker.run(handle_signals=False))
                runs = await ff.submit_many(work, range(20))
                assert [await run.result() for run in runs] == list(range(1, 21))
                async with pool.acquire() as mine, mine.transaction():
                    joined = await ff.submit(work, 7, connection=mine)
                assert await joined.result() == 8
                worker.stop()
                await shift
                assert (await (await ff.start()).doctor()).healthy
            assert await settings(pool) == before
            assert pool.get_idle_size() == pool.get_size()  # nothing was kept, nothing closed

    asyncio.run(story())


def test_statements_in_a_pool_run_under_our_settings(postgres_url: str) -> None:
    async def story() -> None:
        config = EngineConfig(loops=False, lock_timeout_ms=123, statement_timeout_ms=4567)
        async with (
            pool_of(postgres_url) as pool,
            open_engine(postgres_url, config=config, pool=pool) as engine,
        ):

            async def look(tx: Any) -> dict[str, str]:
                await tx.begin()
                rows = {name: await tx._connection.fetchval(f"SHOW {name}") for name in MINE}
                await tx.catalog()
                return rows

            found = await engine.transact(look)
            assert found["lock_timeout"] == "123ms"
            assert found["statement_timeout"] == "4567ms"
            assert all(found[name] == value for name, value in PLANNER.items())

    asyncio.run(story())


def test_troubles_of_a_pool_are_ours(postgres_url: str) -> None:
    async def story() -> None:
        hasty = EngineConfig(loops=False, acquire_timeout_ms=100)
        async with (
            pool_of(postgres_url, size=1) as pool,
            open_engine(postgres_url, config=hasty, pool=pool) as engine,
        ):
            async with pool.acquire():
                with pytest.raises(StoreUnavailable, match="acquire_timeout_ms"):
                    await engine.server_time_ms()
            async with pool.acquire() as mine:
                pid = mine.get_server_pid()
            side = await asyncpg.connect(postgres_url)
            await side.execute("SELECT pg_terminate_backend($1, 60000)", pid)
            await side.close()
            for _ in range(2):  # the first may meet the dead connection
                try:
                    assert await engine.server_time_ms() > 0
                except StoreUnavailable:
                    continue
            assert await engine.server_time_ms() > 0
            await pool.close()
            with pytest.raises(StoreError) as refused:
                await engine.server_time_ms()
            assert not refused.value.retryable  # waiting does not open it again

    asyncio.run(story())


def test_anything_but_a_pool_is_refused(postgres_url: str) -> None:
    for strange in (5, "pool", object()):
        with pytest.raises(InvalidInput, match="expected an asyncpg") as refused:
            open_engine(postgres_url, pool=strange)
        assert refused.value.fields["field"] == "pool"
    with pytest.raises(InvalidInput, match="only PostgreSQL"):
        open_engine("memory://", pool=object())


def test_a_pool_of_another_event_loop_is_refused(postgres_url: str) -> None:
    async def make() -> Any:
        return await asyncpg.create_pool(postgres_url, min_size=0)

    async def use(pool: Any) -> None:
        with pytest.raises(InvalidInput, match="another event loop"):
            await open_engine(postgres_url, pool=pool).start()

    asyncio.run(use(asyncio.run(make())))


def test_ff_sync_has_connections_of_its_own_beside_a_pool(postgres_url: str) -> None:
    async def story() -> None:
        async with pool_of(postgres_url) as pool:
            ff = Fabric(postgres_url, pool=pool, config=QUIET)

            @ff.task
            async def work() -> None: ...

            def program() -> str:
                with ff.sync as sync:
                    return sync.submit(work).id

            execution_id = await asyncio.to_thread(program)
            async with ff:
                assert (await ff.run(execution_id).info()).execution_id == execution_id

    asyncio.run(story())
