"""The floor of `usage`: the row writes of a batch of reports as bare SQL, and nothing else.

Sixty-four reports of one budget change two rows, so a batch is one statement that writes them and
one commit. `coalesced=False` writes every report by itself, which is what a program does that does
not share its writes: each batch of 64 is then 128 updates, still in one commit.
"""

from __future__ import annotations

from benchmarks.scenarios.raw import PostgresDatabase, SqliteDatabase, connect
from flowfabric.bench.measurement import check_count
from flowfabric.clock import monotonic

_UPDATE = "UPDATE ff_budget_usage SET used = {}, updated_at = {} WHERE budget_id = {} {}"


async def measure_usage_floor(
    url: str, budget_id: str, n: int, batch: int, *, coalesced: bool = True
) -> float:
    """Reports per second of bare SQL on a database where the budget has usage rows."""
    database = await connect(url)
    try:
        found = await database.fetch("SELECT dimension, used, updated_at FROM ff_budget_usage")
        lines = sorted((str(row[0]), int(row[1]), int(row[2])) for row in found)
        begin = "BEGIN IMMEDIATE" if database.family == "sqlite" else "BEGIN"
        done = 0
        started = monotonic()
        while done < n:
            size = min(batch, n - done)
            await database.execute(begin)
            for reached in (done + size,) if coalesced else range(done + 1, done + size + 1):
                await _write(database, budget_id, [(d, u + reached, at) for d, u, at in lines])
            await database.execute("COMMIT")
            done += size
        seconds = monotonic() - started
        for name, before, _ in lines:
            sql = f"SELECT used FROM ff_budget_usage WHERE dimension = '{name}'"
            used = (await database.fetch(sql))[0][0]
            check_count(f"{name} used by the floor", int(used) - before, n)
    finally:
        await database.close()
    return n / seconds


async def _write(
    database: SqliteDatabase | PostgresDatabase, budget_id: str, lines: list[tuple[str, int, int]]
) -> None:
    """The rows of a budget, as one call of the driver."""
    if isinstance(database, SqliteDatabase):
        sql = _UPDATE.format("?", "?", "?", "AND dimension = ?")
        await database.write(sql, [(used, at, budget_id, name) for name, used, at in lines])
    else:
        source = "unnest($2::text[], $3::bigint[], $4::bigint[]) AS v (dimension, used, at)"
        sql = (
            f"UPDATE ff_budget_usage AS t SET used = v.used, updated_at = v.at FROM {source} "
            "WHERE t.budget_id = $1 AND t.dimension = v.dimension"
        )
        names, used, at = zip(*lines, strict=True)
        await database.write(sql, [budget_id, list(names), list(used), list(at)])
