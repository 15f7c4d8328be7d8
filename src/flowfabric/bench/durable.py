"""Workflows of ten no-op steps: how many a worker ends per second, what a step costs alone, how
fast a long journal is replayed, and what peers do with the same work. Then waits, children and
tests by the kit."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from flowfabric.bench import durable_kit, durable_peers, durable_waits
from flowfabric.bench.databases import Databases, Server
from flowfabric.bench.measurement import Measurement, check_count, versions
from flowfabric.bench.workload import Stopwatch
from flowfabric.clock import monotonic
from flowfabric.sdk.context.context import Context
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker.worker import Worker

N: Final = 2_000
ROUNDS: Final = 3
STEPS: Final = 10
CONCURRENCY: Final = 100
LAPS: Final = 30  # lone workflows
ENTRIES: Final = 1_000  # of a journal that is replayed
FAMILIES: Final = 5  # parents of a hundred children, of each form
TESTS: Final = 5  # by the kit, of each form
_LOG_BYTES: Final = 8 << 20  # more than SQLite's log grows to between two checkpoints
_INSERT: Final = "INSERT INTO bench_floor (value) VALUES ('0123456789')"
_TABLE: Final = "CREATE TABLE bench_floor (id INTEGER PRIMARY KEY, value TEXT)"
_CONNECTED: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"
_COMMITS: Final = "SELECT xact_commit FROM pg_stat_database WHERE datname = $1"


def measure(
    databases: Databases,
    n: int | None = None,
    *,
    rounds: int = ROUNDS,
    laps: int = LAPS,
    entries: int = ENTRIES,
    families: int = FAMILIES,
    tests: int = TESTS,
) -> Measurement:
    """Each round on databases of its own, ours and the peers' in turns; medians of the rounds."""
    count = n or N
    ours: list[float] = []
    reads: list[float] = []
    commits: list[float | None] = []
    peers: dict[str, list[float]] = {}
    notes: dict[str, str] = {}
    for _ in range(rounds):
        rate, per_workflow = _drained(databases, count, effects=True)
        ours.append(rate)
        commits.append(per_workflow)
        reads.append(_drained(databases, count, effects=False)[0])
        for name, peer in durable_peers.PEERS.items():
            with databases.empty() as url:
                found = peer(url, max(1, count // 5), STEPS, CONCURRENCY)
            if isinstance(found, str):
                notes[name] = found
            else:
                peers.setdefault(name, []).append(found)
    return Measurement(
        scenario="durable",
        store=databases.store,
        n=count,
        throughput_per_s=round(median(ours), 1),
        settings={"steps": STEPS, "concurrency": CONCURRENCY, "rounds": rounds, "processes": 1},
        extra={
            "rounds_per_s": [round(rate, 1) for rate in ours],
            "reads_per_s": round(median(reads), 1),
            "commits_per_workflow": _middle(commits),
            **_lone(databases, laps),
            **_replayed(databases, entries, rounds),
            **durable_waits.measure(databases, laps, families),
            **durable_kit.measure(tests),
            **_compared(median(ours), peers),
            "notes": notes,
        },
        versions=versions(),
    )


def _compared(ours: float, peers: dict[str, list[float]]) -> dict[str, float | None]:
    """The rate of each peer and ours in its terms; null where it could not be measured."""
    found: dict[str, float | None] = {}
    for name in durable_peers.PEERS:
        rates = peers.get(name)
        found[f"{name}_per_s"] = round(median(rates), 1) if rates else None
        found[f"ratio_to_{name}"] = round(ours / median(rates), 2) if rates else None
    return found


def _middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 3) if known else None


# --- many at once ---------------------------------------------------------------------------------


def _drained(databases: Databases, n: int, *, effects: bool) -> tuple[float, float | None]:
    """Workflows per second, and commits of the server per workflow, if there is a server."""
    with databases.empty() as url:
        asyncio.run(submitted(url, n))
        count = partial(_commits, databases, url)
        before = count()
        rate = asyncio.run(drain(url, n, effects=effects))
        after = count()
    return rate, None if before is None or after is None else (after - before) / n


async def submitted(url: str, n: int) -> None:
    """Prepare a backlog."""
    async with Fabric(url) as fabric:
        task = _workflow(fabric, effects=True, ended=lambda: None)
        await fabric.submit_many(task, [0] * n)


def _workflow(
    fabric: Fabric, *, effects: bool, ended: Callable[[], None], steps: int = STEPS
) -> Any:
    @fabric.step(effects=effects)
    async def step(number: int) -> int:
        return number + 1

    @fabric.task(name="bench")
    async def ten_steps(number: int) -> int:
        for _ in range(steps):
            number = await step(number)
        ended()
        return number

    return ten_steps


async def drain(url: str, n: int, *, effects: bool = True, steps: int = STEPS) -> float:
    """Workflows per second of a worker in this process, from its first claim to the last commit."""
    ended = 0

    def count() -> None:
        nonlocal ended
        ended += 1

    async with Fabric(url) as fabric:
        _workflow(fabric, effects=effects, ended=count, steps=steps)
        worker = Worker(fabric, concurrency=CONCURRENCY)
        watch = Stopwatch(await fabric.start())

        def stop_at_the_end() -> None:
            if watch.completed >= n:
                worker.stop()

        watch.on_completion = stop_at_the_end
        await worker.run(handle_signals=False)
    check_count("handlers ended", ended, n)
    check_count("completions answered", watch.completed, n)
    return n / watch.seconds


def _commits(databases: Databases, url: str) -> int | None:
    """Of a database, by the server's own counter."""
    if not isinstance(databases, Server):
        return None
    return asyncio.run(commits(databases.url, urlsplit(url).path.lstrip("/")))


async def commits(url: str, name: str) -> int:
    """Of a database without connections: each adds to the counter when it ends, at the latest."""
    connection: Any = await import_module("asyncpg").connect(url)
    try:
        while await connection.fetchval(_CONNECTED, name):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
        return int(await connection.fetchval(_COMMITS, name))
    finally:
        await connection.close()


# --- one alone ------------------------------------------------------------------------------------


def _lone(databases: Databases, laps: int) -> dict[str, float]:
    """What a step of a lone workflow costs, beside one insert that is durable by itself."""
    with databases.empty() as url:
        steps, cpu, inserts = asyncio.run(_alone(url, laps))
    return {
        "step_us": round(steps * 1e6, 1),
        "step_cpu_us": round(cpu * 1e6, 1),
        "insert_us": round(inserts * 1e6, 1),
        "step_to_insert": round(steps / inserts, 2),
    }


async def _alone(url: str, laps: int) -> tuple[float, float, float]:
    """Seconds of a step, of CPU time of this process, and of an insert, in turns."""
    steps: list[tuple[float, float]] = []
    inserts: list[float] = []
    insert, close = await _inserter(url)
    async with Fabric(url) as fabric:

        @fabric.step
        async def step(number: int) -> int:
            return number + 1

        @fabric.task(name="lone")
        async def lone(ctx: Context) -> tuple[float, float]:
            await step(0)
            await ctx.flush()
            started, cpu = monotonic(), time.process_time()
            for number in range(STEPS):
                await step(number)
            await ctx.flush()
            return (monotonic() - started) / STEPS, (time.process_time() - cpu) / STEPS

        worker = Worker(fabric, concurrency=CONCURRENCY)
        running = asyncio.create_task(worker.run(handle_signals=False))
        for _ in range(laps):
            steps.append(await (await fabric.submit(lone)).result())
            started = monotonic()
            for _ in range(STEPS):
                await insert()
            inserts.append((monotonic() - started) / STEPS)
        worker.stop()
        await running
    await close()
    seconds, cpu = zip(*steps, strict=True)
    return median(seconds), median(cpu), median(inserts)


async def _inserter(url: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A function that makes one row durable, and one that closes its connection. On SQLite the row
    goes to a file beside, whose log is as large as that of the database."""
    if urlsplit(url).scheme == "sqlite":
        path = unquote(urlsplit(url).path)[1:]
        database, file = _used(path), _used(f"{path}-beside")  # removed together
        file.execute(_TABLE)

        async def insert() -> None:
            file.execute(_INSERT)

        async def close() -> None:
            file.close()
            database.close()

        return insert, close
    connection: Any = await import_module("asyncpg").connect(url)
    await connection.execute(_TABLE.replace("INTEGER", "BIGSERIAL"))
    statement = await connection.prepare(_INSERT)
    return statement.fetch, connection.close


def _used(path: str) -> sqlite3.Connection:
    """A file whose log was filled once and begins anew, as in a database that has worked for a
    while: a commit that makes its log longer takes about twice as long. The log stays while the
    connection is open."""
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = FULL")
    file.execute("CREATE TABLE bench_log AS SELECT zeroblob(?) AS filler", (_LOG_BYTES,))
    file.execute("PRAGMA wal_checkpoint(RESTART)")
    return file


# --- a long journal -------------------------------------------------------------------------------


def _replayed(databases: Databases, entries: int, rounds: int) -> dict[str, float]:
    found = []
    for _ in range(rounds):
        with databases.empty() as url:
            found.append(asyncio.run(_replay(url, entries)))
    load, run, replay = (median(each) * 1000 for each in zip(*found, strict=True))
    return {
        "replay_entries": entries,
        "load_ms": round(load, 2),
        "run_ms": round(run, 2),
        "replay_ms": round(replay, 2),
        "replay_to_run": round(replay / run, 3),
    }


async def _replay(url: str, entries: int) -> tuple[float, float, float]:
    """Seconds to load a journal, to run its handler, and to run it answered from the journal."""
    took: dict[str, float] = {}
    ran = 0
    async with Fabric(url) as fabric:

        @fabric.step(effects=False)
        async def step(number: int) -> int:
            nonlocal ran
            ran += 1
            return number

        @fabric.task(name="long", retries=1, backoff="1ms")
        async def long(ctx: Context) -> None:
            started = monotonic()
            for number in range(entries):
                await step(number)
            await ctx.flush()
            took["run" if ctx.attempt == 1 else "replay"] = monotonic() - started
            if ctx.attempt == 1:
                raise ValueError("again")

        engine = await fabric.start()
        load = engine.load_journal

        async def timed(*args: Any, **more: Any) -> Any:
            started = monotonic()
            page = await load(*args, **more)
            took["load"] = took.get("load", 0.0) + monotonic() - started
            return page

        setattr(engine, "load_journal", timed)  # noqa: B010 - a method of one object
        worker = Worker(fabric, concurrency=CONCURRENCY)
        running = asyncio.create_task(worker.run(handle_signals=False))
        await (await fabric.submit(long)).result()
        worker.stop()
        await running
    check_count("steps run", ran, entries)
    return took["load"], took["run"], took["replay"]
