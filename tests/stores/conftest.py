"""Empty stores, for tests that migrate them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.databases import PostgresServer
from tests.support.lab import STORES


@pytest.fixture(params=STORES)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        with server.empty_database() as url:
            yield url
    else:
        yield "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'new.db'}"
