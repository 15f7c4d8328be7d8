"""The schema of a Postgres database as parts, and the one the migrations make, kept as data.

Running the migrations just to look at their outcome would need a second database. So the outcome is
kept in `declared.json`; a test compares the two and `tools/declare_schema.py` writes it.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, Final

from flowfabric.stores.schema import Schema

# One row per part. NOT NULL is told with the column: only newer servers name it as a constraint.
# The schema's name is removed from definitions: it is the caller's choice.
PARTS: Final = """
WITH ours AS (
    SELECT c.oid, c.relname FROM pg_class AS c
    WHERE c.relkind IN ('r', 'p') AND c.relname LIKE 'ff\\_%'
        AND c.relnamespace = current_schema()::regnamespace
)
SELECT 'table ' || relname, 'exists' FROM ours
UNION ALL
SELECT 'column ' || o.relname || '.' || a.attname,
    format_type(a.atttypid, a.atttypmod)
    || CASE WHEN a.attcollation <> t.typcollation
        THEN ' COLLATE ' || (SELECT collname FROM pg_collation WHERE oid = a.attcollation)
        ELSE '' END
    || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
    || CASE WHEN a.attidentity <> '' THEN ' DEFAULT identity'
        WHEN d.adbin IS NOT NULL THEN ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid) ELSE '' END
FROM ours AS o
JOIN pg_attribute AS a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL
SELECT 'constraint ' || o.relname || '.' || k.conname, pg_get_constraintdef(k.oid)
FROM ours AS o
JOIN pg_constraint AS k ON k.conrelid = o.oid AND k.contype IN ('c', 'f', 'p', 'u', 'x')
UNION ALL
SELECT CASE WHEN i.indisunique THEN 'unique index ' ELSE 'index ' END
    || o.relname || '.' || x.relname,
    replace(pg_get_indexdef(i.indexrelid), ' ON ' || quote_ident(current_schema()) || '.', ' ON ')
    || CASE WHEN i.indisvalid THEN '' ELSE ' (invalid: it was not built to its end)' END
FROM ours AS o JOIN pg_index AS i ON i.indrelid = o.oid JOIN pg_class AS x ON x.oid = i.indexrelid
WHERE NOT EXISTS (SELECT 1 FROM pg_constraint AS k WHERE k.conindid = i.indexrelid)
UNION ALL
SELECT 'trigger ' || o.relname || '.' || g.tgname, pg_get_triggerdef(g.oid)
FROM ours AS o JOIN pg_trigger AS g ON g.tgrelid = o.oid AND NOT g.tgisinternal
UNION ALL
SELECT 'view ' || c.relname, 'exists' FROM pg_class AS c
WHERE c.relkind = 'v' AND c.relname LIKE 'ff\\_%'
    AND c.relnamespace = current_schema()::regnamespace
ORDER BY 1
"""


@cache
def declared_schema() -> Schema:
    """The parts that all migrations make."""
    text = (resources.files("flowfabric.stores.postgres") / "declared.json").read_text("utf-8")
    parts: dict[str, str] = json.loads(text)
    return parts


async def schema_of(connection: Any) -> Schema:
    """The parts of a database that are ours or on a table of ours."""
    return {row[0]: row[1] for row in await connection.fetch(PARTS)}
