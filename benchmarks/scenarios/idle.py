"""What an idle engine with one worker asks of its database."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any

from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, versions
from flowfabric.bench.workload import TOPIC, Tally, no_op_task
from flowfabric.clock import monotonic
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker import Worker

SECONDS = 60  # housekeeping comes once in such a time
WARM_UP_S = 3.0
_BRACKETS = ("BEGIN", "COMMIT", "ROLLBACK")
_METHODS = ("execute", "executemany", "fetch", "fetchrow", "fetchval")


def measure(databases: Databases, n: int | None = None) -> Measurement:
    """Statements per second over n seconds; BEGIN, COMMIT and ROLLBACK counted apart."""
    seconds = n or SECONDS
    statements: Counter[str] = Counter()
    watching = _watched_sqlite if databases.store == "sqlite" else _watched_postgres
    with databases.empty() as url, watching(statements):
        elapsed = asyncio.run(_idle(url, seconds, statements))
    brackets = sum(statements[word] for word in _BRACKETS)
    total = sum(statements.values())
    return Measurement(
        scenario="idle",
        store=databases.store,
        n=seconds,
        throughput_per_s=round((total - brackets) / elapsed, 2),
        settings={"seconds": seconds, "workers": 1, "counted": "queries without BEGIN/COMMIT"},
        extra={
            "queries_per_s": round((total - brackets) / elapsed, 2),
            "with_transaction_brackets_per_s": round(total / elapsed, 2),
            "by_statement": dict(statements.most_common(20)),
        },
        versions=versions(),
    )


async def _idle(url: str, seconds: float, statements: Counter[str]) -> float:
    fabric = Fabric(url)
    task = no_op_task(fabric, Tally())
    async with fabric:
        worker = Worker(fabric)
        running = asyncio.create_task(worker.run(handle_signals=False))
        await (await task.submit(TOPIC)).result()  # an engine that has never worked asks less
        await asyncio.sleep(WARM_UP_S)
        statements.clear()
        started = monotonic()
        await asyncio.sleep(seconds)
        elapsed = monotonic() - started
        seen = statements.copy()
        worker.stop()
        await running
    statements.clear()
    statements.update(seen)
    return elapsed


def _short(sql: str) -> str:
    words = sql.split()
    if words and words[0].upper() in _BRACKETS:
        return words[0].upper()
    return " ".join(words)[:70]


@contextmanager
def _watched_sqlite(statements: Counter[str]) -> Iterator[None]:
    """Every connection opened meanwhile tells what it runs."""
    connect = sqlite3.connect

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(lambda sql: statements.update([_short(sql)]))
        return connection

    setattr(sqlite3, "connect", watched)  # noqa: B010 - restored below
    try:
        yield
    finally:
        setattr(sqlite3, "connect", connect)  # noqa: B010


@contextmanager
def _watched_postgres(statements: Counter[str]) -> Iterator[None]:
    """Every call of every asyncpg connection, pooled or not, is counted."""
    kind = import_module("asyncpg").Connection
    originals = {name: getattr(kind, name) for name in _METHODS}

    def watch(original: Any) -> Any:
        @wraps(original)
        async def watched(self: Any, query: str, *args: Any, **options: Any) -> Any:
            statements.update([_short(query)])
            return await original(self, query, *args, **options)

        return watched

    for name, original in originals.items():
        setattr(kind, name, watch(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(kind, name, original)
