"""Own time per function in µs per cycle, every thread included (cProfile).

    python -m benchmarks.where_time_goes cycle sqlite 5000
    python -m benchmarks.where_time_goes worker postgres 5000
    python -m benchmarks.where_time_goes single sqlite 4000
    python -m benchmarks.where_time_goes latency postgres 200
    python -m benchmarks.where_time_goes usage sqlite 5000
    python -m benchmarks.where_time_goes admission sqlite 5000
    python -m benchmarks.where_time_goes worker sqlite 10000 --parts

The profiler slows Python down about twice and C code not at all, so trust the order more than the
sums. Waiting (epoll, queues) is left out.
"""

import argparse
import asyncio
import cProfile
import pstats
import sys
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.scenarios import admission, usage
from flowfabric.bench import cycle, latency, single, worker
from flowfabric.bench.databases import STORES, open_databases
from flowfabric.bench.worker_process import drain

Where = tuple[str, int, str]  # file, line, function
WAITING = ("select.epoll", "SimpleQueue", "_thread.lock", "select.kqueue")


def _cycle(n: int) -> Callable[[str], Any]:
    return lambda url: asyncio.run(cycle.engine_rate(url, n))


def _worker(n: int) -> Callable[[str], Any]:
    return lambda url: asyncio.run(drain(url, worker.CONCURRENCY, n))


def _single(n: int) -> Callable[[str], Any]:
    return lambda url: asyncio.run(single.drain_rate(url, n))


def _latency(n: int) -> Callable[[str], Any]:
    return lambda url: latency.laps_in_process(url, n)


def _usage(n: int) -> Callable[[str], Any]:
    return lambda url: asyncio.run(usage.usage_round(url, n))


def _admission(n: int) -> Callable[[str], Any]:
    return lambda url: asyncio.run(admission.bounded_work(url, n, admission.LIMITS[0]))


SCENARIOS = {
    "cycle": _cycle,
    "worker": _worker,
    "single": _single,
    "latency": _latency,
    "usage": _usage,
    "admission": _admission,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.where_time_goes")
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("store", choices=STORES)
    parser.add_argument("n", type=int, nargs="?", default=5_000)
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--parts", action="store_true", help="sums of folders, not functions")
    given = parser.parse_args()
    with open_databases(given.store, None) as databases, databases.empty() as url:
        if given.scenario == "worker":
            asyncio.run(worker.submit(url, given.n))
        if given.scenario == "single":
            asyncio.run(single.submit(url, given.n))
        profiles = profiled(lambda: SCENARIOS[given.scenario](given.n)(url))
    lines = parts(profiles, given.n) if given.parts else table(profiles, given.n)
    for line in lines[: given.top]:
        print(line)
    return 0


def profiled(work: Callable[[], Any]) -> list[cProfile.Profile]:
    """One profile per thread that ran meanwhile."""
    profiles: list[cProfile.Profile] = []
    run = threading.Thread.run

    def watched(self: threading.Thread) -> None:
        profile = cProfile.Profile()
        profiles.append(profile)
        profile.runcall(run, self)

    setattr(threading.Thread, "run", watched)  # noqa: B010 - restored below
    try:
        main_profile = cProfile.Profile()
        profiles.append(main_profile)
        main_profile.runcall(work)
    finally:
        setattr(threading.Thread, "run", run)  # noqa: B010
    return profiles


def table(profiles: list[cProfile.Profile], n: int) -> list[str]:
    """Functions by their own time, the most expensive first."""
    lines = []
    for (file, line, name), (own, cumulative, calls) in _by_own_time(profiles):
        short = file.split("flowfabric/")[-1][-48:]
        figures = f"{own / n * 1e6:8.2f} µs own {cumulative / n * 1e6:9.2f} µs with callees"
        lines.append(f"{figures} {calls / n:8.2f} calls  {short}:{line} {name}")
    return lines


def parts(profiles: list[cProfile.Profile], n: int) -> list[str]:
    """The own time of all functions of a folder of the package; the rest is one part."""
    sums: dict[str, float] = {}
    for (file, _, _), (own, _, _) in _by_own_time(profiles):
        inside = file.partition("/src/flowfabric/")[2]
        folders = inside.split("/")[:-1]
        part = "/".join(folders[:2]) if inside else "Python, drivers and C"
        sums[part] = sums.get(part, 0.0) + own
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    lines = [f"{own / n * 1e6:8.2f} µs  {part or 'the package'}" for part, own in ordered]
    return [*lines, f"{sum(sums.values()) / n * 1e6:8.2f} µs  sum"]


def _by_own_time(profiles: list[cProfile.Profile]) -> list[tuple[Where, list[float]]]:
    """Own time, time with callees and calls of each function; waiting is left out."""
    total: dict[Where, list[float]] = {}
    for profile in profiles:
        try:
            stats: Any = pstats.Stats(profile)
        except TypeError:  # a thread that did nothing
            continue
        for where, (_, calls, own, cumulative, _) in stats.stats.items():
            if any(word in where[2] for word in WAITING):
                continue
            found = total.setdefault(where, [0.0, 0.0, 0.0])
            for at, value in enumerate((own, cumulative, calls)):
                found[at] += value
    return sorted(total.items(), key=lambda item: -item[1][0])


if __name__ == "__main__":
    sys.exit(main())
