"""PgQueuer on PostgreSQL: one worker drains a backlog of no-op jobs at its best batch size.

Measured: from `QueueManager.run` until it returns with every completion flushed. The backlog is
enqueued in bulk before the clock starts. Each of `BATCH_SIZES` runs once and the faster counts, so
the figure is the peer's best, not its typical one.

What it does not keep: no result, no lease with a fence, no attempt record, no events. A finished
job's row is deleted and one line in its log table says "successful"; completions are buffered, so
a crash between handler and flush runs the handler again.
"""

import asyncio
import time
from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.peers.common import (
    Peer,
    PeerResult,
    check_count,
    count_rows,
    drained,
    fresh_database,
    main,
    timed,
)

if TYPE_CHECKING:
    from pgqueuer.queries import Queries

T = TypeVar("T")

BATCH_SIZES = (100, 500)
ENQUEUE_CHUNK = 5_000
NOTE = "keeps no result, lease or event; completions buffered"


def drain(url_or_path: str, n: int) -> PeerResult:
    """The fastest drain over `BATCH_SIZES`, each on an empty database."""
    runs = {batch: _drain_once(url_or_path, n, batch) for batch in BATCH_SIZES}
    best = min(runs, key=runs.__getitem__)
    rates = ", ".join(f"batch {batch}: {n / seconds:,.0f}/s" for batch, seconds in runs.items())
    return drained(
        "pgqueuer",
        "postgres",
        n,
        runs[best],
        setting=f"batch {best}, asyncpg pool, uvloop",
        note=f"{NOTE} ({rates})",
    )


def latency(url_or_path: str, n: int) -> PeerResult:
    """Enqueue one job, wait for its terminal status; worker and waiter share the process."""
    with fresh_database(url_or_path, "pgqueuer") as url:
        laps = _run(_latency(url, n))
    setting = "batch 1 (flush at once), completion watcher with 1 ms debounce"
    return timed("pgqueuer", "postgres", laps, setting=setting, note="keeps no result")


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run under uvloop, as PgQueuer's own command does."""
    import uvloop

    return uvloop.run(coroutine)


def _drain_once(server_url: str, n: int, batch: int) -> float:
    with fresh_database(server_url, "pgqueuer") as url:
        seconds, handled = _run(_drain(url, n, batch))
        check_count("pgqueuer handlers run", handled, n)
        logged = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
        check_count("pgqueuer jobs logged successful", count_rows(url, logged), n)
        check_count("pgqueuer jobs left", count_rows(url, "SELECT count(*) FROM pgqueuer"), 0)
    return seconds


async def _drain(url: str, n: int, batch: int) -> tuple[float, int]:
    import asyncpg
    from pgqueuer.models import Job
    from pgqueuer.qm import QueueManager
    from pgqueuer.queries import Queries

    async with asyncpg.create_pool(url, min_size=4, max_size=4) as pool:
        queries = Queries.from_asyncpg_pool(pool)
        manager = QueueManager(queries)
        await queries.install()
        await _enqueue(queries, n)
        handled = 0

        @manager.entrypoint("noop")
        async def noop(_job: Job) -> None:
            nonlocal handled
            handled += 1
            if handled == n:
                manager.shutdown.set()

        started = time.perf_counter()
        await manager.run(batch_size=batch, dequeue_timeout=timedelta(seconds=1))
        return time.perf_counter() - started, handled


async def _enqueue(queries: "Queries", n: int) -> None:
    for start in range(0, n, ENQUEUE_CHUNK):
        size = min(ENQUEUE_CHUNK, n - start)
        await queries.enqueue(["noop"] * size, [None] * size, [0] * size)


async def _latency(url: str, n: int) -> list[float]:
    import asyncpg
    from pgqueuer.core.completion import CompletionWatcher
    from pgqueuer.models import Job
    from pgqueuer.qm import QueueManager
    from pgqueuer.queries import Queries

    async with asyncpg.create_pool(url, min_size=4, max_size=4) as pool:
        queries = Queries.from_asyncpg_pool(pool)
        manager = QueueManager(queries)
        await queries.install()

        @manager.entrypoint("noop")
        async def noop(_job: Job) -> None:
            return None

        worker = asyncio.create_task(manager.run(batch_size=1))
        await asyncio.sleep(0.5)
        laps: list[float] = []
        debounce = timedelta(milliseconds=1)
        async with CompletionWatcher(queries.driver, queries=queries, debounce=debounce) as watcher:
            for _ in range(n):
                started = time.perf_counter()
                (job_id,) = await queries.enqueue(["noop"], [None], [0])
                await watcher.wait_for(job_id)
                laps.append(time.perf_counter() - started)
                await asyncio.sleep(0.01)
        manager.shutdown.set()
        await worker
        return laps


PEER = Peer("pgqueuer", "postgres", 20_000, drain, latency)

if __name__ == "__main__":
    main(PEER)
