"""A submit in the caller's own transaction, with every kind of connection that is accepted.

The poll interval is an hour: a waiting worker that gets the work was told by the server.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from flowfabric import Fabric
from flowfabric.api.executions import NewExecution
from flowfabric.assemble import open_engine
from flowfabric.callers import ACCEPTED
from flowfabric.config import EngineConfig
from flowfabric.errors import (
    ContentionError,
    FlowFabricError,
    IdempotencyConflict,
    InvalidInput,
    StoreUnavailable,
)
from tests.support.callers import (
    ASYNC,
    BLOCKING,
    CALLERS,
    django_connection,
    psycopg_blocking,
    sqlalchemy_url,
)
from tests.support.inner import inner

SLOW_POLL = EngineConfig(loops=False, poll_interval_ms=3_600_000)
HEAVY = b'"' + b"x" * (17 << 20) + b'"'  # is copied instead of inserted


def fabric(url: str) -> tuple[Fabric, Any]:
    ff = Fabric(url, config=SLOW_POLL)

    @ff.task
    async def ship(order: int) -> int:
        return order

    return ff, ship


async def waiting_claim(url: str) -> asyncio.Task[Any]:
    """A worker elsewhere that has looked, found nothing, and hears only of what comes now."""
    engine = open_engine(url, config=SLOW_POLL)
    heard = asyncio.Event()
    engine.store.hints.subscribe(lambda topics: heard.set())
    await engine.start()
    await heard.wait()

    async def wait_for_work() -> list[str]:
        try:
            claimed = await engine.claim(
                lanes=("default",),
                worker_id="w",
                worker_instance_id="i",
                limit=100,
                wait_ms=600_000,
            )
            return [each.execution_id for each in claimed]
        finally:
            await engine.close()

    waiting = asyncio.create_task(wait_for_work())
    while not engine.wakeups.is_awaited("lane:default"):
        await engine.server_time_ms()
    await engine.batches.idle()  # its first look is over
    return waiting


@pytest.mark.parametrize("kind", CALLERS)
def test_work_starts_at_the_commit_of_the_callers_transaction(postgres_url: str, kind: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        async with ff, CALLERS[kind](postgres_url) as caller:
            await caller.execute("CREATE TEMP TABLE orders (id INT)")
            run = await ff.submit(ship, 1, connection=caller.connection)
            waiting = await waiting_claim(postgres_url)
            await caller.execute("INSERT INTO orders VALUES (1)")
            assert not waiting.done()
            await caller.commit()
            assert await waiting == [run.id]

    asyncio.run(story())


@pytest.mark.parametrize("kind", CALLERS)
def test_work_is_gone_with_the_callers_rollback(postgres_url: str, kind: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        async with ff, CALLERS[kind](postgres_url) as caller:
            await ff.submit(ship, 1, connection=caller.connection)
            await ff.submit_many(ship, [1, 2, 3], connection=caller.connection)
            await caller.rollback()
            assert (await inner(await ff.start()).dump())["executions"] == []

    asyncio.run(story())


@pytest.mark.parametrize("kind", CALLERS)
def test_many_heavy_keyed_and_whole_flows_are_submitted_so(postgres_url: str, kind: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        big = EngineConfig(loops=False, payload_bytes_max=1 << 25)
        async with ff, open_engine(postgres_url, config=big) as engine:
            async with CALLERS[kind](postgres_url) as caller:
                mine = caller.connection
                first = await ff.submit(ship, 1, key="k", tags={"a.b": "c"}, connection=mine)
                again = await ff.submit(ship, 1, key="k", tags={"a.b": "c"}, connection=mine)
                many = await ff.submit_many(ship, range(30), connection=mine)
                calls = [ship.options(connection=mine).call(7), ship.call(8)]
                named = await ff.submit_many(calls)
                with ff.flow("f") as f:
                    f.add(ship, order=f.add(ship, 1))
                flow = await f.submit(connection=mine)
                heavy = NewExecution(execution_kind="heavy", input_payload=HEAVY)
                await engine.create_executions_in(mine, [heavy])
                await caller.commit()
            assert (again.id, again.is_new) == (first.id, False)
            stored = {each.execution_id for each in (await engine.dump())["executions"]}
            assert {first.id, *(run.id for run in [*many, *named])} <= stored
            assert len(stored) == 1 + 30 + 2 + 2 + 1
            assert len(await flow.nodes()) == 2
            (listed,) = (await engine.list_executions(tag=("a.b", "c"))).items
            assert listed.execution_id == first.id
            assert (await engine.doctor()).healthy

    asyncio.run(story())


@pytest.mark.parametrize("kind", CALLERS)
def test_a_refusal_leaves_the_callers_transaction_usable(postgres_url: str, kind: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        async with ff, CALLERS[kind](postgres_url) as caller:
            await caller.execute("CREATE TABLE IF NOT EXISTS orders (id INT)")
            kept = await ff.submit(ship, 1, key="k", connection=caller.connection)
            with pytest.raises(IdempotencyConflict):
                await ff.submit(ship, 2, key="k", connection=caller.connection)
            await caller.execute("DROP TABLE orders")
            await caller.commit()
            assert (await kept.info()).execution_id == kept.id

    asyncio.run(story())


# --- without asyncio ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BLOCKING)
def test_ff_sync_joins_a_blocking_connection(postgres_url: str, kind: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        async with BLOCKING[kind](postgres_url) as caller:
            waiting = await waiting_claim(postgres_url)

            def program() -> list[str]:
                with ff.sync as sync:
                    mine = caller.connection
                    first = sync.submit(ship, 1, connection=mine)
                    rest = sync.submit_many(ship, [2, 3], connection=mine)
                    with sync.flow("f") as f:
                        f.add(ship, order=f.add(ship, 1))
                    flow = f.submit(connection=mine)
                    ids = [first.id, *(run.id for run in rest)]
                    return [*ids, flow.flow_id]

            # A scoped session is another one in another thread, as the program means it.
            ids = await in_a_thread_of_its_own(program, caller)
            claimed = await waiting
            assert set(ids[:3]) <= set(claimed)

    asyncio.run(story())


@pytest.mark.parametrize("kind", BLOCKING)
def test_ff_sync_joins_a_connection_among_the_options_of_a_task(
    postgres_url: str, kind: str
) -> None:
    """It is looked up in the caller's thread: a scoped session is another one in each."""

    async def story() -> None:
        ff, ship = fabric(postgres_url)
        async with BLOCKING[kind](postgres_url) as caller:

            def program() -> list[str]:
                with ff.sync as sync:
                    mine = ship.options(connection=caller.connection)
                    runs = sync.submit_many([mine.call(2), mine.call(3)])
                    return [sync.submit(mine, 1).id, *(run.id for run in runs)]

            ids = await in_a_thread_of_its_own(program, caller)
        async with open_engine(postgres_url, config=SLOW_POLL) as engine:
            for each in ids:
                assert await engine.describe_execution(execution_id=each) is not None

    asyncio.run(story())


async def in_a_thread_of_its_own(program: Any, caller: Any) -> Any:
    """Run it and commit in one thread that has no event loop."""

    def both() -> Any:
        answer = program()
        given = caller.connection
        (given if not callable(getattr(given, "registry", None)) else given()).commit()
        return answer

    return await asyncio.to_thread(both)


def test_django_submits_with_its_own_rows_or_not_at_all(postgres_url: str) -> None:
    connection = django_connection(postgres_url)
    from django.db import transaction

    ff, ship = fabric(postgres_url)
    try:
        with ff.sync as sync:
            with pytest.raises(InvalidInput, match="no open"):
                sync.submit(ship, 0, connection=connection)
            with connection.cursor() as cursor:
                cursor.execute("CREATE TEMP TABLE orders (id INT)")
            with pytest.raises(InvalidInput, match="no open transaction"):
                sync.submit(ship, 0, connection=connection)
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("INSERT INTO orders VALUES (1)")
                kept = sync.submit(ship, 1, key="a", connection=connection)
                with pytest.raises(IdempotencyConflict):
                    sync.submit(ship, 2, key="a", connection=connection)
                sync.submit_many(ship, [3, 4], connection=connection)
            with transaction.atomic():
                sync.submit(ship, 5, connection=connection)
                transaction.set_rollback(True)
            assert kept.info().execution_id == kept.id
            engine = sync.wait(sync._fabric.start())
            assert len(sync.wait(inner(engine).dump())["executions"]) == 3
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ASYNC)
def test_ff_sync_refuses_a_connection_of_an_event_loop(postgres_url: str, kind: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        async with ASYNC[kind](postgres_url) as caller:

            def program() -> None:
                with (
                    ff.sync as sync,
                    pytest.raises(InvalidInput, match="takes blocking connections"),
                ):
                    sync.submit(ship, 1, connection=caller.connection)

            await asyncio.to_thread(program)
            await caller.rollback()

    asyncio.run(story())


def test_a_blocking_connection_does_not_hold_up_the_event_loop(postgres_url: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        async with (
            ff,
            psycopg_blocking(postgres_url) as one,
            psycopg_blocking(postgres_url) as two,
        ):
            await ff.submit(ship, 1, key="same", connection=one.connection)
            waits = asyncio.create_task(ff.submit(ship, 1, key="same", connection=two.connection))
            side = await asyncpg.connect(postgres_url)
            blocked = 0
            while not blocked:  # the loop turns although a submit waits for the other's commit
                blocked = await side.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                    "AND datname = current_database()"
                )
            await one.commit()
            with pytest.raises(ContentionError, match="run your transaction again"):
                await waits
            await two.rollback()
            assert not (await ff.submit(ship, 1, key="same", connection=two.connection)).is_new
            await side.close()

    asyncio.run(story())


# --- what cannot be joined ------------------------------------------------------------------------


async def refusal(ff: Fabric, task: Any, connection: Any) -> FlowFabricError:
    with pytest.raises(FlowFabricError) as caught:
        await ff.submit(task, 1, connection=connection)
    return caught.value


def test_a_connection_that_cannot_be_joined_is_refused_with_the_reason(postgres_url: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        async with ff:
            engine = await ff.start()
            for strange in (5, "url", object(), open, [], engine):
                answer = await refusal(ff, ship, strange)
                assert isinstance(answer, InvalidInput)
                assert ACCEPTED in answer.detail
            # asyncpg
            mine = await asyncpg.connect(postgres_url)
            assert "no open transaction" in (await refusal(ff, ship, mine)).detail
            await mine.execute("BEGIN")
            with pytest.raises(asyncpg.PostgresError):
                await mine.execute("SELECT 1/0")
            assert "aborted" in (await refusal(ff, ship, mine)).detail
            await mine.close()
            assert "closed" in (await refusal(ff, ship, mine)).detail
            async with asyncpg.create_pool(postgres_url, min_size=1) as pool:
                async with pool.acquire() as released:
                    pass
                assert "pool" in (await refusal(ff, ship, released)).detail
            # psycopg
            other = psycopg.connect(postgres_url)
            with pytest.raises(psycopg.Error):
                other.execute("SELECT 1/0")
            assert "aborted" in (await refusal(ff, ship, other)).detail
            other.rollback()
            other.autocommit = True
            assert "no open transaction" in (await refusal(ff, ship, other)).detail
            other.close()
            assert "closed" in (await refusal(ff, ship, other)).detail
            assert (await inner(engine).dump())["executions"] == []

    asyncio.run(story())


def test_sqlalchemy_in_autocommit_is_refused(postgres_url: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        async with ff:
            for driver in ("asyncpg", "psycopg"):
                many = create_async_engine(
                    sqlalchemy_url(postgres_url, driver), isolation_level="AUTOCOMMIT"
                )
                async with many.connect() as its_own:
                    assert "no open" in (await refusal(ff, ship, its_own)).detail
                await many.dispose()
            sync = create_engine(sqlalchemy_url(postgres_url, "psycopg"))
            with Session(sync) as session:
                with pytest.raises(DBAPIError):
                    session.execute(text("SELECT 1/0"))
                assert "aborted" in (await refusal(ff, ship, session)).detail
                session.rollback()
                connection = session.connection()
            assert isinstance(await refusal(ff, ship, connection), InvalidInput)
            sync.dispose()

    asyncio.run(story())


@pytest.mark.parametrize("kind", CALLERS)
def test_a_connection_that_dies_under_the_submit_is_a_typed_error(
    postgres_url: str, kind: str
) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        context = CALLERS[kind](postgres_url)
        async with ff:
            caller = await context.__aenter__()
            await caller.execute("SELECT 1")
            with psycopg.connect(postgres_url) as killer:
                killer.execute(
                    "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND state = 'idle in transaction'"
                )
            answer = await refusal(ff, ship, caller.connection)
            assert isinstance(answer, StoreUnavailable | InvalidInput), repr(answer)
            assert await (await ff.start()).server_time_ms() > 0
            with suppress(Exception):  # its library may stumble over the dead connection
                await context.__aexit__(None, None, None)

    asyncio.run(story())


def test_a_connection_to_another_database_is_refused(postgres: Any) -> None:
    async def story(url: str, elsewhere: str) -> None:
        ff, ship = fabric(url)
        async with ff:
            mine = await asyncpg.connect(elsewhere)
            async with mine.transaction():
                answer = await refusal(ff, ship, mine)
                await mine.execute("SELECT 1")
            assert isinstance(answer, InvalidInput)
            assert "same database" in answer.detail
            await mine.close()

    with postgres.database() as url, postgres.empty_database() as elsewhere:
        asyncio.run(story(url, elsewhere))


def test_an_old_snapshot_that_lacks_the_route_is_told_to_begin_again(postgres_url: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        async with ff:
            mine = await asyncpg.connect(postgres_url)
            for expected in (ContentionError, None):
                async with mine.transaction(isolation="repeatable_read"):
                    await mine.execute("SELECT count(*) FROM ff_route")
                    if expected is None:
                        await ff.submit(ship, 1, connection=mine)
                    else:
                        assert type(await refusal(ff, ship, mine)) is expected
            await mine.close()

    asyncio.run(story())


def test_calls_with_different_connections_are_not_submitted_together(postgres_url: str) -> None:
    async def story() -> None:
        ff, ship = fabric(postgres_url)
        calls = [ship.options(connection=object()).call(1), ship.options(connection=2).call(2)]
        async with ff:
            with pytest.raises(InvalidInput, match="share one"):
                await ff.submit_many(calls)
            with pytest.raises(InvalidInput, match="share one"):
                await ff.submit_many(calls[:1], connection=5)

    asyncio.run(story())
