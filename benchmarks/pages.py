"""How long a server takes for the dashboard's pages in a large store while another process drains.

    python -m benchmarks.pages                       1,000,000 finished and 100,000 delayed, SQLite
    python -m benchmarks.pages --store postgres --finished 200000 --delayed 20000

A page's time is from the request to the last byte of the answer, in the server's process, without a
socket; so it has the store, the views and the template in it, and no browser.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.machine import facts, load
from benchmarks.scenarios.preload import preload
from flowfabric.assemble import open_engine
from flowfabric.bench.databases import open_databases
from flowfabric.clock import monotonic
from flowfabric.config import EngineConfig
from flowfabric.limits import COUNTED_MAX
from flowfabric.server.routes.values import path_id
from flowfabric.stores.postgres.view import PostgresView
from flowfabric.stores.sqlite.view import SqliteView
from tests.support.http import Desk
from tools.showcase import tell

_DRAINED: Final = "drained"
_LISTS: Final = (
    *("runs", "flows", "approvals", "failures", "budgets", "lanes", "workers"),
    *("schedules", "audit", "system"),
)
_BATCH: Final = 100


class Taken(NamedTuple):
    """What one page took."""

    name: str
    milliseconds: list[float]
    statements: int
    size: int

    def line(self) -> str:
        high = sorted(self.milliseconds)[int(0.95 * (len(self.milliseconds) - 1))]
        middle, kib = median(self.milliseconds), self.size / 1024
        return f"| `{self.name}` | {middle:.1f} | {high:.1f} | {self.statements} | {kib:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--delayed", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--drain", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drain:
        asyncio.run(_drain(given.drain))
        return
    with open_databases(given.store, None) as databases, databases.empty() as url:
        asyncio.run(_measure(given, url))


async def _drain(url: str) -> None:
    """Submit, claim and complete until the process is ended."""
    who: dict[str, Any] = {"worker_id": "w", "worker_instance_id": "w-1", "lease_ttl_ms": 60_000}
    async with open_engine(url) as engine:
        while True:
            for _ in range(_BATCH):
                await engine.create_execution(execution_kind="drained", lane_id=_DRAINED)
            for claimed in await engine.claim(lanes=(_DRAINED,), limit=_BATCH, **who):
                await engine.complete(claimed.handle, result=b"1")


async def _measure(given: argparse.Namespace, url: str) -> None:
    await preload(url, finished=given.finished, delayed=given.delayed)
    ids = await tell(url, minutes=60)
    before = load()
    drain = subprocess.Popen(  # noqa: ASYNC220 - it is started once
        [sys.executable, "-m", "benchmarks.pages", "--drain", url], env={**os.environ}
    )
    try:
        async with open_engine(url, config=EngineConfig(loops=False)) as engine:
            desk, begun = Desk(engine), monotonic()
            taken = [
                await _page(desk, name, path, given.rounds) for name, path in _paths(ids).items()
            ]
            assert drain.poll() is None, "it did not drain"
            seconds = monotonic() - begun
            drained = await engine.count_listed(lane_id=_DRAINED, at_most=10_000)
            stored = await engine.count_listed(states=["completed"], at_most=COUNTED_MAX)
    finally:
        drain.kill()
        drain.wait()
    made, rate = facts(), drained / seconds
    print(f"{given.store}, {stored:,} completed, {rate:.0f}/s drained; {made['commit']}")
    print(f"{made['cpu']}, load {before} before, {load()} after; {given.rounds} rounds")
    print("| page | p50 ms | p95 ms | statements | KiB |\n|---|---|---|---|---|")
    for each in taken:
        print(each.line())


def _paths(ids: dict[str, str]) -> dict[str, str]:
    return {
        "overview": "/ui",
        **{name: f"/ui/{name}" for name in _LISTS},
        "runs that failed": "/ui/runs?q=state:failed",
        "runs of a lane": "/ui/runs?q=lane:agents",
        "one budget": "/ui/budgets/gpt",
        "one run": f"/ui/runs/{path_id(ids['run'])}",
        "one flow": f"/ui/flows/{ids['flow']}",
    }


async def _page(desk: Desk, name: str, path: str, rounds: int) -> Taken:
    """One page, again and again; the first time is not counted."""
    reply = await desk.get(path)
    assert reply.status == 200, (path, reply)
    laps = []
    with _Counted() as counted:
        for _ in range(rounds):
            begun = monotonic()
            reply = await desk.get(path)
            laps.append((monotonic() - begun) * 1000)
    return Taken(name, laps, round(counted.statements / rounds), len(reply.body))


class _Counted:
    """Statements of a store, while it is entered."""

    _ways = ((SqliteView, "query"), (PostgresView, "query"), (PostgresView, "fetch"))

    def __init__(self) -> None:
        self.statements = 0
        self._asked = [getattr(view, name) for view, name in self._ways]

    def __enter__(self) -> _Counted:
        for (view, name), asked in zip(self._ways, self._asked, strict=True):
            setattr(view, name, self._counting(asked))
        return self

    def _counting(self, asked: Any) -> Any:
        async def counted(view: Any, *given: Any, **more: Any) -> Any:
            self.statements += 1
            return await asked(view, *given, **more)

        return counted

    def __exit__(self, *_: object) -> None:
        for (view, name), asked in zip(self._ways, self._asked, strict=True):
            setattr(view, name, asked)


if __name__ == "__main__":
    main()
