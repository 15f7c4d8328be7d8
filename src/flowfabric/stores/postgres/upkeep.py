"""The health of a Postgres database: dead rows, autovacuum, long transactions, bloated indexes."""

from __future__ import annotations

from typing import Any, Final

DEAD_SHARE: Final = 0.2  # of a table's rows: autovacuum begins long before
DEAD_ROWS: Final = 20_000
TRANSACTION_S: Final = 3_600  # while one is open, no dead row younger than it can be removed
BLOAT_SHARE: Final = 0.5
BLOAT_BYTES: Final = 32 * 1024 * 1024

_SETTINGS: Final = ("server_version", "synchronous_commit", "fsync", "autovacuum")
_TABLES: Final = """
SELECT relname, n_live_tup, n_dead_tup,
    extract(epoch FROM greatest(last_vacuum, last_autovacuum))::bigint * 1000
FROM pg_stat_user_tables WHERE relname LIKE 'ff\\_%' AND schemaname = current_schema()
"""
# Another role's transactions are only visible as far as the role may see them.
_TRANSACTIONS: Final = """
SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::bigint,
    coalesce(nullif(application_name, ''), usename::text, '') FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
ORDER BY xact_start LIMIT 1
"""
# The size of a freshly built index for its rows, by the statistics: 8 bytes of header and 4 of
# pointer each, pages filled to nine tenths. A small index is never told of, so its columns are not
# looked up: that would be most of an audit.
_INDEXES: Final = """
WITH large AS MATERIALIZED (
    SELECT x.oid, x.relname, x.reltuples, t.relname AS of, i.indrelid, i.indkey,
        pg_relation_size(x.oid) AS bytes
    FROM pg_index AS i
    JOIN pg_class AS x ON x.oid = i.indexrelid
    JOIN pg_class AS t ON t.oid = i.indrelid AND t.relname LIKE 'ff\\_%'
        AND t.relnamespace = current_schema()::regnamespace
    WHERE pg_relation_size(x.oid) >= $1
)
SELECT l.relname, l.of, l.bytes,
    (greatest(l.reltuples, 0) * (12 + sum(coalesce(s.avg_width, 8))) / 0.9)::bigint
FROM large AS l
JOIN pg_attribute AS a ON a.attrelid = l.indrelid AND a.attnum = ANY(l.indkey)
LEFT JOIN pg_stats AS s
    ON s.schemaname = current_schema() AND s.tablename = l.of AND s.attname = a.attname
GROUP BY l.oid, l.relname, l.of, l.reltuples, l.bytes
"""


async def server_facts(connection: Any) -> dict[str, Any]:
    """Facts about the server and its tables for doctor."""
    tables = await connection.fetch(_TABLES)
    oldest = await connection.fetchrow(_TRANSACTIONS)
    return {
        "bytes": await connection.fetchval("SELECT pg_database_size(current_database())"),
        **{name: await connection.fetchval(f"SHOW {name}") for name in _SETTINGS},
        "dead_rows": sum(row[2] for row in tables),
        "last_vacuum_at": max((row[3] for row in tables if row[3] is not None), default=None),
        "oldest_transaction_s": 0 if oldest is None else oldest[1],
    }


async def server_upkeep(connection: Any) -> list[tuple[str, str, str]]:
    """Warnings for an operator."""
    found = []
    for name, live, dead, vacuumed in await connection.fetch(_TABLES):
        if dead >= DEAD_ROWS and dead >= DEAD_SHARE * (live + dead):
            last = "never vacuumed" if vacuumed is None else f"last vacuumed at {vacuumed}"
            found.append(("dead_rows", name, f"{dead} dead rows beside {live}, {last}"))
    oldest = await connection.fetchrow(_TRANSACTIONS)
    if oldest is not None and oldest[1] >= TRANSACTION_S:
        what = f"its transaction is open for {oldest[1]} s"
        found.append(("old_transaction", f"pid {oldest[0]} ({oldest[2]})", what))
    for index, table, size, needed in await connection.fetch(_INDEXES, BLOAT_BYTES):
        if size - needed >= BLOAT_BYTES and size - needed >= BLOAT_SHARE * size:
            what = f"{size} bytes, its rows need about {needed}"
            found.append(("index_bloat", f"{table}.{index}", what))
    return found
