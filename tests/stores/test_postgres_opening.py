"""Opening a store whose server is not ready, and several opening it at once."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from flowfabric import Fabric, Worker
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.errors import StoreUnavailable
from flowfabric.stores.postgres.schema import MIGRATION_LOCK
from tests.support.databases import PostgresServer
from tests.support.doorman import WORDS, Doorman

QUIET = EngineConfig(loops=False)


@pytest.mark.parametrize("code", WORDS)
def test_a_program_that_starts_too_early_waits_for_a_server_that_answers_so(
    postgres_url: str, code: str
) -> None:
    async def story() -> None:
        async with Doorman(postgres_url).on_duty() as door:
            door.refusal = code
            engine = open_engine(door.url, config=QUIET)
            starting = asyncio.create_task(engine.start())
            while door.refused < 3:
                await door.someone_was_refused.wait()
                door.someone_was_refused.clear()
            assert not starting.done()
            door.refusal = None
            await starting
            assert await engine.server_time_ms() > 0
            await engine.close()

    asyncio.run(story())


@pytest.mark.parametrize("code", WORDS)
def test_a_server_that_is_never_ready_is_a_typed_error_that_may_be_retried(
    postgres_url: str, code: str
) -> None:
    async def story() -> None:
        async with Doorman(postgres_url).on_duty() as door:
            door.refusal = code
            hasty = EngineConfig(loops=False, connect_timeout_ms=1_500)
            engine = open_engine(door.url, config=hasty)
            with pytest.raises(StoreUnavailable, match=WORDS[code]) as refused:
                await engine.start()
            assert refused.value.retryable
            door.refusal = None
            await engine.start()  # the same engine: nothing of the first try is left
            await engine.close()

    asyncio.run(story())


@pytest.mark.parametrize("code", WORDS)
def test_a_worker_that_starts_too_early_waits_for_its_store(postgres_url: str, code: str) -> None:
    async def story() -> None:
        async with Doorman(postgres_url).on_duty() as door:
            ff = Fabric(door.url, config=EngineConfig(connect_timeout_ms=200))
            done = asyncio.Event()

            @ff.task
            async def work() -> None:
                done.set()

            async with Fabric(postgres_url, config=QUIET) as other:
                await other.submit("work", {})
            door.refusal = code
            worker = Worker(ff)
            running = asyncio.create_task(worker.run(handle_signals=False))
            while door.refused < 3:
                await door.someone_was_refused.wait()
                door.someone_was_refused.clear()
            assert not running.done()
            door.refusal = None
            await done.wait()
            worker.stop()
            await running

    asyncio.run(story())


def test_a_connection_cut_while_opening_is_an_outage(postgres_url: str) -> None:
    async def story() -> None:
        async with Doorman(postgres_url).on_duty() as door:
            for _ in range(20):
                engine = open_engine(door.url, config=QUIET)
                starting = asyncio.create_task(engine.start())
                await asyncio.sleep(0.005)
                door.cut_all()
                try:
                    await starting
                except StoreUnavailable:
                    continue
                await engine.close()

    asyncio.run(story())


# --- several at once ------------------------------------------------------------------------------


def test_processes_that_migrate_at_once_all_start(postgres: PostgresServer) -> None:
    async def story(url: str) -> None:
        engines = [open_engine(url, config=QUIET) for _ in range(6)]
        await asyncio.gather(*(engine.start() for engine in engines))
        for engine in engines:
            await engine.create_execution(execution_kind="k")
            await engine.close()

    with postgres.empty_database() as url:
        asyncio.run(story(url))


def test_a_running_migration_is_waited_for_longer_than_any_lock(
    postgres: PostgresServer,
) -> None:
    async def story(url: str) -> None:
        first = await asyncpg.connect(url)
        hold = first.transaction()
        await hold.start()
        await first.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
        engine = open_engine(url, config=EngineConfig(loops=False, lock_timeout_ms=20))
        starting = asyncio.create_task(engine.start())
        done, _ = await asyncio.wait([starting], timeout=0.5)
        assert not done
        await hold.commit()
        await starting
        await engine.close()
        await first.close()

    with postgres.empty_database() as url:
        asyncio.run(story(url))


def test_a_migration_that_finds_its_tables_in_use_may_be_retried(postgres: PostgresServer) -> None:
    async def story(url: str) -> None:
        first = await asyncpg.connect(url)
        hold = first.transaction()
        await hold.start()
        await first.execute("CREATE TABLE ff_migration_annotation ()")
        engine = open_engine(url, config=EngineConfig(loops=False, lock_timeout_ms=20))
        with pytest.raises(StoreUnavailable, match="too busy to migrate"):
            await engine.start()
        await hold.rollback()
        await engine.start()
        await engine.close()
        await first.close()

    with postgres.empty_database() as url:
        asyncio.run(story(url))
