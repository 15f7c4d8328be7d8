"""huey on SQLite (`SqliteHuey`, WAL): one consumer drains a backlog of no-op tasks.

Measured: from `Consumer.start` until the last task's completion signal, which huey sends after
the result is stored. The backlog is enqueued before. The task returns a value, because huey
stores no result for None and the engines compared with it do.

What it keeps: the result. What it does not keep: a task is deleted from the queue when it is
taken, so a killed consumer loses it; no lease, no attempt record, no events.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.peers.common import (
    Peer,
    PeerResult,
    check_count,
    drained,
    main,
    timed,
    wait_until,
)

if TYPE_CHECKING:
    from huey import SqliteHuey

WORKERS = 1
LIMIT_S = 120.0
NOTE = "keeps the result; a taken task is deleted at once, no lease or event"


def drain(url_or_path: str, n: int) -> PeerResult:
    from huey import SqliteHuey
    from huey.signals import SIGNAL_COMPLETE

    app = SqliteHuey("peer", filename=url_or_path)
    finished = 0

    def count(_signal: str, _task: object) -> None:
        nonlocal finished
        finished += 1

    noop = app.task()(_noop)
    app.signal(SIGNAL_COMPLETE)(count)
    for _ in range(n):
        noop()
    started = time.perf_counter()
    with _consumer(app, initial_delay=0.1):
        wait_until(lambda: finished >= n, limit_s=LIMIT_S, what=f"{n} huey completions")
        seconds = time.perf_counter() - started
    check_count("huey tasks completed", finished, n)
    check_count("huey results stored", app.result_count(), n)
    check_count("huey tasks left", app.pending_count(), 0)
    return drained("huey", "sqlite", n, seconds, setting=_setting(url_or_path, WORKERS), note=NOTE)


def latency(url_or_path: str, n: int) -> PeerResult:
    """Enqueue one task and block for its result, both sides polling every millisecond."""
    from huey import SqliteHuey

    app = SqliteHuey("peer", filename=url_or_path)
    noop = app.task()(_noop)
    laps: list[float] = []
    with _consumer(app, initial_delay=0.001, max_delay=0.001):
        time.sleep(0.2)
        for _ in range(n):
            started = time.perf_counter()
            noop().get(blocking=True, timeout=10, backoff=1, max_delay=0.001)
            laps.append(time.perf_counter() - started)
            time.sleep(0.01)
    setting = f"{_setting(url_or_path, WORKERS)}, both sides poll every 1 ms (default 100 ms)"
    return timed("huey", "sqlite", laps, setting=setting, note=NOTE)


def _noop() -> int:
    return 1


@contextmanager
def _consumer(app: "SqliteHuey", **delays: float) -> Iterator[None]:
    consumer = app.create_consumer(workers=WORKERS, periodic=False, **delays)
    consumer.start()
    try:
        yield
    finally:
        consumer.stop(graceful=True)


def _setting(path: str, workers: int) -> str:
    """The worker count and the durability huey leaves at SQLite's default."""
    connection = sqlite3.connect(path)
    try:
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        (level,) = connection.execute("PRAGMA synchronous").fetchone()
    finally:
        connection.close()
    synchronous = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}[level]
    return f"{workers} thread, {journal}, synchronous={synchronous}"


PEER = Peer("huey", "sqlite", 5_000, drain, latency)

if __name__ == "__main__":
    main(PEER)
