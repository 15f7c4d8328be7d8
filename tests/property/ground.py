"""Databases that are emptied between histories, because making one costs more than a history."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import asyncpg

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from tests.support.databases import PostgresServer
from tests.support.kept import Keeper
from tests.support.runner import StepRunner

if TYPE_CHECKING:
    import pytest

_KEPT = ("ff_migration_annotation", "ff_partition_config", "ff_state")  # parts of the schema
_NEW_CATALOG = "UPDATE ff_partition_config SET catalog_version = catalog_version + 1"


class Ground(Protocol):
    """A store's place, empty again whenever asked."""

    url: str

    def clear(self) -> None:
        """Forget everything but the schema."""
        ...


class MemoryGround:
    url = "memory://"

    def clear(self) -> None:
        """Every engine brings its own store."""


class SqliteGround:
    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    def clear(self) -> None:
        with closing(sqlite3.connect(self._path)) as connection:
            found = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'ff_*'"
            ).fetchall()
            for (name,) in found:
                if name not in _KEPT:
                    connection.execute(f"DELETE FROM {name}")
            connection.execute(_NEW_CATALOG)
            connection.commit()


class PostgresGround:
    def __init__(self, url: str, runner: StepRunner) -> None:
        self.url = url
        self._runner = runner
        self._connection: Any = runner.run(asyncpg.connect(url))
        rows = runner.run(
            self._connection.fetch(
                "SELECT tablename FROM pg_tables WHERE tablename LIKE 'ff!_%' ESCAPE '!'"
            )
        )
        self._tables = sorted({row[0] for row in rows} - set(_KEPT))

    def clear(self) -> None:
        deletes = "; ".join(f"DELETE FROM {name}" for name in self._tables)
        self._runner.run(self._connection.execute(f"{deletes}; {_NEW_CATALOG}"))

    def close(self) -> None:
        self._runner.run(self._connection.close())


@contextmanager
def ground_for(
    store: str, directory: Path, request: pytest.FixtureRequest, runner: StepRunner
) -> Iterator[Ground]:
    """An empty, migrated place for one kind of store."""
    if store == "memory":
        yield MemoryGround()
    elif store == "sqlite":
        sqlite_ground = SqliteGround(directory / "ground.db")
        runner.run(_migrate(sqlite_ground.url))
        yield sqlite_ground
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        keeper = Keeper(runner)
        with (
            server.database() as url,
            closing(keeper),
            keeper.at_work(),
            closing(PostgresGround(url, runner)) as postgres_ground,
        ):
            yield postgres_ground


async def _migrate(url: str) -> None:
    engine = open_engine(url, config=EngineConfig(loops=False))
    await engine.start(migrate=True)
    await engine.close()
