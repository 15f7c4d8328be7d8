"""Every trouble of the server is one of our errors, and says whether to wait, repeat or mend.

A trigger raises whatever SQLSTATE a row of the table names: at the statement, or at the commit.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import (
    ContentionError,
    FlowFabricError,
    InvalidInput,
    OutcomeUnknown,
    RetryExhausted,
    StoreError,
    StoreUnavailable,
)
from flowfabric.model.route import Route
from flowfabric.stores.postgres import session
from flowfabric.stores.postgres.faults import SQLSTATES, Meaning, meaning_of
from tests.support.databases import PostgresServer

QUIET = EngineConfig(loops=False)
# What each row promises: by the statement, by the commit.
PROMISES = {
    Meaning.CONFLICT: (RetryExhausted, RetryExhausted),
    Meaning.OUTAGE: (StoreUnavailable, StoreUnavailable),
    Meaning.LOST: (StoreUnavailable, OutcomeUnknown),
    Meaning.BUG: (StoreError, StoreError),
}
MEANINGS = {
    "08000": Meaning.LOST,
    "08003": Meaning.LOST,
    "08006": Meaning.LOST,
    "08P01": Meaning.LOST,
    "0A000": Meaning.BUG,
    "22003": Meaning.BUG,
    "23502": Meaning.BUG,
    "23505": Meaning.CONFLICT,
    "23514": Meaning.BUG,
    "25001": Meaning.BUG,
    "25006": Meaning.OUTAGE,
    "25P02": Meaning.BUG,
    "25P03": Meaning.LOST,
    "25P04": Meaning.LOST,
    "28P01": Meaning.BUG,
    "3D000": Meaning.BUG,
    "40000": Meaning.CONFLICT,
    "40001": Meaning.CONFLICT,
    "40002": Meaning.CONFLICT,
    "40003": Meaning.LOST,
    "40P01": Meaning.CONFLICT,
    "42501": Meaning.BUG,
    "42P01": Meaning.BUG,
    "53000": Meaning.OUTAGE,
    "53100": Meaning.OUTAGE,
    "53200": Meaning.OUTAGE,
    "53300": Meaning.OUTAGE,
    "53400": Meaning.OUTAGE,
    "55000": Meaning.OUTAGE,
    "55006": Meaning.OUTAGE,
    "55P02": Meaning.BUG,
    "55P03": Meaning.CONFLICT,
    "55P04": Meaning.BUG,
    "57000": Meaning.LOST,
    "57014": Meaning.LOST,
    "57P01": Meaning.LOST,
    "57P02": Meaning.LOST,
    "57P03": Meaning.LOST,
    "57P04": Meaning.LOST,
    "57P05": Meaning.LOST,
    "58000": Meaning.OUTAGE,
    "58030": Meaning.OUTAGE,
    "58P01": Meaning.OUTAGE,
    "72000": Meaning.CONFLICT,
    "P0001": Meaning.BUG,
    "XX000": Meaning.BUG,
    "XX001": Meaning.BUG,
    "ZZ999": Meaning.BUG,  # a code that no driver knows
}


async def raise_at(connection: Any, code: str, *, at_commit: bool) -> None:
    """From now on the server answers a new execution with this SQLSTATE."""
    await connection.execute(
        "CREATE OR REPLACE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"RAISE EXCEPTION 'trouble' USING ERRCODE = '{code}'; END $$"
    )
    how = "CONSTRAINT TRIGGER" if at_commit else "TRIGGER"
    when = "DEFERRABLE INITIALLY DEFERRED" if at_commit else ""
    await connection.execute(
        f"CREATE {how} trouble AFTER INSERT ON ff_exec_core {when} "
        "FOR EACH ROW EXECUTE FUNCTION trouble()"
    )


@asynccontextmanager
async def at_the_side(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def test_every_row_of_the_table_is_promised_here() -> None:
    classes = {code[:2] for code in MEANINGS} | MEANINGS.keys()
    assert set(SQLSTATES) <= classes


@pytest.mark.parametrize("at_commit", [False, True], ids=["statement", "commit"])
def test_each_sqlstate_gets_the_meaning_of_its_row(postgres_url: str, at_commit: bool) -> None:
    """All rows on one engine: none of them may spoil the connection for the next."""

    async def story() -> None:
        # Alone, a create is one statement, which is its commit as well; so it gets a transaction.
        config = QUIET if at_commit else EngineConfig(loops=False, statement_cache_size=0)
        async with at_the_side(postgres_url) as side, open_engine(postgres_url, config=config) as e:
            await e.create_execution(execution_kind="k")  # the route is known from here on
            for code, meaning in MEANINGS.items():
                await raise_at(side, code, at_commit=at_commit)
                with pytest.raises(FlowFabricError) as caught:
                    await e.create_execution(execution_kind="k")
                await side.execute("DROP TRIGGER trouble ON ff_exec_core")
                assert type(caught.value) is PROMISES[meaning][at_commit], code
            assert len((await e.dump())["executions"]) == 1
            await e.create_execution(execution_kind="k")
            await side.execute("DROP FUNCTION trouble")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("error", "is_closed", "meaning"),
    [
        (ConnectionRefusedError(), False, Meaning.LOST),
        (TimeoutError(), False, Meaning.LOST),
        (ssl.SSLCertVerificationError("self-signed"), False, Meaning.BUG),
        (asyncpg.ConnectionDoesNotExistError("closed in the middle"), False, Meaning.LOST),
        (asyncpg.InternalClientError("unexpected state"), False, Meaning.LOST),
        (asyncpg.ProtocolError("unexpected message"), False, Meaning.LOST),
        (asyncpg.TargetServerAttributeNotMatched("standby"), False, Meaning.LOST),
        (asyncpg.OutdatedSchemaCacheError("old"), False, Meaning.CONFLICT),
        (asyncpg.InvalidCachedStatementError("old plan"), False, Meaning.CONFLICT),
        (asyncpg.FeatureNotSupportedError("no such thing"), False, Meaning.BUG),
        (asyncpg.InterfaceError("the connection is closed"), True, Meaning.LOST),
        (asyncpg.InterfaceError("another operation is in progress"), False, Meaning.BUG),
        (asyncpg.DataError("invalid input for query argument $1"), False, Meaning.BUG),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_of_the_driver_itself_is_judged_too(
    error: Exception, is_closed: bool, meaning: Meaning
) -> None:
    assert meaning_of(error, is_closed=is_closed) is meaning


def test_an_error_text_never_quotes_a_row(postgres_url: str) -> None:
    """The server's DETAIL of a failed check is the whole row, payload and all."""

    async def story() -> None:
        async with at_the_side(postgres_url) as side, open_engine(postgres_url, config=QUIET) as e:
            await side.execute(
                "ALTER TABLE ff_exec_body ADD CONSTRAINT none CHECK (payload IS NULL) NOT VALID"
            )
            try:
                with pytest.raises(StoreError) as caught:
                    await e.create_execution(execution_kind="k", input_payload=b'"canary"')
                assert "CheckViolationError" in str(caught.value)
                assert b"canary".hex() not in str(caught.value)
            finally:
                await side.execute("ALTER TABLE ff_exec_body DROP CONSTRAINT none")

    asyncio.run(story())


# --- doors ----------------------------------------------------------------------------------------

Door = Callable[[Engine], Awaitable[Any]]


async def _migrate(engine: Engine) -> None:
    await engine.store.migrate()


DOORS: dict[str, Door] = {
    "transact": lambda engine: engine.create_execution(execution_kind="k"),
    "create_many": lambda engine: engine.create_executions([NewExecution(execution_kind="k")]),
    "read": lambda engine: engine.server_time_ms(),
    "list": lambda engine: engine.list_executions(),
    "intern": lambda engine: engine.store.intern_routes([Route("n", "l", "k", ())]),
    "facts": lambda engine: engine.store.facts(),
    "dump": lambda engine: engine.dump(),
    "status": lambda engine: engine.store.migration_status(),
    "schema": lambda engine: engine.store.schema_differences(),
    "upkeep": lambda engine: engine.store.upkeep(),
    "migrate": _migrate,
}
CUT_OFF = (
    "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
)


@pytest.mark.parametrize("door", DOORS)
def test_a_cut_connection_is_an_outage_at_every_door(postgres_url: str, door: str) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=QUIET) as e:
            await e.create_execution(execution_kind="k")
            with psycopg.connect(postgres_url) as blocking:  # the event loop cannot notice it
                blocking.execute(CUT_OFF)
            with pytest.raises(StoreUnavailable):
                await DOORS[door](e)
            await DOORS[door](e)

    asyncio.run(story())


@pytest.mark.parametrize("door", DOORS)
def test_a_full_server_is_an_outage_at_every_door(
    postgres: PostgresServer, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The next try would come after the connection timeout, so the first refusal counts.
    monkeypatch.setattr(session, "NOT_READY_PAUSE_S", 1_000)

    async def story(url: str) -> None:
        name = urlsplit(url).path[1:]
        async with at_the_side(postgres.uri) as side, open_engine(url, config=QUIET) as e:
            await side.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await side.execute(CUT_OFF.replace("current_database()", f"'{name}'"))
            try:
                for _ in range(3):
                    with pytest.raises(StoreUnavailable):
                        await DOORS[door](e)
            finally:
                await side.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await DOORS[door](e)

    with postgres.database() as url:
        asyncio.run(story(url))


def test_a_read_only_server_is_waited_for(postgres: PostgresServer) -> None:
    async def story(url: str) -> None:
        name = urlsplit(url).path[1:]
        async with at_the_side(postgres.uri) as side:
            await side.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            try:
                async with open_engine(url, config=QUIET) as engine:
                    with pytest.raises(StoreUnavailable, match="read-only"):
                        await engine.create_execution(execution_kind="k")
                    assert await engine.server_time_ms() > 0
            finally:
                await side.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")

    with postgres.database() as url:
        asyncio.run(open_once(url))
        asyncio.run(story(url))


async def open_once(url: str) -> None:
    """The first start writes a signing key."""
    async with open_engine(url, config=QUIET):
        pass


@pytest.mark.parametrize("door", ["transact", "create_many", "intern"])
def test_a_statement_over_its_time_is_no_failure_of_the_request(
    postgres_url: str, door: str
) -> None:
    async def story() -> None:
        short = EngineConfig(loops=False, statement_timeout_ms=1_000)
        async with (
            at_the_side(postgres_url) as side,
            open_engine(postgres_url, config=short) as engine,
        ):
            await DOORS[door](engine)
            async with side.transaction():
                await side.execute("LOCK TABLE ff_route, ff_exec_core")
                with pytest.raises((StoreUnavailable, OutcomeUnknown)):
                    await DOORS[door](engine)
            await DOORS[door](engine)

    asyncio.run(story())


def test_a_lock_that_is_not_had_in_time_is_a_conflict(postgres_url: str) -> None:
    async def story() -> None:
        short = EngineConfig(loops=False, lock_timeout_ms=50)
        async with (
            at_the_side(postgres_url) as side,
            open_engine(postgres_url, config=short) as engine,
        ):
            await engine.create_execution(execution_kind="k")
            async with side.transaction():
                await side.execute("LOCK TABLE ff_exec_core")
                with pytest.raises(RetryExhausted, match="LockNotAvailable"):
                    await engine.create_execution(execution_kind="k")

    asyncio.run(story())


def test_a_caller_waits_for_a_free_connection_only_so_long(postgres_url: str) -> None:
    async def story() -> None:
        config = EngineConfig(loops=False, pool_size=2, acquire_timeout_ms=100)
        async with open_engine(postgres_url, config=config) as engine:
            connections = engine.store._connections()  # type: ignore[attr-defined]
            async with connections.one(), connections.one():
                with pytest.raises(StoreUnavailable, match="acquire_timeout_ms"):
                    await engine.server_time_ms()
            assert await engine.server_time_ms() > 0

    asyncio.run(story())


def test_a_submit_in_the_callers_transaction_tells_its_troubles_as_ours(postgres_url: str) -> None:
    async def story() -> None:
        async with at_the_side(postgres_url) as side, open_engine(postgres_url, config=QUIET) as e:
            requests = [NewExecution(execution_kind="k")]
            for code, meaning in MEANINGS.items():
                await raise_at(side, code, at_commit=False)
                async with at_the_side(postgres_url) as mine, mine.transaction():
                    with pytest.raises(FlowFabricError) as caught:
                        await e.create_executions_in(mine, requests)
                    await mine.execute("SELECT 1")  # the savepoint keeps it usable
                await side.execute("DROP TRIGGER trouble ON ff_exec_core")
                expected = ContentionError if meaning is Meaning.CONFLICT else PROMISES[meaning][0]
                if code in ("25P02", "42P01"):  # aborted, and no such table: the caller's mistakes
                    expected = InvalidInput
                assert type(caught.value) is expected, code
            await side.execute("DROP FUNCTION trouble")

    asyncio.run(story())


def test_a_read_that_meets_a_lock_for_a_moment_is_read_again(postgres_url: str) -> None:
    """A migration of another process locks a table: longer than one try waits, not than all."""
    config = EngineConfig(loops=False, lock_timeout_ms=200)

    async def story() -> None:
        async with (
            at_the_side(postgres_url) as rival,
            open_engine(postgres_url, config=config) as engine,
        ):
            made = await engine.create_execution(execution_kind="k")
            async with rival.transaction():
                await rival.execute("LOCK TABLE ff_exec_core")
                reading = asyncio.create_task(
                    engine.describe_execution(execution_id=made.execution_id)
                )
                await asyncio.sleep(0.4)
            assert await reading is not None

    asyncio.run(story())
