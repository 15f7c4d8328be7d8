"""Measures FlowFabric, its floor and its peers in one run; writes results/*.json and RESULTS.md.

python -m benchmarks.report            the whole report, about ten minutes
python -m benchmarks.report --quick    small n, about a minute: does everything still run?
python -m benchmarks.report --full     also with a million finished executions in the store
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.peers import PEERS, measure
from benchmarks.peers.common import Scenario
from benchmarks.tables import render
from flowfabric.bench.databases import STORES, Server, disk, open_databases

HERE = Path(__file__).resolve().parent
LIMIT_S = 3_600.0
SCENARIOS = (
    *("cycle", "worker", "latency", "single", "idle"),
    *("usage", "admission", "suspend", "flow"),
)
QUICK_N = {
    "cycle": 2_000,
    "worker": 2_000,
    "latency": 50,
    "single": 500,
    "idle": 6,
    "usage": 2_000,
    "admission": 1_000,
    "suspend": 200,
    "flow": 60,
}
QUICK_PEERS = {"pgqueuer": 2_000, "procrastinate": 400, "dbos": 200, "huey": 1_000}


def main() -> int:
    given = _arguments()
    run: dict[str, Any] = {"machine": machine.facts(), "quick": given.quick}
    with open_databases("postgres", given.postgres) as databases:
        assert isinstance(databases, Server)
        run["ours"] = list(_ours(given, databases.url))
        run["peers"] = [] if given.no_peers else list(_peers(given, databases.url))
    run["machine"]["load_average_after"] = machine.load()
    _write(run, given.out)
    return 0 if all("failed" not in each for each in run["ours"]) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.report")
    parser.add_argument("--quick", action="store_true", help="small n")
    parser.add_argument("--full", action="store_true", help="also with a large past in the store")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--postgres", metavar="URL", help="a server; else the wheel's is started")
    parser.add_argument(
        "--peers-python", default=sys.executable, help="an interpreter that has the peers"
    )
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results/ and RESULTS.md")
    return parser.parse_args()


def _ours(given: argparse.Namespace, postgres_url: str) -> Iterator[dict[str, Any]]:
    """Each scenario in a process of its own, so that none warms up another."""
    scenarios = [*SCENARIOS, *(["backlog"] if given.full else [])]
    for scenario in scenarios:
        for store in STORES:
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.scenarios", scenario]
            command += ["--store", store, "--json"]
            if store == "postgres":
                command += ["--url", postgres_url]
            if given.quick and scenario in QUICK_N:
                command += ["--n", str(QUICK_N[scenario])]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["no output"])[-1]
                print(f"{scenario} on {store} failed: {last}", file=sys.stderr)
                yield {"scenario": f"failed {scenario}", "store": store, "failed": last}
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            _say(scenario, store, found)
            yield found


def _peers(given: argparse.Namespace, postgres_url: str) -> Iterator[dict[str, Any]]:
    n = QUICK_PEERS if given.quick else None
    scenarios: tuple[Scenario, ...] = ("drain", "latency")
    for scenario in scenarios:
        for result in measure(
            PEERS,
            postgres_url=postgres_url,
            sqlite_dir=disk(),
            n=n if scenario == "drain" else None,
            scenario=scenario,
            python=given.peers_python,
        ):
            _say(scenario, f"{result.name} ({result.store})", asdict(result))
            yield asdict(result)


def _say(scenario: str, subject: str, found: dict[str, Any]) -> None:
    names = ("throughput_per_s", "floor_per_s", "ratio_to_floor", "p50_ms", "p99_ms", "note")
    figures = [f"{name} {found[name]}" for name in names if found.get(name) is not None]
    print(f"{scenario:<8} {subject:<24} {', '.join(figures)}", file=sys.stderr, flush=True)


def _write(run: dict[str, Any], out: Path) -> None:
    folder = out / "results"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = run["machine"]["when"].replace(":", "").replace("+0000", "Z")
    kind = "quick" if run["quick"] else "report"
    file = folder / f"{stamp}-{run['machine']['commit']}-{kind}.json"
    file.write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
    (out / "RESULTS.md").write_text(render(run), encoding="utf-8")
    print(f"wrote {file} and {out / 'RESULTS.md'}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
