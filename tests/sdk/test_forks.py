"""A fork after opening: the child opens anew, or is told to; the parent never notices."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from tests.property.budget import budget
from tests.support.databases import PostgresServer
from tests.support.lab import DURABLE_STORES

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120


@pytest.fixture(params=DURABLE_STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'forks.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as made:
        yield made


def tell(url: str, story: str) -> list[str]:
    """What the program says; whoever hangs is found here."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.sdk.fork_process", url, story],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def count(url: str) -> int:
    """How many executions are stored, in a store without a fault."""

    async def look() -> int:
        async with open_engine(url, config=EngineConfig(loops=False)) as engine:
            assert (await engine.doctor()).healthy
            counts = (await engine.count_executions()).get("default", {})
            return sum(counts.values())

    return asyncio.run(look())


def test_children_go_on_with_a_fabric_that_their_parent_has_used(url: str) -> None:
    assert tell(url, "use_sync") == ["child 0"] * 3
    assert count(url) == 7


def test_a_child_of_a_child_does_too(url: str) -> None:
    assert tell(url, "use_a_grandchild") == ["child 0", "child 0"]
    assert count(url) == 5


def test_a_child_opens_anew_what_was_left_open_on_a_loop_that_is_over(url: str) -> None:
    assert tell(url, "use_async_after_a_loop") == ["child 0"]
    assert count(url) == 3


def test_a_child_of_a_coroutine_opens_anew(url: str) -> None:
    assert tell(url, "use_async_inside_a_loop") == ["child 0"] * 3
    assert count(url) == 6


def test_a_child_leaves_the_pool_of_the_program_to_the_parent(postgres_url: str) -> None:
    assert tell(postgres_url, "use_a_pool") == ["child 0"]
    assert count(postgres_url) == 3


def test_an_engine_says_in_a_child_that_it_is_the_parents(url: str) -> None:
    assert tell(url, "use_the_engine") == ["child 0"]
    assert count(url) == 2


def test_a_handler_may_fork_and_its_context_stays_with_the_parent(url: str) -> None:
    assert tell(url, "fork_in_a_handler") == ["ended a: 0 b: 0 c: 0"]
    assert count(url) == 6


def test_a_fork_in_the_middle_of_work_hurts_neither_side(url: str) -> None:
    # In bin/soak more often: at each fork the threads may hold another lock.
    *children, made = tell(url, "fork_while_busy")
    assert children == ["child 0"] * budget("FF_FORKS", 6)
    assert count(url) == int(made.split()[1])
