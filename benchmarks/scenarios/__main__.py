"""`python -m benchmarks.scenarios SCENARIO`: measure once, print one object."""

from __future__ import annotations

import argparse
import sys

from benchmarks.scenarios import SCENARIOS
from flowfabric.bench.databases import STORES
from flowfabric.bench.main import run


def main() -> int:
    """Read the arguments, measure once, print one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scenarios")
    parser.add_argument("scenario", choices=tuple(SCENARIOS))
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--n", type=int, help="executions; seconds for idle")
    parser.add_argument("--url", help="measure on this server, or beside this file")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    return run(given.scenario, given.store, given.n, given.url, as_json=given.json, among=SCENARIOS)


if __name__ == "__main__":
    sys.exit(main())
