"""Peers measured in the same run and on the same machine as FlowFabric.

`measure` runs each peer in a fresh Python process, so that no event loop, import or connection
is shared between peers or with the engine, and always answers with one `PeerResult` per name.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.peers.common import (
    NOT_INSTALLED,
    PeerResult,
    Scenario,
    Store,
    postgres_server,
)

__all__ = ["DEFAULT_N", "NOT_INSTALLED", "PEERS", "PeerResult", "measure"]

PEERS: dict[str, Store] = {
    "pgqueuer": "postgres",
    "procrastinate": "postgres",
    "dbos": "postgres",
    "huey": "sqlite",
}
DEFAULT_N: dict[str, int] = {
    "pgqueuer": 20_000,
    "procrastinate": 2_000,
    "dbos": 1_000,
    "huey": 5_000,
}
LATENCY_N = 50
REPOSITORY = Path(__file__).resolve().parents[2]


def measure(
    names: Iterable[str] = tuple(PEERS),
    *,
    postgres_url: str | None = None,
    sqlite_dir: str | Path | None = None,
    n: int | Mapping[str, int] | None = None,
    scenario: Scenario = "drain",
    rounds: int = 2,
    limit_s: float = 60.0,
    python: str = sys.executable,
) -> list[PeerResult]:
    """Measure each named peer `rounds` times and keep its best run, in the order of `names`.

    `n` is the same for all peers, or per peer (missing ones take `DEFAULT_N`). Without a
    `postgres_url` one server from the wheel serves the whole run. `python` is the interpreter
    that has the peers installed, if it is not this one. A peer that is not installed, is too slow
    for `limit_s` or fails is a result whose `note` explains it; a misspelt name is a `ValueError`.
    """
    chosen = list(names)
    unknown = [name for name in chosen if name not in PEERS]
    if unknown:
        raise ValueError(f"unknown peers {unknown}, choose from {list(PEERS)}")
    if any(PEERS[name] == "postgres" for name in chosen):
        with postgres_server(postgres_url) as url:
            return _best_runs(chosen, url, sqlite_dir, n, scenario, rounds, limit_s, python)
    return _best_runs(chosen, "", sqlite_dir, n, scenario, rounds, limit_s, python)


def _best_runs(
    names: list[str],
    postgres_url: str,
    sqlite_dir: str | Path | None,
    n: int | Mapping[str, int] | None,
    scenario: Scenario,
    rounds: int,
    limit_s: float,
    python: str,
) -> list[PeerResult]:
    """The rounds alternate between the peers, so that a disturbance does not hit only one."""
    best: dict[str, PeerResult] = {}
    for _ in range(rounds):
        for name in names:
            if name in best and best[name].note == NOT_INSTALLED:
                continue
            with tempfile.TemporaryDirectory(prefix="ff-peers-", dir=sqlite_dir) as directory:
                sqlite_path = str(Path(directory) / f"{name}.db")
                target = postgres_url if PEERS[name] == "postgres" else sqlite_path
                size = _jobs(name, n, scenario)
                run = _run_once(name, target, size, scenario, limit_s, python)
            best[name] = _better(best.get(name), run)
    return [_labelled(best[name], rounds) for name in names]


def _jobs(name: str, n: int | Mapping[str, int] | None, scenario: Scenario) -> int:
    default = DEFAULT_N[name] if scenario == "drain" else LATENCY_N
    if isinstance(n, Mapping):
        return n.get(name, default)
    return default if n is None else n


def _better(first: PeerResult | None, second: PeerResult) -> PeerResult:
    """The faster one; a failure never replaces a success."""
    if first is None:
        return second
    if first.p50_ms is not None and second.p50_ms is not None:
        return min(first, second, key=lambda result: result.p50_ms or 0.0)
    return max(first, second, key=lambda result: result.throughput_per_s)


def _labelled(result: PeerResult, rounds: int) -> PeerResult:
    if not result.ok or rounds == 1:
        return result
    return dataclasses.replace(result, note=f"{result.note}; best of {rounds} runs")


def _run_once(
    name: str, target: str, n: int, scenario: Scenario, limit_s: float, python: str
) -> PeerResult:
    command = [python, "-W", "ignore", "-m", f"benchmarks.peers.{name}"]
    command += ["--n", str(n), "--url", target, "--scenario", scenario, "--json"]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        note = f"no result within {limit_s:.0f} s"
        return PeerResult.failed(name, PEERS[name], n, note, scenario)
    finally:
        _end(process)
    try:
        return PeerResult(**json.loads(output.strip().splitlines()[-1]))
    except (IndexError, TypeError, ValueError):
        last = (errors.strip().splitlines() or ["no output"])[-1]
        note = f"exit status {process.returncode}: {last}"
        return PeerResult.failed(name, PEERS[name], n, note, scenario)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of the peer's process group, on a timeout or an interrupt."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
