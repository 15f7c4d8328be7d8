"""The SQLite store: one writer thread, readers beside it, WAL, several processes on one file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from typing import Any, TypeVar

from flowfabric import forks
from flowfabric.clock import Clock
from flowfabric.config import EngineConfig
from flowfabric.errors import ConfigurationMismatch, InvalidInput, StoreUnavailable
from flowfabric.model.migration import MigrationStatus
from flowfabric.model.route import LaneState, Route
from flowfabric.stores.base import Reader, StoreConflict, Transaction, refuse_join
from flowfabric.stores.drive import drive
from flowfabric.stores.migrations import (
    Applied,
    all_sql,
    migrations_of,
    refuse_unfit,
    schema_version_of,
    status_of,
)
from flowfabric.stores.routebook import EMPTY_BOOK, RouteBook
from flowfabric.stores.schema import differences
from flowfabric.stores.sqlite.clock import StoreClock
from flowfabric.stores.sqlite.connection import WorkThread, in_transaction
from flowfabric.stores.sqlite.declared import ANNOTATION_TABLE, declared_schema, schema_of
from flowfabric.stores.sqlite.hints import SocketHints
from flowfabric.stores.sqlite.images import Images, SqliteTransaction
from flowfabric.stores.sqlite.place import Place
from flowfabric.stores.sqlite.upkeep import file_facts, file_upkeep
from flowfabric.stores.sqlite.view import SQL, SqliteView

T = TypeVar("T")

READERS = 2


class SqliteStore:
    """One file; a supported production target for one machine."""

    family = "sqlite"
    commits_at_once = False  # the file has one writer
    can_join = False

    def __init__(
        self,
        path: str,
        *,
        config: EngineConfig | None = None,
        clock: Clock | None = None,
        listens: bool = True,
    ) -> None:
        config = config or EngineConfig()
        if path == ":memory:":
            raise InvalidInput("url: SQLite needs a file; without one use memory://", field="url")
        self._place = Place(path)
        self._config = config
        self._listens = listens
        self.partitions = config.partitions
        self.hints = SocketHints(self._place.path)
        self._given_clock = clock
        self._clock = StoreClock(clock)
        self._synchronous = config.synchronous
        self._writer: WorkThread | None = None
        self._readers: list[WorkThread] = []
        self._turns = cycle(range(READERS))
        self._book = EMPTY_BOOK
        self._images = Images()

    # --- life ----------------------------------------------------------------------------------

    def again(self) -> SqliteStore:
        """The same file for another event loop, with connections of its own."""
        config, clock = self._config, self._given_clock
        twin = SqliteStore(self._place.path, config=config, clock=clock, listens=False)
        twin._place = self._place.again()  # it may be opened long after this store was
        return twin

    async def open(self, *, migrate: bool) -> None:
        """Start the threads and check or migrate the schema."""
        self._start()
        try:
            applied = await self._write_once(_applied)
            if refuse_unfit(self.family, applied, migrate=migrate):
                await self.migrate()
            stored = await self._write_once(_stored_partitions)
            if stored != self.partitions:
                raise ConfigurationMismatch(
                    f"the database was made with {stored} partitions, the configuration says "
                    f"{self.partitions}: set partitions={stored}"
                )
            await self._write_once(self._open_clock)
        except BaseException:
            await self.close()
            raise
        if self._listens:
            self.hints.start()

    def _open_clock(self, connection: sqlite3.Connection) -> None:
        if not self._clock.find(connection):
            in_transaction(connection, self._place, lambda: self._clock.draw(connection))

    def _start(self) -> None:
        if self._writer is None:
            make = {"synchronous": self._synchronous}
            self._writer = WorkThread(self._place, name="flowfabric-writer", **make)
            self._readers = [
                WorkThread(self._place, name=f"flowfabric-reader-{number}", **make)
                for number in range(READERS)
            ]
            forks.inherit(self, SqliteStore._after_fork)

    async def close(self) -> None:
        """End the threads."""
        self.hints.stop()
        threads = [*self._readers, *([self._writer] if self._writer else [])]
        self._writer, self._readers = None, []
        await asyncio.gather(*(thread.close() for thread in threads))
        self._place.forget()
        forks.disinherit(self)

    def _after_fork(self) -> None:
        """In a child process: the threads do not exist there, and the socket is the parent's."""
        self._writer, self._readers = None, []
        self.hints.after_fork()

    # --- transactions --------------------------------------------------------------------------

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run the whole transaction in the writer thread."""

        def job(connection: sqlite3.Connection) -> T:
            def run() -> tuple[T, RouteBook]:
                self._images.begin(connection)
                now = self._clock.now(connection)
                view = SqliteTransaction(connection, now, self._book, self._images)
                return drive(work(view)), view.book

            try:
                result, book = in_transaction(connection, self._place, run)
            except BaseException:
                self._images.forget()
                raise
            self._book = book
            return result

        return await self._write(job)

    async def join(self, connection: object, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """There is no transaction of a caller's own to join."""
        raise refuse_join(self.family)

    async def shares(self, connection: object) -> bool:
        """No connection can be joined."""
        return False

    async def read(self, work: Callable[[Reader], Awaitable[T]]) -> T:
        """Run reads in a reader thread; each statement sees the committed state."""
        self._start()

        def job(connection: sqlite3.Connection) -> T:
            self._place.check()
            return drive(work(SqliteView(connection, self._clock.now(connection), self._book)))

        return await self._once(self._readers[next(self._turns)].call(job))

    async def _write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        self._start()
        if self._writer is None:
            raise RuntimeError("the store is closed")
        return await self._writer.call(job)

    async def _write_once(self, job: Callable[[sqlite3.Connection], T]) -> T:
        def checked(connection: sqlite3.Connection) -> T:
            self._place.check()
            return job(connection)

        return await self._once(self._write(checked))

    async def _once(self, call: Awaitable[T]) -> T:
        """For work that is not run again: a lock that lasts is an outage."""
        try:
            return await call
        except StoreConflict as conflict:
            raise StoreUnavailable(f"{self._place.path} stayed locked: {conflict}") from conflict

    async def intern_routes(self, routes: Sequence[Route]) -> None:
        """Register routes and lanes."""

        def insert(connection: sqlite3.Connection) -> None:
            now = self._clock.now(connection)
            for route in routes:
                lane = (route.lane_id, LaneState.ACTIVE.value, now, now, "")
                connection.execute(SQL["insert_lane"], lane)
                needs = ",".join(route.required_capabilities)
                values = (route.namespace, route.lane_id, route.execution_kind, needs)
                connection.execute(SQL["insert_route"], values)
            connection.execute(SQL["bump_catalog"])

        def job(connection: sqlite3.Connection) -> None:
            in_transaction(connection, self._place, lambda: insert(connection))

        await self._write(job)

    # --- schema --------------------------------------------------------------------------------

    @property
    def schema_version(self) -> int:
        """The last migration."""
        return schema_version_of(self.family)

    async def migration_status(self) -> list[MigrationStatus]:
        """Every known migration and whether it is applied."""
        return status_of(self.family, await self._write_once(_applied))

    async def migrate(self) -> list[str]:
        """Apply missing migrations, each file in one transaction."""
        now, partitions = self._clock.now_ms(), self.partitions

        def job(connection: sqlite3.Connection) -> list[str]:
            # Under the write lock, so that two processes starting at once do not collide.
            return in_transaction(
                connection, self._place, lambda: _migrate(connection, now, partitions)
            )

        return await self._write_once(job)

    def migration_sql(self) -> str:
        """The schema as text."""
        return all_sql(self.family)

    # --- audits --------------------------------------------------------------------------------

    async def facts(self) -> dict[str, Any]:
        """Facts about the file for doctor."""

        def job(connection: sqlite3.Connection) -> dict[str, Any]:
            return {
                "path": self._place.path,
                **file_facts(connection, self._place.path),
                "journal_mode": connection.execute("PRAGMA journal_mode").fetchone()[0],
                "synchronous": self._synchronous,
                "sqlite": sqlite3.sqlite_version,
                **self._clock.facts(),
            }

        return await self._write_once(job)

    async def schema_differences(self) -> list[tuple[str, str]]:
        """Differences between the file's schema and the one the migrations make."""
        real = await self._write_once(schema_of)
        return differences(declared_schema(), real)

    def measure(self, waited: Callable[[float], None]) -> None:
        """There is no pool: one thread writes."""

    async def upkeep(self) -> list[tuple[str, str, str]]:
        """Warnings: free space to give back, a log that cannot be shortened, clocks that differ."""
        found = await self._write_once(lambda connection: file_upkeep(connection, self._place.path))
        return [*found, *self._clock.upkeep()]

    async def dump(self) -> dict[str, list[Any]]:
        """Everything stored, in a comparable order."""

        def job(connection: sqlite3.Connection) -> dict[str, list[Any]]:
            return drive(SqliteView(connection, self._clock.now_ms(), EMPTY_BOOK).dump())

        return await self._write_once(job)


def _applied(connection: sqlite3.Connection) -> dict[int, Applied]:
    exists = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE name = 'ff_migration_annotation'"
    ).fetchone()
    if not exists:
        return {}
    rows = connection.execute("SELECT version, checksum, applied_at FROM ff_migration_annotation")
    return {row[0]: Applied(row[1], row[2]) for row in rows.fetchall()}


def _stored_partitions(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT num_flow_partitions FROM ff_partition_config").fetchone()
    return int(row[0])


def _migrate(connection: sqlite3.Connection, now: int, partitions: int) -> list[str]:
    done: list[str] = []
    connection.execute(ANNOTATION_TABLE)
    applied = _applied(connection)
    for migration in migrations_of("sqlite"):
        if migration.version in applied:
            continue
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO ff_migration_annotation VALUES (?, ?, ?, ?)",
            (migration.version, migration.name, migration.checksum, now),
        )
        done.append(f"{migration.version:04d}_{migration.name}")
    connection.execute(
        "INSERT INTO ff_partition_config (singleton, num_flow_partitions) VALUES (1, ?) "
        "ON CONFLICT DO NOTHING",
        (partitions,),
    )
    return done


def _statements(script: str) -> list[str]:
    """Split a script where SQLite itself sees a complete statement."""
    found, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return [*found, current] if current.strip() else found  # a comment may follow the last one
