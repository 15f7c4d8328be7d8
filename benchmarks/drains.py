"""Drains of a backlog by two commits in turns: tasks per second, CPU time and commits per task.

python -m benchmarks.drains COMMIT
python -m benchmarks.drains COMMIT --rounds 7 --concurrency 100,500 --stores postgres

`default` stands for the number of handlers that each of the two has by itself. Each drain is a
process of its own on an empty database; the order changes from round to round. Shown are medians,
and the median of the ratios of the rounds, which what else the machine does changes least.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from benchmarks.trees import ROOT, checked_out
from flowfabric.bench.databases import STORES, Databases, open_databases

LIMIT_S = 600.0
DRAIN = Path(__file__).with_name("drain.py")
Figures = dict[str, float]
Samples = dict[tuple[str, str], dict[str, list[Figures]]]


def main() -> int:
    given = _arguments()
    samples: Samples = defaultdict(lambda: {"before": [], "now": []})
    with checked_out(given.commit) as before:
        trees = {"before": before, "now": ROOT}
        for store in given.stores:
            with open_databases(store, None) as databases:
                for number in range(given.rounds):
                    for concurrency in given.concurrency:
                        for which in sorted(trees, reverse=bool(number % 2)):
                            found = _drain(trees[which], databases, concurrency, given.n)
                            samples[store, concurrency][which].append(found)
                            print(store, concurrency, which, found, file=sys.stderr, flush=True)
    print("\n".join(table(samples)))
    return 0


def _arguments() -> argparse.Namespace:
    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(prog="benchmarks.drains")
    parser.add_argument("commit", help="what this tree is compared with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--concurrency", type=words, default=["default", "500"], metavar="A,B")
    parser.add_argument("--stores", type=words, default=list(STORES), metavar="A,B")
    return parser.parse_args()


def _drain(tree: Path, databases: Databases, concurrency: str, n: int) -> Figures:
    with databases.empty() as url:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(DRAIN), url, concurrency, str(n)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env={**os.environ, "PYTHONPATH": str(tree / "src")},
        )
    if done.returncode != 0:
        raise SystemExit(f"a drain in {tree} failed:\n{done.stderr[-2000:]}")
    found: Figures = json.loads(done.stdout)
    return found


def table(samples: Samples) -> list[str]:
    """One row for each store and number of handlers."""
    lines = [
        "| store | concurrency | tasks/s | ratio | CPU µs per task | ratio | commits per 1,000 |",
        "|---|---|---|---|---|---|---|",
    ]
    for (store, concurrency), taken in samples.items():
        columns = [store, concurrency]
        for figure in ("per_s", "cpu_us"):
            before, now = ([each[figure] for each in taken[which]] for which in ("before", "now"))
            ratios = [late / early for early, late in zip(before, now, strict=True)]
            spread = f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
            columns += [f"{median(before):,.0f} → {median(now):,.0f}", spread]
        commits = [median(each["commits"] for each in taken[which]) for which in taken]
        columns.append(f"{commits[0]:.1f} → {commits[1]:.1f}")
        lines.append(f"| {' | '.join(columns)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
