"""Whether a listing got slower: every filter at a near and at a far page, two trees in one run.

    python -m benchmarks.listings HEAD~5 --finished 200000

Each tree fills a database of its own on one server with executions of ten kinds, a million of them
finished, 100,000 each waiting, delayed and failed, and lists it in turns with the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.trees import ROOT, checked_out

FINISHED = 1_000_000
OTHERS = 100_000
PAGE = 50
FAR = 50  # the page that is far
ROUNDS = 5
FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "state waiting": {"states": ["waiting"]},
    "state active": {"states": ["active"]},
    "state delayed": {"states": ["delayed"]},
    "state failed": {"states": ["failed"]},
    "state completed": {"states": ["completed"]},
    "two states": {"states": ["waiting", "failed"]},
    "kind": {"execution_kind": "listed-3"},
    "lane": {"lane_id": "default"},
    "namespace": {"namespace": "default"},
    "kind and state": {"execution_kind": "listed-3", "states": ["waiting"]},
    "tag": {"tag": ("team.name", "rare")},
    "tag and state": {"tag": ("team.name", "rare"), "states": ["waiting"]},
}


def main() -> None:
    """Both trees on one server, in turns; prints a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.listings")
    parser.add_argument("commit", help="the tree to compare with")
    parser.add_argument("--finished", type=int, default=FINISHED)
    parser.add_argument("--others", type=int, default=OTHERS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        asyncio.run(_serve(given.serve, given.finished, given.others))
        return
    from flowfabric.bench.databases import open_databases

    with (
        checked_out(given.commit) as before,
        open_databases("postgres", None) as databases,
        databases.empty() as old_url,
        databases.empty() as new_url,
    ):
        lists = [_Lister(before, old_url, given), _Lister(ROOT, new_url, given)]
        _print(_measured(lists, given.rounds))
        for each in lists:
            each.close()


class _Lister:
    """A process that lists with the code of one tree."""

    def __init__(self, tree: Path, url: str, given: argparse.Namespace) -> None:
        sizes = ["--finished", str(given.finished), "--others", str(given.others)]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), given.commit, "--serve", url, *sizes],
            env={**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT}"},
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, name: str) -> dict[str, float]:
        """Milliseconds of the first and of the far page."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def _measured(lists: list[_Lister], rounds: int) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[list[dict[str, float]]]] = {name: [] for name in FILTERS}
    for _ in range(rounds):
        for name, laps in found.items():
            laps.append([each.ask(name) for each in lists])
    return {
        name: [
            {page: median(lap[at][page] for lap in laps) for page in ("near", "far")}
            for at in range(len(lists))
        ]
        for name, laps in found.items()
    }


def _print(found: dict[str, list[dict[str, float]]]) -> None:
    print(f"| filter | page 1: before, now (ms) | page {FAR}: before, now (ms) |\n|---|---|---|")
    for name, (before, now) in found.items():
        near, far = (f"{before[page]:.1f}, {now[page]:.1f}" for page in ("near", "far"))
        print(f"| {name} | {near} | {far} |", flush=True)


async def _serve(url: str, finished: int, others: int) -> None:
    """Fill the database, then time what each line asks for."""
    from benchmarks.scenarios.preload import preload_listed
    from flowfabric.assemble import open_engine
    from flowfabric.config import EngineConfig

    await preload_listed(url, finished=finished, others=others)
    async with open_engine(url, config=EngineConfig(loops=False)) as engine:
        while line := sys.stdin.readline().strip():
            print(json.dumps(await _timed(engine, FILTERS[line])), flush=True)


async def _timed(engine: Any, wanted: dict[str, Any]) -> dict[str, float]:
    from flowfabric.limits import PAGE_MAX

    near = await _lap(engine, wanted, None)
    left, cursor = (FAR - 1) * PAGE, None
    while left:
        page = await engine.list_executions(**wanted, limit=min(left, PAGE_MAX), cursor=cursor)
        left, cursor = left - len(page.items), page.next_cursor
        if cursor is None:
            return {"near": near, "far": near}  # there is no page so far away
    return {"near": near, "far": await _lap(engine, wanted, cursor)}


async def _lap(engine: Any, wanted: dict[str, Any], cursor: str | None) -> float:
    from flowfabric.clock import monotonic

    started = monotonic()
    await engine.list_executions(**wanted, limit=PAGE, cursor=cursor)
    return (monotonic() - started) * 1000


if __name__ == "__main__":
    main()
