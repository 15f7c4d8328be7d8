"""Writes down what the Postgres migrations make, for `ff doctor` to compare databases with.

Run it after a migration was added: `.venv/bin/python tools/declare_schema.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import asyncpg

ROOT = Path(__file__).resolve().parent.parent
DECLARATION = ROOT / "src/flowfabric/stores/postgres/declared.json"


async def written(url: str) -> str:
    """The schema of a migrated database, one part to a line."""
    from flowfabric.stores.postgres.declared import schema_of

    connection = await asyncpg.connect(url)
    try:
        return json.dumps(dict(await schema_of(connection)), indent=1, ensure_ascii=False) + "\n"
    finally:
        await connection.close()


def main() -> None:
    """Migrate a database of a server of our own, and write its schema down."""
    sys.path.insert(0, str(ROOT))
    from tests.support.databases import postgres_server

    with postgres_server() as server, server.database() as url:
        DECLARATION.write_text(asyncio.run(written(url)), encoding="utf-8")


if __name__ == "__main__":
    main()
