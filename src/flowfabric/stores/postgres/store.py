"""The Postgres store: asyncpg, READ COMMITTED, row locks in one order, the database's clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from flowfabric.clock import Clock, SystemClock, monotonic
from flowfabric.config import EngineConfig
from flowfabric.errors import (
    ContentionError,
    FlowFabricError,
    InvalidInput,
    OutcomeUnknown,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
)
from flowfabric.model.route import Route
from flowfabric.stores.base import MigrationStatus, Reader, StoreConflict, Transaction
from flowfabric.stores.codec import capabilities_text
from flowfabric.stores.migrations import Applied, all_sql, migrations_of, refuse_unfit, status_of
from flowfabric.stores.postgres.connections import Connections
from flowfabric.stores.postgres.hints import ListenHints
from flowfabric.stores.postgres.transaction import MustHold, PostgresTransaction
from flowfabric.stores.postgres.view import SQL, PostgresView
from flowfabric.stores.routebook import EMPTY_BOOK
from flowfabric.stores.rows import DUMPED, dump_of

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 60.0
HOLD_S = 0.1  # how long locks are taken from the start after doing without was in vain
MIGRATION_LOCK = 0x46_46_4D_49  # "FFMI"
_CONFLICTS = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.UniqueViolationError,
)
_OUTAGES = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the protocol met an end it did not expect: the server died
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
)
# Every hot statement reads by key or along an index. Before a new table has statistics the planner
# may prefer to collect and sort all that waits, or keep a plan that reads a whole table because it
# was small once; these say that it must not. What has no index is still read as a whole.
PLANNER = {"enable_bitmapscan": "off", "enable_sort": "off", "enable_seqscan": "off"}
_ANNOTATION_TABLE = (
    "CREATE TABLE IF NOT EXISTS ff_migration_annotation (version INTEGER PRIMARY KEY, "
    "name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)"
)


class PostgresStore:
    """PostgreSQL 14 to 18, alone or behind PgBouncer (then with statement_cache_size=0)."""

    family = "postgres"

    def __init__(
        self,
        url: str,
        *,
        config: EngineConfig | None = None,
        clock: Clock | None = None,
        listens: bool = True,
    ) -> None:
        config = config or EngineConfig()
        self._url = url
        self._listens = listens
        self._config = config
        self._clock = clock
        self.partitions = config.partitions
        self.hints = ListenHints(url, statement_cache_size=config.statement_cache_size)
        self._pool: Connections | None = None
        self._book = EMPTY_BOOK
        # A pooler that shares connections between statements must see every transaction begin.
        self._hold_until = 0.0 if config.statement_cache_size else float("inf")

    # --- life ----------------------------------------------------------------------------------

    def again(self) -> PostgresStore:
        """The same database for another event loop, with connections of its own."""
        return PostgresStore(self._url, config=self._config, clock=self._clock, listens=False)

    async def open(self, *, migrate: bool) -> None:
        """Connect and check or bring up the schema."""
        try:
            async with self._connections().one() as connection:
                missing = refuse_unfit(self.family, await _applied(connection), migrate=migrate)
            if missing:  # a role that may not change the schema can still work with it
                await self.migrate()
            async with self._connections().one() as connection:
                stored = await connection.fetchval(
                    "SELECT num_flow_partitions FROM ff_partition_config"
                )
            if stored != self.partitions:
                raise SchemaMismatch(
                    f"the database was made with {stored} partitions, the configuration says "
                    f"{self.partitions}: set partitions={stored}"
                )
        except (FlowFabricError, asyncpg.PostgresError) as error:
            await self.close()
            if isinstance(error, FlowFabricError):
                raise
            raise StoreError(f"{type(error).__name__}: {error}") from error
        except _OUTAGES as error:
            await self.close()
            raise StoreUnavailable(f"{type(error).__name__}: {error}") from error
        if self._listens:
            self.hints.start()

    async def close(self) -> None:
        """Let the connections go."""
        await self.hints.stop()
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(*_OUTAGES):
                await pool.close()

    def _connections(self) -> Connections:
        """Made when first needed: they belong to the event loop that runs then."""
        if self._pool is None:
            self._pool = Connections(self._connect, self._config.pool_size)
        return self._pool

    async def _connect(self) -> Any:
        settings = {
            "application_name": "flowfabric",
            "lock_timeout": "10s",
            "idle_in_transaction_session_timeout": "60s",
            **PLANNER,
        }
        return await asyncpg.connect(
            self._url,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S,
            statement_cache_size=self._config.statement_cache_size,
            server_settings=settings if self._config.statement_cache_size else {},
        )

    # --- transactions --------------------------------------------------------------------------

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """The work with as few locks as it needs; with all of them when rivals were met."""
        if monotonic() >= self._hold_until:
            try:
                return await self._transact(work, holds=False)
            except MustHold:
                self._hold_until = monotonic() + HOLD_S
        return await self._transact(work, holds=True)

    async def _transact(self, work: Callable[[Transaction], Awaitable[T]], *, holds: bool) -> T:
        """The work, then its commit. Only a commit whose answer is lost has an unknown outcome."""
        committing = False
        try:
            async with self._connections().one() as connection:
                view = PostgresTransaction(connection, self._clock, self._book)
                try:
                    if holds:
                        await view.begin()
                    result = await work(view)
                    committing = True
                    await view.commit()
                except BaseException:
                    if view.is_open:
                        await _roll_back(connection)
                    raise
        except _CONFLICTS as error:
            raise StoreConflict(f"{type(error).__name__}: {error}") from error
        except _OUTAGES as error:
            kind = OutcomeUnknown if committing else StoreUnavailable
            raise kind(f"{type(error).__name__}: {error}") from error
        except asyncpg.PostgresError as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error
        if view.book is not EMPTY_BOOK:
            self._book = view.book
        return result

    async def join(self, connection: Any, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Work inside the caller's open transaction; the caller commits or rolls back."""
        if not isinstance(connection, asyncpg.Connection) or not connection.is_in_transaction():
            raise InvalidInput(
                "connection: expected an asyncpg connection with an open transaction",
                field="connection",
            )
        try:
            async with connection.transaction():  # a savepoint: a refusal leaves the rest alone
                return await work(PostgresView(connection, self._clock, self._book))
        except _CONFLICTS as error:  # it cannot be run again here: the transaction is the caller's
            detail = f"roll back and run your transaction again ({type(error).__name__})"
            raise ContentionError(detail) from error

    async def read(self, work: Callable[[Reader], Awaitable[T]]) -> T:
        """Reads on a pooled connection; each statement sees what is committed."""
        try:
            async with self._connections().one() as connection:
                return await work(PostgresView(connection, self._clock, self._book))
        except _OUTAGES as error:
            raise StoreUnavailable(f"{type(error).__name__}: {error}") from error
        except asyncpg.PostgresError as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error

    async def intern_routes(self, routes: Sequence[Route]) -> None:
        """Make routes and lanes known, in a transaction of its own."""
        lanes = [route.lane_id for route in routes]
        columns = (
            [route.namespace for route in routes],
            lanes,
            [route.execution_kind for route in routes],
            [capabilities_text(route.required_capabilities) for route in routes],
        )

        async def work(tx: Any) -> None:
            await tx.catalog()  # also reads the clock
            await tx.run("insert_lanes", lanes, tx.now)
            await tx.run("insert_routes", *columns)
            await tx.run("bump_catalog")

        await self.transact(work)

    # --- schema --------------------------------------------------------------------------------

    async def migration_status(self) -> list[MigrationStatus]:
        """Every known migration and whether it is applied."""
        async with self._connections().one() as connection:
            return status_of(self.family, await _applied(connection))

    async def migrate(self) -> list[str]:
        """Apply what is missing, under a lock that every process takes."""
        now = (self._clock or SystemClock()).now_ms()
        try:
            async with self._connections().one() as connection, connection.transaction():
                return await _migrate(connection, now, self.partitions)
        except _OUTAGES as error:
            raise StoreUnavailable(f"{type(error).__name__}: {error}") from error

    def migration_sql(self) -> str:
        """The schema as text."""
        return all_sql(self.family)

    # --- audits --------------------------------------------------------------------------------

    async def facts(self) -> dict[str, Any]:
        """What doctor prints about the server."""
        async with self._connections().one() as connection:
            size = await connection.fetchval("SELECT pg_database_size(current_database())")
            settings = {
                name: await connection.fetchval(f"SHOW {name}")
                for name in ("server_version", "synchronous_commit", "fsync")
            }
        return {"bytes": size, **settings}

    async def dump(self) -> dict[str, list[Any]]:
        """Everything stored, in a comparable order."""
        async with self._connections().one() as connection, connection.transaction():
            view = PostgresView(connection, self._clock, EMPTY_BOOK)
            lanes = (await view.catalog()).lanes
            tables = {
                name: [tuple(row) for row in await connection.fetch(SQL[query])]
                for name, query in DUMPED.items()
            }
            rows = await connection.fetch(SQL["all_records"])
            records = await view.records([tuple(row) for row in rows])
            small = await view.dump_rows()
        ordered = [lanes[key] for key in sorted(lanes)]
        return {**dump_of(tables, records), "lanes": ordered, **small}


async def _roll_back(connection: Any) -> None:
    """Leave no open transaction behind; a connection that cannot answer is dropped."""
    try:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
    except (*_OUTAGES, asyncpg.PostgresError):
        connection.terminate()


async def _applied(connection: Any) -> dict[int, Applied]:
    if await connection.fetchval("SELECT to_regclass('ff_migration_annotation')") is None:
        return {}
    rows = await connection.fetch(
        "SELECT version, checksum, applied_at FROM ff_migration_annotation"
    )
    return {row[0]: Applied(row[1], row[2]) for row in rows}


async def _migrate(connection: Any, now: int, partitions: int) -> list[str]:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
    await connection.execute(_ANNOTATION_TABLE)
    applied = await _applied(connection)
    done = []
    for migration in migrations_of("postgres"):
        if migration.version in applied:
            continue
        await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO ff_migration_annotation VALUES ($1, $2, $3, $4)",
            migration.version,
            migration.name,
            migration.checksum,
            now,
        )
        done.append(f"{migration.version:04d}_{migration.name}")
    await connection.execute(
        "INSERT INTO ff_partition_config (singleton, num_flow_partitions) VALUES (1, $1) "
        "ON CONFLICT DO NOTHING",
        partitions,
    )
    return done
