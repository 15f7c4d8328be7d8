"""What a cycle costs PostgreSQL's log and indexes, in bytes: the same on a busy machine."""

from __future__ import annotations

import asyncio

from benchmarks.scenarios.raw import RawDatabase, connect
from flowfabric.bench import cycle
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, MeasurementFailed, versions

N = 10_000
_WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_INDEXES = (
    "SELECT indexrelname::text, pg_relation_size(indexrelid) FROM pg_stat_user_indexes "
    "WHERE relname LIKE 'ff\\_%' ORDER BY 1"
)


def measure(databases: Databases, n: int | None = None) -> Measurement:
    """Bytes of WAL per cycle, and of each index per execution afterwards."""
    if databases.store != "postgres":
        raise MeasurementFailed("only PostgreSQL has this log")
    count = n or N
    with databases.empty() as url:
        rate, wal, indexes = asyncio.run(_measured(url, count))
    return Measurement(
        scenario="wal",
        store=databases.store,
        n=count,
        throughput_per_s=round(rate, 1),
        settings={"batch": cycle.BATCH},
        extra={
            "wal_bytes_per_cycle": round(wal / count),
            "index_bytes_per_execution": round(sum(indexes.values()) / count),
            "by_index": {name: round(size / count) for name, size in indexes.items()},
        },
        versions=versions(),
    )


async def _measured(url: str, n: int) -> tuple[float, int, dict[str, int]]:
    await cycle.engine_rate(url, cycle.BATCH)  # migrates, and makes the first pages
    database = await connect(url)
    try:
        # A page that changes after a checkpoint is logged whole: one before, none in between.
        await database.execute("CHECKPOINT")
        before = await _sizes(database)
        start = (await database.fetch(_WAL))[0][0]
        rate, _ = await cycle.engine_rate(url, n)
        wal = int((await database.fetch(_WAL))[0][0] - start)
        after = await _sizes(database)
    finally:
        await database.close()
    grown = {name: after[name] - before[name] for name in after}
    return rate, wal, {name: size for name, size in grown.items() if size}


async def _sizes(database: RawDatabase) -> dict[str, int]:
    return {name: int(size) for name, size in await database.fetch(_INDEXES)}
