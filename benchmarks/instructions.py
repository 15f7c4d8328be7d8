"""Counts instructions instead of time: what a noisy machine cannot change.

    python -m benchmarks.instructions COMMIT                 this tree against a commit, on SQLite
    python -m benchmarks.instructions COMMIT cycle worker    some of cycle, submit, worker, single

Each figure is the difference between two runs of different length under valgrind (cachegrind), so
that starting up does not count. Two runs of one tree differ by about one per cent. Instructions of
the process are all that counts here: not waiting, not the disk, not a server.
"""

import argparse
import asyncio
import gc
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.trees import ROOT, checked_out
from flowfabric.bench import cycle, worker
from flowfabric.bench.worker_process import drain

SHORT, LONG = 1_000, 3_000
SCENARIOS = ("cycle", "submit", "worker", "single")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.instructions")
    parser.add_argument("commit", help="what this tree is compared with")
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS)
    given = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is needed to count instructions; install it")
    print("| scenario | before | now | more by |\n|---|---|---|---|")
    with checked_out(given.commit) as before:
        for scenario in given.scenarios:
            old, new = (_per_item(tree, scenario) for tree in (before, ROOT))
            print(
                f"| {scenario} | {old:,} | {new:,} | {100 * (new / old - 1):+.1f} % |", flush=True
            )
    return 0


def _per_item(tree: Path, scenario: str) -> int:
    counts = {n: _count(tree, scenario, n) for n in (SHORT, LONG)}
    return (counts[LONG] - counts[SHORT]) // (LONG - SHORT)


def _count(tree: Path, scenario: str, n: int) -> int:
    """Instructions of one process that runs a scenario by the code of one tree."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, "-W", "ignore", __file__, "--run", scenario, str(n)]
    places = os.pathsep.join((str(tree / "src"), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": places, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = re.search(r"I +refs: +([\d,]+)", done.stderr)
    if done.returncode != 0 or found is None:
        raise SystemExit(f"{scenario} in {tree} failed:\n{done.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def run(scenario: str, n: int) -> None:
    """One scenario, in this process, by the code of whichever tree is on its path.

    What importing left is frozen: else it is chance in which of the compared runs the garbage
    collector looks at all of it, which takes five per cent.
    """
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/counted.db"
        if scenario == "cycle":
            asyncio.run(cycle.engine_rate(url, n))
            return
        if scenario == "single":
            # The scenario of this tree, whichever engine it runs: earlier commits have none.
            single = runpy.run_path(str(ROOT / "src" / "flowfabric" / "bench" / "single.py"))
            asyncio.run(single["submit"](url, n))
            asyncio.run(single["drain_rate"](url, n))
            return
        asyncio.run(worker.submit(url, n))
        if scenario == "worker":
            asyncio.run(drain(url, worker.CONCURRENCY, n))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
