"""A durable store as its database sees it: tables, columns and rows, behind the engine's back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from tests.support.lab import Lab

# Rows of the schema itself, which are there before anything happens.
SCHEMA_TABLES = ("ff_migration_annotation", "ff_partition_config", "ff_state")


class Column(NamedTuple):
    """One column of the real schema."""

    table: str
    name: str
    kind: str  # integer, text, uuid or blob
    bits: int  # of an integer
    nullable: bool


class Refused(Exception):
    """The schema does not let a value pass."""


class Backdoor:
    """Reads the schema, changes rows, and puts everything back as it was."""

    def __init__(self, lab: Lab) -> None:
        self.is_sqlite = lab.url.startswith("sqlite")
        self._url = lab.url
        self._sqlite: sqlite3.Connection | None = None
        self._postgres: Any = None

    async def open(self) -> None:
        """Connect."""
        if self.is_sqlite:
            path = self._url.removeprefix("sqlite:///")
            self._sqlite = sqlite3.connect(path, isolation_level=None)
            self._sqlite.execute("ATTACH ? AS keep", (f"{Path(path).with_suffix('.keep')}",))
        else:
            self._postgres = await asyncpg.connect(self._url, statement_cache_size=0)

    async def close(self) -> None:
        """Hang up, and leave nothing behind."""
        if self._sqlite is not None:
            self._sqlite.close()
        else:
            await self._postgres.execute("DROP SCHEMA IF EXISTS keep CASCADE")
            await self._postgres.close()

    async def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a statement answers."""
        if self._sqlite is not None:
            return self._sqlite.execute(sql, values).fetchall()
        return [tuple(row) for row in await self._postgres.fetch(sql, *values)]

    async def run(self, sql: str) -> None:
        """Several statements, all or none."""
        if self._sqlite is not None:
            self._sqlite.executescript(f"BEGIN IMMEDIATE; {sql}; COMMIT")
        else:
            await self._postgres.execute(sql)

    async def tables(self) -> list[str]:
        """Every table there is."""
        if self._sqlite is not None:
            found = await self.rows("SELECT name FROM main.sqlite_master WHERE type = 'table'")
        else:
            found = await self.rows(
                "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') "
                "AND relnamespace = 'public'::regnamespace"
            )
        return sorted(row[0] for row in found)

    async def columns(self, but: Sequence[str] = ()) -> list[Column]:
        """Every column of every table but these."""
        tables = [name for name in await self.tables() if name not in but]
        if self._sqlite is None:
            return await self._postgres_columns(tables)
        found = []
        for table in tables:
            for row in await self.rows(f"PRAGMA main.table_info({table})"):
                is_key = bool(row[5])
                kind = row[2].lower()
                found.append(Column(table, row[1], kind, 64, not (row[3] or is_key)))
        return found

    async def _postgres_columns(self, tables: list[str]) -> list[Column]:
        rows = await self.rows(
            "SELECT table_name::text, column_name::text, data_type::text, is_nullable::text "
            "FROM information_schema.columns WHERE table_schema = 'public' "
            "AND table_name = ANY($1) ORDER BY table_name, ordinal_position",
            tables,
        )
        kinds = {"bigint": ("integer", 64), "integer": ("integer", 32), "smallint": ("integer", 16)}
        found = []
        for table, name, said, nullable in rows:
            kind, bits = kinds.get(said, ({"bytea": "blob"}.get(said, said), 0))
            found.append(Column(table, name, kind, bits, nullable == "YES"))
        return found

    async def addresses(self, table: str, but: str) -> list[str]:
        """A condition for each row that it alone meets; not for rows with this text in them."""
        quote = "quote({})" if self.is_sqlite else "quote_literal({}::text)"
        parts = [f"'{name} = ' || {quote.format(name)}" for name in await self._key(table)]
        address = " || ' AND ' || ".join(parts)
        found = await self.rows(f"SELECT {address}, t.* FROM {self._main}.{table} AS t")
        return [row[0] for row in found if but not in row]

    async def _key(self, table: str) -> list[str]:
        if self._sqlite is not None:
            info = await self.rows(f"PRAGMA main.table_info({table})")
            return [row[1] for row in info if row[5]]
        found = await self.rows(
            "SELECT a.attname::text FROM pg_index AS i JOIN pg_attribute AS a "
            "ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indisprimary AND i.indrelid = $1::text::regclass",
            table,
        )
        return [row[0] for row in found]

    async def change(self, column: Column, value: str, row: str) -> None:
        """Write a value that the engine would not; refused if the schema does not take it."""
        sql = f"UPDATE {column.table} SET {column.name} = {value} WHERE {row}"
        try:
            if self._sqlite is not None:
                changed = self._sqlite.execute(sql).rowcount
            else:
                changed = int((await self._postgres.execute(sql)).split()[-1])
        except (sqlite3.IntegrityError, sqlite3.OperationalError, asyncpg.PostgresError) as error:
            raise Refused(f"{sql}: {error}") from None
        assert changed == 1, sql

    async def keep(self) -> None:
        """Remember everything as it is now."""
        if not self.is_sqlite:
            await self.run("CREATE SCHEMA keep")
        copies = [
            f"CREATE TABLE keep.{name} AS SELECT * FROM {self._main}.{name}"
            for name in await self.tables()
        ]
        await self.run("; ".join(copies))

    async def restore(self, version: int) -> None:
        """Put everything back; the catalog gets a version that no engine has seen."""
        steps = []
        for name in await self.tables():
            steps.append(f"DELETE FROM {self._main}.{name}")
            over = "" if self.is_sqlite else " OVERRIDING SYSTEM VALUE"
            steps.append(f"INSERT INTO {self._main}.{name}{over} SELECT * FROM keep.{name}")
        steps.append(f"UPDATE {self._main}.ff_partition_config SET catalog_version = {version}")
        await self.run("; ".join(steps))

    @property
    def _main(self) -> str:
        return "main" if self.is_sqlite else "public"
