"""Where the benchmarks of the tests run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowfabric.bench.databases import Databases, Server, open_databases
from tests.support.databases import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Databases]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        yield Server(server.uri)
    else:
        with open_databases("sqlite", f"sqlite:///{tmp_path / 'mine.db'}") as found:
            yield found
