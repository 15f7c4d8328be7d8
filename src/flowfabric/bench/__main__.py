"""`python -m flowfabric.bench SCENARIO`: every scenario, those of the report included."""

from __future__ import annotations

import argparse
import sys

from flowfabric.bench.main import SCENARIOS, run
from flowfabric.bench.places import STORES


def main() -> int:
    """Read the arguments, measure once, print one object."""
    parser = argparse.ArgumentParser(prog="python -m flowfabric.bench")
    parser.add_argument("scenario", choices=tuple(SCENARIOS))
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--n", type=int, help="executions; seconds for idle")
    parser.add_argument("--url", help="measure on this server, or beside this file")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    return run(given.scenario, given.store, given.n, given.url, given.json)


if __name__ == "__main__":
    sys.exit(main())
