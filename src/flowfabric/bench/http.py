"""A server beside the embedded engine, in the same run: what HTTP costs.

Each measure is taken on both in turn, on databases of their own, so that a busy machine disturbs
both; `ratio_to_embedded` is the median of the rounds' ratios, above 1 where the server is faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.assemble import open_backend
from flowfabric.bench import crowds, routing
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, check_count, percentile, versions
from flowfabric.bench.processes import drained_by_process
from flowfabric.bench.served import served
from flowfabric.bench.worker import submit as submit_tasks
from flowfabric.bench.workload import new_execution
from flowfabric.clock import monotonic
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker.worker import Worker

N = 4_000
ROUNDS = 3
BATCH = 100
BATCH_CONNECTIONS = 4
TASKS = 32
CONCURRENCIES = (100, 500)
SAMPLES = 100
_BETWEEN_LOOKS_S = 0.01


def measure(databases: Databases, n: int | None = None, *, rounds: int = ROUNDS) -> Measurement:
    """Every measure, embedded and through a server."""
    count = n or N
    rates: dict[str, Callable[[str], float]] = {
        "submit_batch_100": lambda url: asyncio.run(submit_batches(url, count)),
        "submit_single_gathered": lambda url: asyncio.run(submit_singles(url, count)),
        "submit_single_each_request": lambda url: asyncio.run(submit_each(url, count)),
        **{f"drain_{concurrency}": _drain_of(concurrency, count) for concurrency in CONCURRENCIES},
    }
    extra: dict[str, Any] = {}
    ratios: dict[str, float] = {}
    for name, rate in rates.items():
        pairs = [_pair(databases, rate) for _ in range(rounds)]
        extra[name] = {
            "embedded_per_s": round(median(each for each, _ in pairs), 1),
            "server_per_s": round(median(each for _, each in pairs), 1),
        }
        ratios[name] = round(median(there / here for here, there in pairs), 3)
    embedded, remote = _times(databases)
    for name, samples in remote.items():
        extra[name] = {
            f"{where}_{word}_ms": round(percentile(found[name], percent) * 1000, 2)
            for where, found in (("embedded", embedded), ("server", remote))
            for word, percent in (("p50", 50), ("p99", 99))
            if found.get(name)
        }
        check_count(name, len(samples), SAMPLES)
    extra["look_under_drain"] = _looks(databases, count)
    extra["idle_workers"] = crowds.idle_workers(databases)
    extra["event_readers"] = [crowds.event_readers(databases, n) for n in (500, crowds.READERS)]
    extra["memory"] = crowds.memory(databases)
    extra["route_table"] = {"ratio_to_bare": round(routing.ratio_to_bare(), 2)}
    extra["ratio_to_embedded"] = ratios
    return Measurement(
        scenario="http",
        store=databases.store,
        n=count,
        settings={"rounds": rounds, "batch": BATCH, "tasks": TASKS, "samples": SAMPLES},
        extra=extra,
        versions=versions(),
    )


def _pair(databases: Databases, rate: Callable[[str], float]) -> tuple[float, float]:
    """Embedded, and through a server, each on an empty database."""
    with databases.empty() as url:
        asyncio.run(_migrated(url))
        here = rate(url)
    with databases.empty() as url, served(url) as address:
        there = rate(address)
    return here, there


async def _migrated(url: str) -> None:
    engine = open_backend(url)
    await engine.start(migrate=True)
    await engine.close()


async def _created(engine: EngineBackend) -> int:
    counts = await engine.count_executions()
    return sum(sum(states.values()) for states in counts.values())


# --- submits -------------------------------------------------------------------------------------


async def _shared(
    url: str, n: int, callers: int, step: int, act: Callable[[EngineBackend, int], Awaitable[Any]]
) -> float:
    """Executions per second of several callers that share the work."""
    engine = open_backend(url)
    await engine.start(migrate=True)
    try:
        sizes = iter([min(step, n - start) for start in range(0, n, step)])

        async def call() -> None:
            for size in sizes:
                await act(engine, size)

        await act(engine, 1)  # the first connection, and the first statements
        started = monotonic()
        await asyncio.gather(*(call() for _ in range(callers)))
        seconds = monotonic() - started
        check_count("created", await _created(engine), n + 1)
    finally:
        await engine.close()
    return n / seconds


async def submit_batches(url: str, n: int) -> float:
    """In batches of 100, over four connections."""

    async def act(engine: EngineBackend, size: int) -> None:
        await engine.create_executions([new_execution() for _ in range(size)])

    return await _shared(url, n, BATCH_CONNECTIONS, BATCH, act)


async def submit_singles(url: str, n: int) -> float:
    """One by one by 32 tasks of one client, which gathers them."""

    async def act(engine: EngineBackend, size: int) -> None:
        await engine.call(new_execution())

    return await _shared(url, n, TASKS, 1, act)


async def submit_each(url: str, n: int) -> float:
    """One by one by 32 tasks, each in a request of its own; embedded, the tasks share commits."""
    if not url.startswith("http"):
        return await submit_singles(url, n)
    import aiohttp

    left = iter(range(n))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=TASKS)) as session:

        async def call() -> None:
            for _ in left:
                body = {"execution_kind": "bench", "input": {"bench": "x" * 88}}
                async with session.post(f"{url}/v1/executions", json=body) as answer:
                    check_count("status", answer.status, 201)
                    await answer.read()

        started = monotonic()
        await asyncio.gather(*(call() for _ in range(TASKS)))
        return n / (monotonic() - started)


# --- workers -------------------------------------------------------------------------------------


def _drain_of(concurrency: int, n: int) -> Callable[[str], float]:
    def rate(url: str) -> float:
        asyncio.run(submit_tasks(url, n))
        seen = drained_by_process(url, concurrency, n)
        check_count("handlers run", int(seen["handled"]), n)
        check_count("completions answered", int(seen["completed"]), n)
        return n / seen["seconds"]

    return rate


def _times(databases: Databases) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds from a submit to its result, from a cancel to the end of the handler, and of a look
    at an execution meanwhile."""
    with databases.empty() as url:
        asyncio.run(_migrated(url))
        embedded = asyncio.run(_seconds(url))
    with databases.empty() as url, served(url) as address:
        remote = asyncio.run(_seconds(address))
    return embedded, remote


def _looks(databases: Databases, n: int) -> dict[str, float]:
    """Times of looks at an execution while a worker drains, embedded and through a server."""
    found: dict[str, float] = {}
    for where in ("embedded", "server"):
        with databases.empty() as url, ExitStack() as stack:
            asyncio.run(_migrated(url))
            there = url if where == "embedded" else stack.enter_context(served(url))
            samples = asyncio.run(_looked_under_drain(there, n))
        for word, percent in (("p50", 50), ("p99", 99)):
            found[f"{where}_{word}_ms"] = round(percentile(samples, percent) * 1_000, 2)
    return found


async def _looked_under_drain(url: str, n: int) -> list[float]:
    await submit_tasks(url, n)
    engine = open_backend(url)
    await engine.start()
    draining = asyncio.create_task(asyncio.to_thread(drained_by_process, url, 100, n))
    samples = []
    try:
        (some,) = (await engine.list_executions(limit=1)).items
        while not draining.done():
            started = monotonic()
            await engine.describe_execution(execution_id=some.execution_id)
            samples.append(monotonic() - started)
            await asyncio.sleep(_BETWEEN_LOOKS_S)
        await draining
    finally:
        await engine.close()
    return samples


async def _seconds(url: str) -> dict[str, list[float]]:
    ff, stopped = Fabric(url), asyncio.Event()
    began = asyncio.Event()

    @ff.task
    async def quick() -> int:
        return 1

    @ff.task
    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    found: dict[str, list[float]] = {"submit_to_result": [], "cancel_to_stop": [], "look": []}
    async with ff:
        worker = Worker(ff, concurrency=2, lease_ttl="10m")
        running = asyncio.create_task(worker.run(handle_signals=False))
        await (await ff.submit(quick)).result("60s")
        for _ in range(SAMPLES):
            started = monotonic()
            run = await ff.submit(quick)
            await run.result("60s")
            found["submit_to_result"].append(monotonic() - started)
            began.clear()
            stopped.clear()
            stuck = await ff.submit(endless)
            await began.wait()
            started = monotonic()
            await stuck.state()
            found["look"].append(monotonic() - started)
            started = monotonic()
            await stuck.cancel("measured")
            await stopped.wait()
            found["cancel_to_stop"].append(monotonic() - started)
        worker.stop()
        await running
    return found
