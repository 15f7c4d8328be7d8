"""The Postgres store: asyncpg, READ COMMITTED, row locks in one order, the database's clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from flowfabric import forks
from flowfabric.clock import Clock, SystemClock, stopwatch
from flowfabric.config import EngineConfig
from flowfabric.errors import StoreUnavailable
from flowfabric.limits import CONFLICT_TRIES
from flowfabric.model.migration import MigrationStatus
from flowfabric.model.route import Route
from flowfabric.stores.base import Reader, StoreConflict, Transaction
from flowfabric.stores.migrations import all_sql, refuse_unfit, schema_version_of, status_of
from flowfabric.stores.postgres.connections import Borrowed, Connections
from flowfabric.stores.postgres.declared import declared_schema, schema_of
from flowfabric.stores.postgres.faults import DRIVER_ERRORS, fault
from flowfabric.stores.postgres.hints import CHANNEL, NOTIFY, ListenHints, payload_of
from flowfabric.stores.postgres.images import Images
from flowfabric.stores.postgres.joining import WHERE, joined
from flowfabric.stores.postgres.schema import (
    applied_migrations,
    apply_migrations,
    check_partitions,
)
from flowfabric.stores.postgres.session import Session, check_url
from flowfabric.stores.postgres.transaction import MustHold, PostgresTransaction
from flowfabric.stores.postgres.upkeep import server_facts, server_upkeep
from flowfabric.stores.postgres.view import PostgresView
from flowfabric.stores.routebook import EMPTY_BOOK
from flowfabric.stores.schema import differences

T = TypeVar("T")

HOLD_S = 0.1  # how long locks are taken from the start after an attempt without them failed


class PostgresStore:
    """PostgreSQL 14 to 18, alone or behind PgBouncer (then with statement_cache_size=0).

    `pool`: an asyncpg pool of the program's own, for all but the listener.
    """

    family = "postgres"
    commits_at_once = True
    can_join = True

    def __init__(
        self,
        url: str,
        *,
        config: EngineConfig | None = None,
        clock: Clock | None = None,
        listens: bool = True,
        pool: Any = None,
    ) -> None:
        config = config or EngineConfig()
        self._url = check_url(url)
        self._listens = listens
        self._config = config
        self._clock = clock
        self._session = Session(config, has_pool=pool is not None)
        self.partitions = config.partitions
        self.hints = ListenHints(self._connect)
        self._pool: Connections | Borrowed | None = None
        self._borrowed: Borrowed | None = None
        self._waited: Callable[[float], None] | None = None
        if pool is not None:
            self._borrowed = Borrowed(pool, acquire_timeout_s=_patience(config))
        self._book = EMPTY_BOOK
        self._images = Images()
        # A shared connection must see every transaction begin.
        self._hold_until = float("inf") if self._session.is_shared else 0.0

    # --- life ----------------------------------------------------------------------------------

    def again(self) -> PostgresStore:
        """The same database for another event loop, with connections of its own."""
        return PostgresStore(self._url, config=self._config, clock=self._clock, listens=False)

    async def open(self, *, migrate: bool) -> None:
        """Connect and check or migrate the schema."""
        if self._borrowed is not None:
            self._borrowed.check_loop()
        try:
            async with self._looking() as connection:
                applied = await applied_migrations(connection)
            missing = refuse_unfit(self.family, applied, migrate=migrate)
            if missing:  # a role that may not change the schema can still work with it
                await self.migrate()
            async with self._looking() as connection:
                await check_partitions(connection, self.partitions)
        except BaseException:
            await self.close()
            raise
        if self._listens:
            self.hints.start()

    async def close(self) -> None:
        """Close the connections."""
        await self.hints.stop()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _connections(self) -> Connections | Borrowed:
        """Made when first needed: they belong to the event loop that runs then."""
        if self._pool is None:
            self._pool = self._borrowed or Connections(
                self._connect, self._config.pool_size, acquire_timeout_s=_patience(self._config)
            )
            self._pool.waited = self._waited
            forks.inherit(self, PostgresStore._after_fork)
        return self._pool

    def _after_fork(self) -> None:
        """In a child process: the sockets and the event loop that watches them are the parent's."""
        forks.leave_alone((self._pool, self.hints))
        self._pool = self._borrowed = None

    async def _connect(self) -> Any:
        return await self._session.connect(self._url)

    @asynccontextmanager
    async def _looking(self) -> AsyncIterator[Any]:
        """A connection for reads that are not run again: a conflict is an outage."""
        try:
            async with self._connections().one() as connection:
                yield connection
        except StoreConflict as conflict:
            raise StoreUnavailable(str(conflict)) from conflict

    # --- transactions --------------------------------------------------------------------------

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run the work with as few locks as it needs; with all of them after a conflict."""
        if stopwatch() >= self._hold_until:
            try:
                return await self._transact(work, holds=False)
            except MustHold:
                self._hold_until = stopwatch() + HOLD_S
        return await self._transact(work, holds=True)

    async def _transact(self, work: Callable[[Transaction], Awaitable[T]], *, holds: bool) -> T:
        """Run the work, then commit. Only a commit with a lost reply has an unknown outcome."""
        async with self._connections().one() as connection:
            view = PostgresTransaction(
                connection, self._clock, self._book, self._images, self._session.begin
            )
            try:
                if holds:
                    await view.begin()
                result = await work(view)
                await _commit(view, connection)
            except BaseException:
                if view.is_open:
                    await _roll_back(connection)
                raise
        if view.book is not EMPTY_BOOK:
            self._book = view.book
        return result

    async def join(
        self, connection: Any, work: Callable[[Transaction], Awaitable[tuple[T, Mapping[str, int]]]]
    ) -> T:
        """Work inside the caller's open transaction; the caller commits or rolls back.

        The server publishes the topics of the work at the commit, to this process as well.
        """
        async with joined(connection) as mine:
            result, topics = await work(PostgresView(mine, self._clock, self._book))
            if topics:
                await mine.fetch(NOTIFY, CHANNEL, payload_of(topics, origin=""))
        return result

    async def shares(self, connection: Any) -> bool:
        """Whether both sides name the same server, database and table. A restart in between looks
        like another server, so a difference is looked at twice."""
        async with joined(connection) as mine:
            for _ in range(2):
                theirs = [tuple(row) for row in await mine.fetch(WHERE)]
                async with self._connections().one() as own:
                    if theirs == [tuple(row) for row in await own.fetch(WHERE)]:
                        return True
        return False

    async def read(self, work: Callable[[Reader], Awaitable[T]]) -> T:
        """Reads on a pooled connection; each statement sees the committed state. A conflict is
        raised as one: the engine reads again."""
        async with self._connections().one() as connection:
            return await work(PostgresView(connection, self._clock, self._book))

    async def intern_routes(self, routes: Sequence[Route]) -> None:
        """Register routes and lanes, in a transaction of its own."""
        lanes = [route.lane_id for route in routes]
        columns = (
            [route.namespace for route in routes],
            lanes,
            [route.execution_kind for route in routes],
            [",".join(route.required_capabilities) for route in routes],
        )

        async def work(tx: Any) -> None:
            await tx.catalog()  # also reads the clock
            await tx.run("insert_lanes", lanes, tx.now)
            await tx.run("insert_routes", *columns)
            await tx.run("bump_catalog")

        await self.transact(work)

    # --- schema --------------------------------------------------------------------------------

    @property
    def schema_version(self) -> int:
        """The last migration."""
        return schema_version_of(self.family)

    async def migration_status(self) -> list[MigrationStatus]:
        """Every known migration and whether it is applied."""
        async with self._looking() as connection:
            return status_of(self.family, await applied_migrations(connection))

    async def migrate(self) -> list[str]:
        """Apply missing migrations, under a lock that every process takes."""
        tries = CONFLICT_TRIES
        while True:
            try:
                return await self._migrate()
            except StoreConflict as conflict:
                tries -= 1
                if not tries:
                    detail = f"the tables are too busy to migrate them ({conflict})"
                    raise StoreUnavailable(detail) from conflict

    async def _migrate(self) -> list[str]:
        now = (self._clock or SystemClock()).now_ms()
        async with self._connections().one() as connection, connection.transaction():
            return await apply_migrations(
                connection,
                now,
                partitions=self.partitions,
                lock_timeout_ms=self._config.lock_timeout_ms,
            )

    def migration_sql(self) -> str:
        """The schema as text."""
        return all_sql(self.family)

    # --- audits --------------------------------------------------------------------------------

    async def facts(self) -> dict[str, Any]:
        """Facts about the server for doctor."""
        async with self._looking() as connection:
            return await server_facts(connection)

    async def schema_differences(self) -> list[tuple[str, str]]:
        """Differences between the database's schema and the one the migrations make."""
        async with self._looking() as connection:
            return differences(declared_schema(), await schema_of(connection))

    def measure(self, waited: Callable[[float], None]) -> None:
        """For the pool there is, and one that is made later."""
        self._waited = waited
        if self._pool is not None:
            self._pool.waited = waited

    async def upkeep(self) -> list[tuple[str, str, str]]:
        """Dead rows, long transactions, bloated indexes."""
        async with self._looking() as connection:
            return await server_upkeep(connection)

    async def dump(self) -> dict[str, list[Any]]:
        """Everything stored, in a comparable order."""
        async with self._looking() as connection, connection.transaction():
            return await PostgresView(connection, self._clock, EMPTY_BOOK).dump()


def _patience(config: EngineConfig) -> float:
    return config.acquire_timeout_ms / 1000


async def _commit(view: PostgresTransaction, connection: Any) -> None:
    try:
        await view.commit()
    except DRIVER_ERRORS as error:
        raise fault(error, is_closed=connection.is_closed(), is_committing=True) from error


async def _roll_back(connection: Any) -> None:
    """Leave no open transaction behind; a connection that does not answer is dropped."""
    try:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
    except DRIVER_ERRORS:
        connection.terminate()
