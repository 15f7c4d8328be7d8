"""Procrastinate on PostgreSQL: one worker drains a backlog of no-op async tasks.

Measured: from `App.run_worker_async(wait=False)` until it returns, which is when the queue is
empty and every job's final status is committed. The backlog is deferred in bulk before.

What it keeps: the job row with its status and an event per transition (written by a trigger).
What it does not keep: no result and no lease; finishing is guarded by status, not by owner.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from benchmarks.peers.common import (
    Peer,
    PeerFailure,
    PeerResult,
    check_count,
    count_rows,
    drained,
    fresh_database,
    installed_version,
    main,
    timed,
)

T = TypeVar("T")

CONCURRENCY = 30
LATENCY_LIMIT_S = 10.0


def drain(url_or_path: str, n: int) -> PeerResult:
    with fresh_database(url_or_path, "procrastinate") as url:
        seconds, handled = _run(_drain(url, n))
        check_count("procrastinate handlers run", handled, n)
        finished = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"
        check_count("procrastinate jobs succeeded", count_rows(url, finished), n)
    return drained(
        "procrastinate",
        "postgres",
        n,
        seconds,
        setting=f"concurrency {CONCURRENCY}, psycopg pool, {_loop()}",
        note="keeps status and events, no result or lease",
    )


def latency(url_or_path: str, n: int) -> PeerResult:
    """Defer one job, ask for its status each millisecond until it succeeded (it has no result)."""
    with fresh_database(url_or_path, "procrastinate") as url:
        laps = _run(_latency(url, n))
    setting = "LISTEN/NOTIFY (default), status polled every 1 ms"
    return timed("procrastinate", "postgres", laps, setting=setting, note="keeps no result")


def _loop() -> str:
    return "uvloop" if installed_version("uvloop") else "asyncio"


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run under uvloop where it is installed, as PgQueuer does, so neither has the worse loop."""
    if _loop() == "asyncio":
        return asyncio.run(coroutine)
    import uvloop

    return uvloop.run(coroutine)


async def _drain(url: str, n: int) -> tuple[float, int]:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=CONCURRENCY))
    handled = 0

    @app.task(name="noop")
    async def noop() -> None:
        nonlocal handled
        handled += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await noop.batch_defer_async(*({} for _ in range(n)))
        started = time.perf_counter()
        await app.run_worker_async(
            wait=False, concurrency=CONCURRENCY, install_signal_handlers=False
        )
        return time.perf_counter() - started, handled


async def _latency(url: str, n: int) -> list[float]:
    from procrastinate import App, PsycopgConnector
    from procrastinate.jobs import Status

    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=8))

    @app.task(name="noop")
    async def noop() -> None:
        return None

    async def submit_and_wait() -> None:
        job_id = await noop.defer_async()
        while await app.job_manager.get_job_status_async(job_id) is not Status.SUCCEEDED:  # noqa: ASYNC110 - the peer offers no event
            await asyncio.sleep(0.001)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(app.run_worker_async(install_signal_handlers=False))
        await asyncio.sleep(0.5)
        laps: list[float] = []
        for _ in range(n):
            started = time.perf_counter()
            try:
                await asyncio.wait_for(submit_and_wait(), LATENCY_LIMIT_S)
            except TimeoutError:
                raise PeerFailure("procrastinate job not finished in time") from None
            laps.append(time.perf_counter() - started)
            await asyncio.sleep(0.01)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return laps


PEER = Peer("procrastinate", "postgres", 2_000, drain, latency)

if __name__ == "__main__":
    main(PEER)
