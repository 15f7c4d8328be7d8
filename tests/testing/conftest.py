"""A test fabric on each store, in the loop of the test."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from flowfabric import Fabric
from flowfabric.testing import TestFabric, run
from tests.support.databases import PostgresServer
from tests.support.lab import STORES

Scenario = Callable[[TestFabric], Coroutine[Any, Any, None]]
Play = Callable[..., None]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """What `TestFabric` takes for each store."""
    if request.param != "postgres":
        yield request.param
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.lab_database() as url:
        yield url


@pytest.fixture
def play(store: str) -> Play:
    """Run a scenario on a store."""

    def played(scenario: Scenario, app: Fabric | None = None, **options: Any) -> None:
        async def main() -> None:
            async with TestFabric(app, store=store, **options) as fabric:
                await scenario(fabric)

        run(main())

    return played
