"""How long a server takes for the dashboard's pages in a large store while another process drains.

    python -m benchmarks.pages                       1,000,000 finished and 100,000 delayed, SQLite
    python -m benchmarks.pages --finished 200000 --delayed 20000 --rounds 40

A page's time is from the request to the last byte of the answer, in the server's process and without
a socket; so it has the store, the views and the template in it, and no browser.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.machine import facts, load
from benchmarks.scenarios.preload import preload
from flowfabric.assemble import open_engine
from flowfabric.bench.databases import disk
from flowfabric.clock import monotonic
from flowfabric.config import EngineConfig
from flowfabric.server.routes.values import path_id
from flowfabric.stores.sqlite.view import SqliteView
from tests.support.http import Desk
from tools.showcase import tell

_DRAINED: Final = "drained"
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
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--delayed", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--drain", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    asyncio.run(_drain(given.drain) if given.drain else _measure(given))


async def _drain(url: str) -> None:
    """Submit, claim and complete until the process is ended."""
    who: dict[str, Any] = {"worker_id": "w", "worker_instance_id": "w-1", "lease_ttl_ms": 60_000}
    async with open_engine(url) as engine:
        while True:
            for _ in range(_BATCH):
                await engine.create_execution(execution_kind="drained", lane_id=_DRAINED)
            for claimed in await engine.claim(lanes=(_DRAINED,), limit=_BATCH, **who):
                await engine.complete(claimed.handle, result=b"1")


async def _measure(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=disk()) as folder:
        url = f"sqlite:///{Path(folder) / 'pages.db'}"
        await preload(url, finished=given.finished, delayed=given.delayed)
        ids = await tell(url, minutes=60)
        before = load()
        drain = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pages", "--drain", url], env={**os.environ}
        )
        try:
            async with open_engine(url, config=EngineConfig(loops=False)) as engine:
                desk = Desk(engine)
                taken = [
                    await _page(desk, name, path, given.rounds)
                    for name, path in _paths(ids).items()
                ]
                assert drain.poll() is None, "it did not drain"
        finally:
            drain.kill()
            drain.wait()
    made = facts()
    print(
        f"{given.finished:,} finished, {given.delayed:,} delayed; {made['commit']}, {made['cpu']}"
    )
    print(f"load average {before} before, {load()} after; {given.rounds} rounds")
    print("| page | p50 ms | p95 ms | statements | KiB |\n|---|---|---|---|---|")
    for each in taken:
        print(each.line())


def _paths(ids: dict[str, str]) -> dict[str, str]:
    lists = "runs flows approvals failures budgets lanes workers schedules audit system".split()
    found = {name: f"/ui/{name}" for name in lists}
    return {
        "overview": "/ui",
        **found,
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
    """Statements of a SQLite store, while it is entered."""

    def __init__(self) -> None:
        self.statements = 0
        self._query: Any = SqliteView.query

    def __enter__(self) -> _Counted:
        async def query(view: Any, *given: Any, **more: Any) -> Any:
            self.statements += 1
            return await self._query(view, *given, **more)

        SqliteView.query = query  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        SqliteView.query = self._query  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
