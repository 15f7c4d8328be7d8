"""A log is one declaration and a migration; every store takes the rest from the declaration."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import flowfabric
from flowfabric.model.worker import WorkerEvent, WorkerEventType
from flowfabric.stores.base import Changes
from flowfabric.stores.logs import LOGS
from flowfabric.stores.migrations import schema_version_of
from flowfabric.stores.postgres.declared import declared_schema as postgres_schema
from flowfabric.stores.sqlite.declared import declared_schema as sqlite_schema

SCHEMAS = {"sqlite": sqlite_schema, "postgres": postgres_schema}


def columns_of(schema: Mapping[str, str], table: str) -> set[str]:
    start = f"column {table}."
    return {part.removeprefix(start) for part in schema if part.startswith(start)}


@pytest.mark.parametrize("store", SCHEMAS)
def test_a_log_has_the_columns_of_its_table(store: str) -> None:
    for log in LOGS:
        stored = columns_of(SCHEMAS[store](), log.name)
        assert stored - {"xact_id"} == {"event_id", *log.names}


def test_logs_are_written_in_one_order_whatever_happened_first() -> None:
    """Otherwise the statements of equal transactions would differ, and each be prepared anew."""
    worker = WorkerEvent("n", "w", WorkerEventType.REGISTERED, "", 1)
    changes = Changes()
    assert not changes
    assert changes.appended() == []
    for log in (LOGS[-1], LOGS[0]):
        changes.logged[log].append(worker)
    assert changes
    assert [log for log, _ in changes.appended()] == [LOGS[0], LOGS[-1]]


NOTE = '''
from __future__ import annotations

from collections.abc import Mapping

from flowfabric.model.record import Record
from flowfabric.model.worker import WorkerEventType


class NoteEvent(Record, frozen=True):
    """An event of a new kind."""

    note: str
    about: WorkerEventType | None
    size: int | None
    payload: bytes
    tags: Mapping[str, str]
    occurred_at: int
'''
RECORDS = "from flowfabric.model.record import Record\n"
DECLARED = """LOGS: Final[tuple[Log[Any], ...]] = (
    Log("ff_note_event", NoteEvent, dumped_as="note_events"),
"""
TABLE = """CREATE TABLE ff_note_event (
    event_id {key}, note TEXT NOT NULL, about TEXT, size {integer},
    payload {blob} NOT NULL, tags TEXT, occurred_at {integer} NOT NULL
){strict};
"""
DIALECTS = {
    "sqlite": {
        "key": "INTEGER PRIMARY KEY",
        "integer": "INTEGER",
        "blob": "BLOB",
        "strict": " STRICT",
    },
    "postgres": {
        "key": "BIGINT GENERATED ALWAYS AS IDENTITY, xact_id XID8 DEFAULT pg_current_xact_id()",
        "integer": "BIGINT",
        "blob": "BYTEA",
        "strict": "",
    },
}
STORY = """
import asyncio, sys
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.model.note import NoteEvent
from flowfabric.model.worker import WorkerEventType
from flowfabric.stores.base import Changes
from flowfabric.stores.logs import LOG_OF, LogQuery

async def story(url):
    engine = open_engine(url, config=EngineConfig(loops=False))
    await engine.start(migrate=True)
    store, log, kind = engine.store, LOG_OF[NoteEvent], WorkerEventType.REGISTERED
    first = NoteEvent("a", None, None, b"\\0", {}, 1)
    events = [first, NoteEvent("b", kind, 7, b"", {"k": "v"}, 2)]
    changes = Changes()
    for event in events:
        changes.log(event)
    await store.transact(lambda tx: tx.save(changes))
    entries = await store.read(lambda reader: reader.read_log(log, LogQuery(limit=10)))
    assert [event for _, event in entries] == events, entries
    assert (await store.dump())["note_events"] == events
    trim = lambda tx: tx.trim(log, 9, 9)
    assert len(await store.transact(trim)) == 1
    assert await store.read(lambda reader: reader.read_log(log, LogQuery(limit=10))) == entries[1:]
    assert await store.read(lambda reader: reader.odd_values()) == []
    await engine.close()

asyncio.run(story(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with one more log."""
    root = tmp_path_factory.mktemp("extended")
    package = root / "flowfabric"
    source = Path(flowfabric.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "model" / "note.py").write_text(NOTE)
    logs = package / "stores" / "logs.py"
    text = logs.read_text().replace(DECLARED.splitlines(keepends=True)[0], DECLARED)
    text = text.replace(RECORDS, f"from flowfabric.model.note import NoteEvent\n{RECORDS}")
    logs.write_text(text)
    for store, words in DIALECTS.items():
        name = f"{schema_version_of(store) + 1:04d}_notes.sql"
        (package / "stores" / store / "migrations" / name).write_text(TABLE.format(**words))
    return root


def test_a_new_log_is_one_declaration_and_a_migration(extended: Path, empty_url: str) -> None:
    """It is written, read, dumped, trimmed and audited on every store."""
    run = subprocess.run(
        [sys.executable, "-c", STORY, empty_url],
        env={**os.environ, "PYTHONPATH": str(extended)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
