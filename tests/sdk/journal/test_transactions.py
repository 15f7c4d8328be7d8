"""Steps in a transaction of the program's own database: done exactly once."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from flowfabric import (
    Context,
    Fabric,
    InvalidInput,
    NestedStep,
    Run,
    RunFailed,
    StepFailed,
    SyncContext,
    current_step,
)
from flowfabric.sdk.errors import InvalidTask
from tests.sdk.journal.bench import attempts, journal, keys, worked
from tests.sdk.journal.shops import ASYNC, BLOCKING, Shop, shop
from tests.sdk.journal.test_once import lose_lease
from tests.sdk.journal.test_paying import used
from tests.sdk.workshop import until, within, working
from tests.support.databases import PostgresServer

Story = Callable[[Fabric, Shop], Coroutine[Any, Any, None]]


@pytest.fixture
def other_url(postgres: PostgresServer) -> Any:
    """A second database, in which another FlowFabric lives."""
    with postgres.database() as url:
        yield url


def traded(
    ff: Fabric, kind: str, url: str | Path, story: Story, *, receipts: bool = False, **more: Any
) -> None:
    """Run a test with a worker and a shop beside it. The worker has one slot: it does not take an
    execution back while a handler that has lost it still runs."""

    async def main(ff: Fabric) -> None:
        mine = await shop(kind, url, **more)
        try:
            await mine.open(receipts=receipts)
            await story(ff, mine)
        finally:
            await mine.close()

    worked(ff, main, concurrency=1)


def later(pools: list[Any]) -> Callable[[], Any]:
    """What a program writes whose pool is made when its loop runs."""
    return lambda: pools[0]


# --- in the database of the store ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [*ASYNC, *BLOCKING])
def test_rows_and_entry_are_one_commit_with_every_driver(postgres_url: str, kind: str) -> None:
    ff, found = Fabric(postgres_url), list[Any]()

    @ff.task(retries=1, backoff="1ms")
    async def order(ctx: Context) -> list[str]:
        mine: Shop = found[0]
        before = await ctx.value("before", lambda: 1)
        texts = [await ctx.transaction("sell", mine.pool, mine.seller(), n) for n in (1, 2)]
        assert before == 1
        if ctx.attempt == 1:
            raise ValueError("again")
        return texts

    async def story(ff: Fabric, mine: Shop) -> None:
        found.append(mine)
        run = await ff.submit(order)
        assert await run.result() == ["sold 1", "sold 2"]
        assert await mine.sold() == [1, 2]
        assert await keys(ff, run) == ["before", "sell", "sell#2"]
        first, second = (await journal(ff, run))[1:]
        assert (first.value, first.tries, first.attempt_index) == (b'"sold 1"', 1, 0)
        assert second.recorded_at >= first.recorded_at

    traded(ff, kind, postgres_url, story)


@pytest.mark.parametrize("kind", ["asyncpg", *BLOCKING])
def test_a_lost_lease_takes_the_rows_back(postgres_url: str, kind: str) -> None:
    """The next owner does the step, once."""
    ff, ran, found = Fabric(postgres_url), list[int](), list[Any]()

    async def before() -> None:
        ran.append(1)
        if len(ran) == 1:
            await lose_lease(ff)

    def blocking() -> None:
        info = current_step()
        ran.append(1)
        if len(ran) == 1:
            engine = found[0]
            execution_id = info.journal.owner.claimed.execution_id
            revoked = engine.revoke_lease(execution_id=execution_id, reason="x")
            asyncio.run_coroutine_threadsafe(revoked, info.journal.owner.loop).result()

    @ff.task
    async def order(ctx: Context) -> str:
        mine: Shop = found[1]
        sell = mine.seller(before if mine.is_async else blocking)
        text: str = await ctx.step.options(transaction=mine.pool, compare="name")("sell", sell, 1)
        return text

    async def story(ff: Fabric, mine: Shop) -> None:
        found.extend((await ff.start(), mine))
        run = await ff.submit(order)
        assert await run.result() == "sold 1"
        assert ran == [1, 1]
        assert await mine.sold() == [1]
        assert await keys(ff, run) == ["sell"]

    traded(ff, kind, postgres_url, story)


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg blocking"])
def test_a_failure_takes_the_rows_back_and_is_recorded(postgres_url: str, kind: str) -> None:
    """Tries, budgets and `raises` are as of every step."""
    ff, ran, found = Fabric(postgres_url), list[int](), list[Any]()

    def fail_twice() -> None:
        ran.append(1)
        if len(ran) < 3:
            raise ConnectionError("no line")

    async def fail_twice_async() -> None:
        fail_twice()

    @ff.task
    async def order(ctx: Context) -> list[str]:
        mine: Shop = found[0]
        sell = mine.seller(fail_twice_async if mine.is_async else fail_twice)
        options: Any = {
            "transaction": mine.pool,
            "spend": {"gpt": {"tokens": 10}},
            "actual": lambda text: {"tokens": len(text)},
            "compare": "name",
        }
        before = ""
        try:
            await ctx.step.options(**options)("sell", sell, 1)
        except StepFailed as error:
            before = error.category
        text = await ctx.step.options(**options, retries=2, backoff="1ms")("sell", sell, 2)
        return [before, text]

    async def story(ff: Fabric, mine: Shop) -> None:
        await ff.create_budget("gpt", hard={"tokens": 100})
        found.append(mine)
        run = await ff.submit(order)
        assert await run.result() == ["ConnectionError", "sold 2"]
        assert await mine.sold() == [2]
        assert [each.tries for each in await journal(ff, run)] == [1, 2]
        assert await used(ff) == (6, 0)

    traded(ff, kind, postgres_url, story)


class Cut(asyncpg.Connection):  # type: ignore[misc]
    """A connection that breaks at its first commit, before it or after it."""

    way = ""

    async def execute(self, query: str, *args: Any, **more: Any) -> str:
        if Cut.way and query.startswith("COMMIT"):
            way, Cut.way = Cut.way, ""
            if way == "after":
                await super().execute(query, *args, **more)
            self.terminate()
            raise asyncpg.ConnectionDoesNotExistError(f"cut {way} the commit")
        done: str = await super().execute(query, *args, **more)
        return done


@pytest.mark.parametrize("way", ["before", "after"])
@pytest.mark.parametrize("is_other", [False, True])
def test_a_commit_of_unknown_outcome_is_looked_up(
    postgres_url: str, other_url: str, way: str, is_other: bool
) -> None:
    """7.1.16, 17: the journal or the receipt is asked before anything is repeated."""
    ff, ran, found = Fabric(postgres_url), list[int](), list[Any]()

    async def before() -> None:
        ran.append(1)
        Cut.way = way if len(ran) == 1 else ""

    @ff.task
    async def order(ctx: Context) -> list[str]:
        mine: Shop = found[0]
        options: Any = {"transaction": mine.pool, "retries": 1, "backoff": "1ms"}
        sell = mine.seller(before)
        first = await ctx.step.options(**options, compare="name")("sell", sell, 1)
        return [first, await ctx.value("after", lambda: "after")]

    async def story(ff: Fabric, mine: Shop) -> None:
        found.append(mine)
        run = await ff.submit(order)
        assert await run.result() == ["sold 1", "after"]
        assert len(ran) == (1 if way == "after" else 2)
        assert await mine.sold() == [1]
        assert await keys(ff, run) == ["sell", "after"]

    where = other_url if is_other else postgres_url
    traded(ff, "asyncpg", where, story, receipts=is_other, connection_class=Cut)


def test_other_branches_record_meanwhile(postgres_url: str) -> None:
    ff, found = Fabric(postgres_url), list[Any]()

    @ff.step
    async def note(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    @ff.task
    async def order(ctx: Context) -> int:
        mine: Shop = found[0]

        async def side(n: int) -> int:
            await note(n)
            await ctx.transaction("sell", mine.pool, mine.seller(), n)
            return await note(n)

        return sum(await ctx.gather(*map(side, range(6))))

    async def story(ff: Fabric, mine: Shop) -> None:
        found.append(mine)
        run = await ff.submit(order)
        assert await run.result() == 15
        assert await mine.sold() == list(range(6))
        assert len(await keys(ff, run)) == 18

    traded(ff, "asyncpg", postgres_url, story)


def test_a_declared_step_finds_its_pool_when_it_runs(postgres_url: str) -> None:
    """Outside of handlers it is a transaction all the same."""
    ff, pools = Fabric(postgres_url), list[Any]()

    @ff.step(transaction=later(pools), retries=1)
    async def sell(connection: Any, n: int) -> int:
        await connection.execute("INSERT INTO sold VALUES ($1)", n)
        assert current_step().key == "sell" or n == 2
        return n

    @ff.task
    async def order() -> int:
        return await sell(1)

    async def story(ff: Fabric, mine: Shop) -> None:
        pools.append(mine.pool)
        assert await (await ff.submit(order)).result() == 1
        with pytest.raises(Exception, match="no step runs here"):
            await sell(3)
        assert await mine.sold() == [1]

    traded(ff, "asyncpg", postgres_url, story)


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg blocking"])
def test_a_try_that_takes_too_long_commits_nothing(postgres_url: str, kind: str) -> None:
    """Also where its thread goes on, while the handler has gone on as well."""
    ff, found, go_on = Fabric(postgres_url), list[Any](), threading.Event()
    said = list[str]()

    async def slow() -> None:
        await asyncio.sleep(60)

    @ff.task
    async def order(ctx: Context) -> str:
        mine: Shop = found[0]
        sell = mine.seller(slow if mine.is_async else lambda: go_on.wait(60))
        options: Any = {"transaction": mine.pool, "compare": "name"}
        try:
            await ctx.step.options(**options, timeout="100ms")("sell", sell, 1)
        except StepFailed as error:
            said.append(error.category)
        go_on.set()
        await until(is_idle)
        text: str = await ctx.step.options(**options)("sell", mine.seller(), 2)
        return text

    async def is_idle() -> bool:
        mine: Shop = found[0]
        open_ones = "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        return not await mine.ask(f"{open_ones} AND datname = current_database()")

    async def story(ff: Fabric, mine: Shop) -> None:
        found.append(mine)
        try:
            assert await (await ff.submit(order)).result() == "sold 2"
        finally:
            go_on.set()
        assert (said, await mine.sold()) == (["timeout"], [2])

    traded(ff, kind, postgres_url, story)


class AsyncConnectionPool:
    """What is used of the pool of that name, which is no part of psycopg itself."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.lent = 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        self.lent += 1
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            yield connection


class ConnectionPool:
    """The same without asyncio."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.lent = 0

    @contextmanager
    def connection(self) -> Iterator[Any]:
        self.lent += 1
        with psycopg.connect(self._url) as connection:
            yield connection


AsyncConnectionPool.__module__ = ConnectionPool.__module__ = "psycopg_pool"


def test_pools_of_psycopg_are_known_by_their_names(postgres_url: str) -> None:
    ff, pools = (
        Fabric(postgres_url),
        (ConnectionPool(postgres_url), AsyncConnectionPool(postgres_url)),
    )

    def sell(connection: Any, n: int) -> int:
        connection.execute(f"INSERT INTO sold VALUES ({n})")
        return n

    async def sell_async(connection: Any, n: int) -> int:
        await connection.execute(f"INSERT INTO sold VALUES ({n})")
        return n

    @ff.task
    async def order(ctx: Context) -> list[int]:
        first = await ctx.transaction("sell", pools[0], sell, 1)
        return [first, await ctx.transaction("sell", pools[1], sell_async, 2)]

    async def story(ff: Fabric, mine: Shop) -> None:
        assert await (await ff.submit(order)).result() == [1, 2]
        assert await mine.sold() == [1, 2]
        assert [each.lent for each in pools] == [1, 1]

    for pool, function in zip(pools, (sell_async, sell), strict=True):
        with pytest.raises(InvalidInput, match="its connections"):
            ff.step(transaction=pool)(function)
    traded(ff, "asyncpg", postgres_url, story)


# --- in another database -------------------------------------------------------------------------

OTHERS = ("asyncpg", "psycopg", "sqlalchemy", *BLOCKING, "sqlite")


@pytest.mark.parametrize("kind", OTHERS)
def test_a_receipt_answers_after_a_crash_before_the_checkpoint(
    url: str, other_url: str, tmp_path: Path, kind: str
) -> None:
    """The rows are there and their entry is not: the function is not run again."""
    if not url.startswith("memory") and kind not in ("asyncpg", "sqlite"):
        pytest.skip("one store is enough for the other drivers")
    ff, ran, found = Fabric(url), list[int](), list[Any]()

    async def before() -> None:
        ran.append(1)
        await lose_lease(ff)

    def blocking() -> None:
        info = current_step()
        ran.append(1)
        execution_id = info.journal.owner.claimed.execution_id
        revoked = found[0].revoke_lease(execution_id=execution_id, reason="x")
        asyncio.run_coroutine_threadsafe(revoked, info.journal.owner.loop).result()

    @ff.task
    async def order(ctx: Context) -> str:
        mine: Shop = found[1]
        sell = mine.seller(before if mine.is_async else blocking)
        options = ctx.step.options(
            transaction=mine.pool,
            spend={"gpt": {"tokens": 10}},
            actual=lambda text: {"tokens": len(text)},
            compare="name",
        )
        text: str = await options("sell", sell, 1)
        return text

    async def story(ff: Fabric, mine: Shop) -> None:
        await ff.create_budget("gpt", hard={"tokens": 100})
        found.extend((await ff.start(), mine))
        run = await ff.submit(order)
        assert await run.result() == "sold 1"
        assert ran == [1]
        assert await mine.sold() == [1]
        ((_, step, result),) = await mine.ask("SELECT execution_id, step, result FROM ff_receipt")
        assert (step, result) == ("sell", '"sold 1"')
        assert await used(ff) == (6, 0)
        assert len(await attempts(ff, run)) >= 1

    where: str | Path = tmp_path / "shop.db" if kind == "sqlite" else other_url
    traded(ff, kind, where, story, receipts=True)


class Rivals:
    """Two functions that have written their rows; the second one ends after the first."""

    def __init__(self) -> None:
        self.count = 0
        self._both, self.first_is_done = threading.Barrier(2), threading.Event()

    def meet(self, is_first: bool) -> None:
        self._both.wait(60)
        if not is_first:
            self.first_is_done.wait(60)


@pytest.mark.parametrize("is_async", [True, False])
def test_receipt_in_a_second_database_with_two_rivals(
    url: str, other_url: str, is_async: bool
) -> None:
    """7.1.18: two workers do the step at once: one row, and both see one result."""
    ff, rivals, found = Fabric(url), Rivals(), list[Any]()

    async def sell(connection: Any, number: int) -> str:
        await found[0].run(connection, f"INSERT INTO sold VALUES ({number})")
        await asyncio.to_thread(rivals.meet, number == 1)
        return f"by {number}"

    def sell_blocking(connection: Any, number: int) -> str:
        found[0].run(connection, f"INSERT INTO sold VALUES ({number})")
        rivals.meet(number == 1)
        return f"by {number}"

    @ff.task
    async def order(ctx: Context) -> str:
        rivals.count += 1
        if rivals.count == 1:  # another worker takes it
            engine = await ff.start()
            await engine.revoke_lease(execution_id=ctx.execution_id, reason="x")
        options = ctx.step.options(transaction=found[0].pool, compare="name")
        function: Any = sell if is_async else sell_blocking
        text: str = await options("sell", function, rivals.count)
        return text

    async def story(ff: Fabric, mine: Shop) -> None:
        found.append(mine)
        async with working(ff, concurrency=1):
            run = await ff.submit(order)

            async def is_sold() -> bool:
                return await mine.sold() != []

            await until(is_sold)
            rivals.first_is_done.set()
            assert await run.result() == "by 1"
        assert rivals.count == 2
        assert await mine.sold() == [1]

    traded(ff, "asyncpg" if is_async else "psycopg blocking", other_url, story, receipts=True)


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg blocking", "sqlite"])
def test_a_database_without_the_table_is_refused_with_the_remedy(
    url: str, other_url: str, tmp_path: Path, kind: str
) -> None:
    """7.2: before the function runs. No failure is recorded: the table may be made, and it goes
    on."""
    ff, ran, found = Fabric(url), list[int](), list[Any]()

    @ff.task
    async def order(ctx: Context) -> str:
        mine: Shop = found[0]
        sell = mine.seller()
        try:
            text: str = await ctx.transaction("sell", mine.pool, sell, 1)
        except InvalidInput as error:
            ran.append(1)
            return f"{error.fields['field']}: {error.detail}"
        return text

    async def story(ff: Fabric, mine: Shop) -> None:
        found.append(mine)
        run = await ff.submit(order)
        assert "ff db sql --receipts" in await run.result()
        assert await mine.sold() == []
        assert await journal(ff, run) == ()

    where: str | Path = tmp_path / "shop.db" if kind == "sqlite" else other_url
    traded(ff, kind, where, story)


def test_a_receipt_of_other_arguments_is_not_taken(url: str, tmp_path: Path) -> None:
    """An earlier life has done it for other arguments: that must not pass for this."""
    ff, found, lives = Fabric(url), list[Any](), list[int]()

    @ff.task
    async def order(ctx: Context) -> str:
        mine: Shop = found[0]
        lives.append(1)
        number = len(lives)
        text: str = await ctx.step.options(transaction=mine.pool)("sell", mine.seller(), number)
        return text

    async def story(ff: Fabric, mine: Shop) -> None:
        found.append(mine)
        run = await ff.submit(order)
        assert await run.result() == "sold 1"
        await run.retry(fresh=True)
        with pytest.raises(RunFailed, match="other arguments"):
            await run.result()
        assert await mine.sold() == [1]
        await mine.ask("DELETE FROM ff_receipt")
        await run.retry(fresh=True)
        assert await run.result() == "sold 3"

    traded(ff, "sqlite", tmp_path / "shop.db", story, receipts=True)


def test_a_sync_handler_uses_blocking_connections(url: str, tmp_path: Path) -> None:
    ff, found, threads = Fabric(url), list[Any](), set[int]()

    def sell(connection: sqlite3.Connection, n: int) -> int:
        threads.add(threading.get_ident())
        connection.execute("INSERT INTO sold VALUES (?)", (n,))
        return n

    def connect() -> sqlite3.Connection:
        connection: sqlite3.Connection = found[0].pool()
        return connection

    step = ff.step(transaction=connect)(sell)

    @ff.task(retries=1, backoff="1ms")
    def order(ctx: SyncContext) -> list[int]:
        threads.add(threading.get_ident())
        done = [step(1), ctx.transaction("other", found[0].pool, sell, 2)]
        if ctx.attempt == 1:
            threads.clear()
            raise ValueError("again")
        return done

    async def story(ff: Fabric, mine: Shop) -> None:
        found.append(mine)
        assert await (await ff.submit(order)).result() == [1, 2]
        assert await mine.sold() == [1, 2]
        assert await asyncio.to_thread(step, 3) == 3  # outside of a handler
        assert await mine.sold() == [1, 2, 3]

    traded(ff, "sqlite", tmp_path / "shop.db", story, receipts=True)


# --- wrong use -----------------------------------------------------------------------------------


def test_a_function_must_leave_the_transaction_to_the_step(url: str, tmp_path: Path) -> None:
    ff, found = Fabric(url), list[Any]()

    def commits(connection: sqlite3.Connection) -> None:
        connection.commit()

    def opened() -> sqlite3.Connection:
        connection: sqlite3.Connection = found[0].pool()
        connection.execute("BEGIN")
        return connection

    def nests(connection: sqlite3.Connection) -> None:
        ff.step(nests)(connection)

    @ff.task
    async def order(ctx: Context) -> list[str]:
        said = []
        for pool, function in (
            (found[0].pool, commits),
            (opened, commits),
            (found[0].pool, nests),
            (dict, nests),
        ):
            try:
                await ctx.transaction("bad", pool, function)
            except (StepFailed, InvalidInput) as error:
                said.append(f"{type(error).__name__} {error.detail}")
        return said

    async def story(ff: Fabric, mine: Shop) -> None:
        found.append(mine)
        said = await (await ff.submit(order)).result()
        assert "ended the transaction itself" in said[0]
        assert said[1].startswith("InvalidInput transaction: the connection has an open one")
        assert NestedStep.__name__ in said[2]
        assert said[3].startswith("InvalidInput transaction: a plain function needs a blocking")

    traded(ff, "sqlite", tmp_path / "shop.db", story, receipts=True)


def test_a_pool_of_another_loop_is_refused(postgres_url: str) -> None:
    ff, pools = Fabric(postgres_url), list[Any]()
    elsewhere = asyncio.new_event_loop()

    async def sell(connection: Any) -> None: ...

    @ff.task
    async def order(ctx: Context) -> str:
        try:
            await ctx.transaction("sell", pools[0], sell)
        except InvalidInput as error:
            return error.detail
        return ""

    async def make() -> Any:
        return await asyncpg.create_pool(postgres_url, min_size=0)

    pools.append(elsewhere.run_until_complete(make()))

    async def main(ff: Fabric) -> None:
        assert "another event loop" in await (await ff.submit(order)).result()

    try:
        worked(ff, main)
    finally:
        elsewhere.run_until_complete(pools[0].close())
        elsewhere.close()


async def _sell(connection: Any) -> None: ...


def _sell_blocking(connection: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "function", "error"),
    [
        ({"transaction": 7}, _sell, "expected an asyncpg or psycopg pool"),
        ({"transaction": sqlite3.connect(":memory:")}, _sell_blocking, "expected an asyncpg"),
        ({"transaction": dict, "once": True}, _sell, "once"),
        ({"transaction": dict, "effects": False}, _sell, "effects"),
    ],
)
def test_wrong_options_are_refused_when_decorated(
    options: dict[str, Any], function: Any, error: str
) -> None:
    """7.2."""
    ff = Fabric("memory://")
    with pytest.raises((InvalidInput, InvalidTask), match=error):
        ff.step(**options)(function)


def test_a_run_is_of_one_store(postgres_url: str) -> None:
    """What is asked of a pool is remembered for each engine by itself."""
    found = list[Any]()
    here, there = Fabric(postgres_url), Fabric("memory://")

    async def order(ctx: Context) -> str:
        mine: Shop = found[0]
        text: str = await ctx.transaction("sell", mine.pool, mine.seller(), 1)
        return text

    for ff in (here, there):
        ff.task(order)

    async def story(ff: Fabric, mine: Shop) -> None:
        found.append(mine)
        run: Run[Any] = await here.submit("order")
        assert await run.result() == "sold 1"
        async with there, working(there):
            other: Run[Any] = await there.submit("order")
            with pytest.raises(RunFailed, match="ff_receipt"):
                await within(other.result())
        assert await mine.sold() == [1]

    traded(here, "asyncpg", postgres_url, story)
