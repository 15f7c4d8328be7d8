"""Labs on PostgreSQL share connections (tests/support/kept.py): a test sees no trace of another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flowfabric.stores.postgres.store import PostgresStore
from tests.support.databases import PostgresServer
from tests.support.kept import Keeper
from tests.support.lab import Lab, scenario

BACKEND = "SELECT pg_backend_pid()"


@pytest.fixture
def keeper(postgres: PostgresServer) -> Iterator[Keeper]:
    with postgres.keeper.at_work():
        yield postgres.keeper


async def session(store: PostgresStore, *statements: str) -> Any:
    """Open a store, leave its only connection as these statements do; its process and a setting."""
    await store.open(migrate=False)
    async with store._connections().one() as connection:
        found = (await connection.fetchval(BACKEND), await connection.fetchval("SHOW work_mem"))
        for statement in statements:
            await connection.execute(statement)
    await store.close()
    return found


@pytest.mark.parametrize(
    ("statement", "is_kept"),
    [
        ("SELECT 1", True),
        ("SET work_mem = '99MB'", True),
        ("BEGIN", False),
        ("SELECT pg_terminate_backend(pg_backend_pid())", False),
    ],
)
def test_a_connection_is_used_again_as_good_as_new(
    statement: str, is_kept: bool, keeper: Keeper, postgres: PostgresServer
) -> None:
    with postgres.lab_database() as url:

        def opened(*statements: str) -> Any:
            return keeper.runner.run(session(PostgresStore(url, listens=False), *statements))

        first = opened()
        assert opened() == first
        try:
            assert opened(statement) == first
        except Exception:  # noqa: BLE001 - whatever the store says of a connection that ended
            assert "terminate" in statement
        again = opened()
        assert (again[0] == first[0]) is is_kept
        assert again[1] == first[1]


@scenario
async def test_the_dump_of_a_lab_leaves_out_no_row(lab: Lab) -> None:
    assert await lab.dump() == await lab.engine.store.dump()
    await lab.completed()
    await lab.started()
    whole = await lab.engine.store.dump()
    assert await lab.dump() == whole
    assert len(whole["executions"]) == 2
