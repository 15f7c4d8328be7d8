"""Databases as text: made by the code of one release, loaded by the tests of all later ones."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import pytest

from tests.property.mint import MintSwitch
from tests.support.lab import Lab
from tests.support.living.book import begin_all
from tests.support.living.kind import Notes
from tests.support.living.records import Records, records_of

FOLDER: Final = Path(__file__).resolve().parents[2] / "stores" / "fixtures"
_ABOUT: Final = (
    "A FlowFabric database of schema {version} with living work of every kind, made by\n"
    "tools/make_fixture.py at commit {commit} for tests/stores/test_upgrade.py. Never edited.\n"
    "Its keys, tokens and lease ids were made for it and open nothing else.\n"
)
_ANNOTATIONS: Final = (
    "CREATE TABLE ff_migration_annotation (version INTEGER PRIMARY KEY, "
    "name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL);\n"
)


class Fixture(NamedTuple):
    """One stored database: its text, and beside it the memory of its maker."""

    family: str
    version: int

    def __str__(self) -> str:
        return f"v{self.version}-{self.family}"

    @property
    def sql(self) -> Path:
        """The database."""
        return FOLDER / f"{self}.sql"

    @property
    def json(self) -> Path:
        """The clock, the notes and the records."""
        shared = FOLDER / f"v{self.version}.json"  # while no record had numbers of events in it
        return shared if shared.exists() else FOLDER / f"{self}.json"

    def memory(self) -> Memory:
        """The memory of its maker."""
        return _memory(self.json)


class Memory(NamedTuple):
    """All that is known of a fixture besides its text."""

    about: str
    now: int  # the clock at the end
    notes: dict[str, Notes]  # by kind of living work
    records: Records


@cache
def _memory(path: Path) -> Memory:
    return Memory(**json.loads(path.read_text(encoding="utf-8")))


def stored() -> list[Fixture]:
    """Every fixture there is, oldest first."""
    names = (path.stem.removeprefix("v").split("-") for path in FOLDER.glob("v*.sql"))
    return sorted(
        (Fixture(family, int(version)) for version, family in names), key=lambda f: f[::-1]
    )


# --- making ------------------------------------------------------------------------------------


def make(url: str, *, commit: str) -> tuple[Fixture, str, Memory]:
    """Living work of every kind in an empty database: its fixture, its text and its memory.

    Ids and secrets are drawn from a numbered sequence: the same code makes the same fixture.
    """
    with pytest.MonkeyPatch.context() as patch:
        MintSwitch().install(patch)
        lab = Lab(url)
        lab.open()
        try:
            notes = lab.run(begin_all(lab))
            records = records_of(lab.run(lab.dump()))
            store = lab.engine.store
            fixture = Fixture(store.family, store.schema_version)
            schema = store.migration_sql()
        finally:
            lab.close()
    about = _ABOUT.format(version=fixture.version, commit=commit)
    header = "".join(f"-- {line}\n" for line in about.splitlines())
    text = _sqlite_text(url) if fixture.family == "sqlite" else _postgres_text(url, schema)
    return fixture, header + text, Memory(about, lab.now, notes, records)


def to_text(memory: Memory) -> str:
    """A memory as JSON, one record to a line."""
    parts = [f'"about": {json.dumps(memory.about)}', f'"now": {memory.now}']
    notes = [f"{json.dumps(name)}: {_json(each)}" for name, each in memory.notes.items()]
    parts.append('"notes": {\n' + ",\n".join(notes) + "\n}")
    tables = []
    for name, table in memory.records.items():
        rows = ",\n".join(map(_json, table["rows"]))
        tables.append(
            f'{json.dumps(name)}: {{"fields": {_json(table["fields"])}, "rows": [\n{rows}\n]}}'
        )
    parts.append('"records": {\n' + ",\n".join(tables) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- SQLite ------------------------------------------------------------------------------------


def _path(url: str) -> str:
    return url.removeprefix("sqlite:///")


def _sqlite_text(url: str) -> str:
    with closing(sqlite3.connect(_path(url))) as connection:
        return "\n".join(connection.iterdump()) + "\n"


# --- PostgreSQL --------------------------------------------------------------------------------

_TABLES: Final = (
    "SELECT relname::text FROM pg_class WHERE relkind = 'r' "
    "AND relnamespace = 'public'::regnamespace ORDER BY relname"
)
# A transaction's number means nothing in another server: the default gives a new one.
_COLUMNS: Final = (
    "SELECT column_name::text, is_identity = 'YES' AS counts FROM information_schema.columns "
    "WHERE table_schema = 'public' AND table_name = $1 AND data_type <> 'xid8' "
    "AND is_generated = 'NEVER' ORDER BY ordinal_position"
)
_KEY: Final = (
    "SELECT a.attname::text FROM pg_index AS i JOIN pg_attribute AS a "
    "ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
    "WHERE i.indisprimary AND i.indrelid = $1::text::regclass ORDER BY a.attnum"
)


def _postgres_text(url: str, schema: str) -> str:
    """The migrations as they were then, and the rows as inserts."""

    async def rows() -> str:
        connection = await asyncpg.connect(url)
        try:
            tables = [row[0] for row in await connection.fetch(_TABLES)]
            parts = [await _inserts(connection, table) for table in tables]
            last = await connection.fetchval("SELECT last_value FROM ff_event_id")
            parts.append(f"SELECT setval('ff_event_id', {last});\n")
        finally:
            await connection.close()
        # Migrations have filled some tables.
        return f"TRUNCATE {', '.join(tables)};\n" + "".join(parts)

    return f"{_ANNOTATIONS}\n{schema}\n{asyncio.run(rows())}"


async def _inserts(connection: Any, table: str) -> str:
    columns = await connection.fetch(_COLUMNS, table)
    key = ", ".join(row[0] for row in await connection.fetch(_KEY, table))
    quoted = " || ', ' || ".join(f"quote_nullable({row[0]}::text)" for row in columns)
    found = await connection.fetch(f"SELECT {quoted} FROM {table} ORDER BY {key}")
    if not found:
        return ""
    names = ", ".join(row[0] for row in columns)
    values = ",\n".join(f"({row[0]})" for row in found)
    text = f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE VALUES\n{values};\n"
    for name in (row[0] for row in columns if row["counts"]):
        last = await connection.fetchval(f"SELECT max({name}) FROM {table}")
        text += f"SELECT setval(pg_get_serial_sequence('{table}', '{name}'), {last});\n"
    return text


# --- loading -----------------------------------------------------------------------------------


def load(url: str, text: str) -> None:
    """Make an empty database the one that the text describes."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(_path(url))) as connection:
            connection.executescript(text)
        return

    async def execute() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(text)
        finally:
            await connection.close()

    asyncio.run(execute())


@contextmanager
def opened(url: str, now: int) -> Iterator[Lab]:
    """A lab on a database that the present code brings up to date, at the instant it was left."""
    lab = Lab(url)
    lab.clock.set(now)
    lab.open()
    try:
        yield lab
    finally:
        lab.close()
