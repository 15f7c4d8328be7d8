"""Measures two commits in turns in one run, so that what else the machine does slows both alike.

python -m benchmarks.compare COMMIT                        this tree against a commit
python -m benchmarks.compare COMMIT --rounds 7 --scenarios cycle,worker --stores sqlite

Each round runs every scenario on the commit and on this tree, in processes of their own; the order
changes from round to round. What is compared is the median over the rounds of each figure.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.trees import ROOT, checked_out, scenarios_of
from flowfabric.bench.databases import STORES, Server, open_databases

LIMIT_S = 1_800.0
# Small enough that a round of everything takes minutes, large enough that start-up does not count.
N = {
    "cycle": 10_000,
    "worker": 10_000,
    "latency": 200,
    "single": 2_000,
    "usage": 10_000,
    "admission": 4_000,
    "suspend": 640,
    "flow": 120,
}
# The figures of a scenario, each with whether more of it is better.
FIGURES: dict[str, tuple[tuple[str, bool], ...]] = {
    "cycle": (("throughput_per_s", True), ("cpu_us_per_cycle", False)),
    "worker": (("throughput_per_s", True), ("worker_cpu_us_per_task", False)),
    "latency": (("p50_ms", False),),
    "single": (("throughput_per_s", True), ("cpu_us_per_cycle", False)),
    "usage": (("throughput_per_s", True), ("cpu_us_per_report", False)),
    "admission": (("throughput_per_s", True), ("p50_ms", False)),
    "suspend": (("throughput_per_s", True), ("cpu_us_per_wait", False), ("p50_ms", False)),
    "flow": (("throughput_per_s", True), ("p50_ms", False)),
}
Samples = dict[tuple[str, str, str], dict[str, list[float]]]


def main() -> int:
    given = _arguments()
    samples: Samples = defaultdict(lambda: {"before": [], "now": []})
    facts = machine.facts()
    with (
        checked_out(given.commit) as before,
        open_databases("postgres", given.postgres) as databases,
    ):
        assert isinstance(databases, Server)
        trees = {"before": before, "now": ROOT}
        for number in range(given.rounds):
            for scenario in given.scenarios:
                for store in given.stores:
                    url = databases.url if store == "postgres" else None
                    _turn(samples, trees, scenario, store, url, is_reversed=bool(number % 2))
    rows = [_row(key, taken) for key, taken in samples.items()]
    print(table(rows))
    _write(given, facts, rows, samples)
    return 0


def _arguments() -> argparse.Namespace:
    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(prog="benchmarks.compare")
    parser.add_argument("commit", help="what this tree is compared with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scenarios", type=words, default=list(N), metavar="A,B")
    parser.add_argument("--stores", type=words, default=list(STORES), metavar="A,B")
    parser.add_argument("--postgres", metavar="URL", help="a server; else the wheel's is started")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


def _turn(
    samples: Samples,
    trees: dict[str, Path],
    scenario: str,
    store: str,
    url: str | None,
    *,
    is_reversed: bool,
) -> None:
    order = sorted(trees, reverse=is_reversed)
    for which in order:
        found = _measure(trees[which], scenario, store, url)
        for figure, _ in FIGURES[scenario]:
            value = found.get(figure, found["extra"].get(figure))
            if value is not None:
                samples[scenario, store, figure][which].append(float(value))
    latest = {
        figure: [samples[scenario, store, figure][which][-1] for which in ("before", "now")]
        for figure, _ in FIGURES[scenario]
        if samples[scenario, store, figure]["now"]
    }
    print(f"{scenario:<10} {store:<9} {latest}", file=sys.stderr, flush=True)


def _measure(tree: Path, scenario: str, store: str, url: str | None) -> dict[str, Any]:
    """One scenario by the code of one tree."""
    command = [sys.executable, "-W", "ignore", "-m", scenarios_of(tree), scenario]
    command += ["--store", store, "--json", "--n", str(N[scenario])]
    if url is not None:
        command += ["--url", url]
    places = os.pathsep.join((str(tree / "src"), str(tree)))
    environment = {**os.environ, "PYTHONPATH": places}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=tree,
        env=environment,
    )
    if done.returncode != 0:
        raise SystemExit(f"{scenario} on {store} in {tree} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _row(key: tuple[str, str, str], taken: dict[str, list[float]]) -> dict[str, Any]:
    scenario, store, figure = key
    more_is_better = dict(FIGURES[scenario])[figure]
    before, now = statistics.median(taken["before"]), statistics.median(taken["now"])
    change = (before / now if more_is_better else now / before) - 1
    return {
        "scenario": scenario,
        "store": store,
        "figure": figure,
        "before": round(before, 3),
        "now": round(now, 3),
        "slower_percent": round(100 * change, 1),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The comparison for people; a negative number is a gain."""
    lines = [
        "| scenario | store | figure | before | now | slower by |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['scenario']} | {row['store']} | {row['figure']} | {row['before']} | {row['now']} "
        f"| {row['slower_percent']:+.1f} % |"
        for row in rows
    ]
    return "\n".join(lines)


def _write(
    given: argparse.Namespace, facts: dict[str, Any], rows: list[dict[str, Any]], samples: Samples
) -> None:
    stamp = facts["when"].replace(":", "").replace("+0000", "Z")
    file = given.out / f"{stamp}-{facts['commit']}-against-{given.commit[:7]}.json"
    taken = {"/".join(key): values for key, values in samples.items()}
    document = {"machine": facts, "against": given.commit, "rows": rows, "samples": taken}
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {file}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
