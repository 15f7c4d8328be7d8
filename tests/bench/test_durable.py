"""Durable steps: the benchmark measures what it says, and steps share their commits."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from flowfabric.bench import durable, durable_peers
from flowfabric.bench.databases import Databases, Server
from flowfabric.engine.machine import Machine
from tests.bench.test_bench import KEYS
from tests.support.databases import PostgresServer

WORKFLOWS = 100
RATIOS = {
    "step_to_insert": ("step_us", "insert_us"),
    "replay_to_run": ("replay_ms", "run_ms"),
    "wait_warm_to_suspend": ("wait_warm_ms", "suspend_ms"),
    "wait_cold_to_suspend": ("wait_cold_ms", "suspend_ms"),
    "call_to_spawn": ("call_per_s", "spawn_per_s"),
}
KIT = ("kit_sleeps_ms", "kit_sleeps_unreplayed_ms", "kit_step_ms")
MEASURED = {"load_ms", "step_cpu_us", *KIT, *(key for pair in RATIOS.values() for key in pair)}
_UPDATES = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'ff_exec_core'"


def test_durable_steps_are_measured_and_counted(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_peers, "PEERS", {"absurd": lambda *_: 10.0, "dbos": lambda *_: "?"})
    found = durable.measure(databases, 20, rounds=1, laps=2, entries=50, families=1, tests=1)
    assert set(found.to_dict()) == KEYS
    assert found.throughput_per_s is not None
    extra = found.extra
    assert extra["reads_per_s"] > 0
    assert min(extra[key] for key in MEASURED) > 0
    for ratio, (above, below) in RATIOS.items():
        # of rounded figures
        assert extra[ratio] == pytest.approx(extra[above] / extra[below], rel=0.05, abs=0.01)
    assert extra["ratio_to_absurd"] == pytest.approx(found.throughput_per_s / 10, rel=0.01)
    assert (extra["ratio_to_dbos"], extra["notes"]) == (None, {"dbos": "?"})
    assert (extra["commits_per_workflow"] is None) == (databases.store == "sqlite")


@pytest.mark.parametrize("peer", durable_peers.PEERS)
def test_a_peer_does_the_same_work_or_says_why_not(peer: str, databases: Databases) -> None:
    with databases.empty() as url:
        found = durable_peers.PEERS[peer](url, 3, 2, 2)
    if isinstance(found, str):
        assert "installed" in found or "PostgreSQL" in found
    else:
        assert found > 0
        assert find_spec("dbos") is not None


def test_a_hundred_workflows_of_ten_steps_share_their_commits(postgres: PostgresServer) -> None:
    """At most one commit for two workflows, by the server's own counters, with everything a worker
    does beside; and the row of an execution is written no more often than without steps."""
    server = Server(postgres.uri)
    with server.empty() as url, server.empty() as plain:
        commits = asyncio.run(drained(server, url, steps=durable.STEPS))
        asyncio.run(drained(server, plain, steps=0))
        assert asyncio.run(updates(url)) <= asyncio.run(updates(plain))
    assert commits <= 0.5 * WORKFLOWS


def test_a_hundred_workflows_share_the_commits_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on SQLite: its writer takes one transaction at a time, in which all meet."""
    commits = 0
    transact = Machine.transact

    async def counted(machine: Machine, work: Any) -> Any:
        nonlocal commits
        commits += 1
        return await transact(machine, work)

    async def main() -> None:
        nonlocal commits
        url = f"sqlite:///{tmp_path / 'steps.db'}"
        await durable.submitted(url, WORKFLOWS)
        commits = 0
        await durable.drain(url, WORKFLOWS, steps=durable.STEPS)

    monkeypatch.setattr(Machine, "transact", counted)
    asyncio.run(main())
    assert 0 < commits <= 0.5 * WORKFLOWS


async def drained(server: Server, url: str, *, steps: int) -> int:
    """The commits that a worker makes."""
    name = urlsplit(url).path.lstrip("/")
    await durable.submitted(url, WORKFLOWS)
    before = await durable.commits(server.url, name)
    await durable.drain(url, WORKFLOWS, steps=steps)
    return await durable.commits(server.url, name) - before


async def updates(url: str) -> int:
    """Rows of executions that were written again."""
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(_UPDATES))
    finally:
        await connection.close()
