"""`python -m benchmarks.peers [name ...]`: measure the peers, one JSON object per line."""

import argparse

from benchmarks.peers import PEERS, measure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("names", nargs="*", default=list(PEERS), help=f"from {', '.join(PEERS)}")
    parser.add_argument("--url", help="PostgreSQL server; without it the wheel's server")
    parser.add_argument("--n", type=int, help="jobs for every peer; without it each peer's default")
    parser.add_argument("--scenario", choices=("drain", "latency"), default="drain")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    results = measure(
        options.names,
        postgres_url=options.url,
        n=options.n,
        scenario=options.scenario,
        rounds=options.rounds,
    )
    for result in results:
        print(result.to_json())


if __name__ == "__main__":
    main()
