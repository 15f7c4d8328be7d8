"""A field of an execution is a line of its record and a migration; stores take the rest from the
annotation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flowfabric
from flowfabric.stores.migrations import schema_version_of

LAST = "    bounds: InBody[Bounds] = UNBOUNDED\n"
# Without a marker, with each kind of value, and with markers.
ADDED = """    note_count: int = 0
    note: str | None = None
    note_type: AttemptType | None = None
    note_grant: Bounds = UNBOUNDED
    step_note: Step[str | None] = None
    taken_notes: Taken[Counter] = 0
    later_note: Later[AttemptType] = AttemptType.INITIAL
    body_note: InBody[Mapping[str, str]] = {}
"""
MIGRATION = """ALTER TABLE ff_exec_core ADD COLUMN note_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ff_exec_core ADD COLUMN note TEXT;
ALTER TABLE ff_exec_core ADD COLUMN note_type TEXT;
ALTER TABLE ff_exec_core ADD COLUMN note_grant TEXT;
ALTER TABLE ff_exec_core ADD COLUMN step_note TEXT;
ALTER TABLE ff_exec_core ADD COLUMN taken_notes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_exec_core ADD COLUMN later_note TEXT NOT NULL DEFAULT 'initial';
ALTER TABLE ff_exec_body ADD COLUMN body_note TEXT;
"""
STORY = """
import asyncio, sys
from flowfabric.api.executions import NewExecution
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.model.attempt import AttemptType
from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.execution import Body
from flowfabric.model.record import replace
from flowfabric.stores.base import Changes, ListFilter

WRITTEN = dict(
    note_count=7, note="seven", note_type=AttemptType.RETRY, note_grant=Bounds(budget_ids=("b",)),
    step_note="step", taken_notes=3, later_note=AttemptType.REPLAY,
)
BORN = dict(
    note_count=8, note="eight", note_type=AttemptType.RECLAIM, note_grant=Bounds(budget_ids=("c",)),
    body_note={"a": "b"},
)
DEFAULTS = dict(
    note_count=0, note=None, note_type=None, note_grant=UNBOUNDED, step_note=None, taken_notes=0,
    later_note=AttemptType.INITIAL, body_note={},
)

def notes(execution):
    return {name: getattr(execution, name) for name in DEFAULTS}

async def change(store, key, **fields):
    async def work(tx):
        before = (await tx.load([key]))[key]
        changes = Changes()
        changes.update(before, replace(before, **fields))
        await tx.save(changes)
    await store.transact(work)

async def story(url):
    engine = open_engine(url, config=EngineConfig(loops=False))
    await engine.start(migrate=True)
    store = engine.store
    async def read(key):
        return (await store.read(lambda reader: reader.get([key])))[key]

    (made,) = await engine.create_executions([NewExecution(execution_kind="k")])
    key = made.execution_id
    first = await read(key)
    assert notes(first) == DEFAULTS, notes(first)
    for name, value in WRITTEN.items():
        await change(store, key, **{name: value})
        assert getattr(await read(key), name) == value, name
    assert notes(await read(key)) == {**DEFAULTS, **WRITTEN}

    (claimed,) = await engine.claim(
        lanes=["default"], worker_id="w", worker_instance_id="i", limit=1
    )
    await engine.complete(claimed.handle)
    assert notes(await read(key)) == {**DEFAULTS, **WRITTEN}

    other = key[:-1] + ("0" if key[-1] != "0" else "1")
    async def create(tx):
        await tx.catalog()
        changes = Changes()
        changes.created[other] = replace(first, execution_id=other, **BORN), Body(other)
        await tx.save(changes)
    await store.transact(create)
    assert notes(await read(other)) == {**DEFAULTS, **BORN}, notes(await read(other))

    dumped = {each.execution_id: notes(each) for each in (await store.dump())["executions"]}
    assert dumped == {key: {**DEFAULTS, **WRITTEN}, other: {**DEFAULTS, **BORN}}, dumped
    listed = await store.read(lambda reader: reader.list_executions(ListFilter(), 9))
    assert {each.execution_id: notes(each) for each in listed} == dumped
    assert await store.read(lambda reader: reader.odd_values()) == []
    await engine.close()

asyncio.run(story(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in which executions have more fields."""
    root = tmp_path_factory.mktemp("extended")
    package = root / "flowfabric"
    source = Path(flowfabric.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    record = package / "model" / "execution.py"
    text = record.read_text()
    assert text.count(LAST) == 1
    record.write_text(text.replace(LAST, LAST + ADDED))
    for store in ("sqlite", "postgres"):
        name = f"{schema_version_of(store) + 1:04d}_notes.sql"
        sql = MIGRATION
        if store == "postgres":  # empty while they hold the default
            for default in ("0", "'initial'"):
                sql = sql.replace(f"BIGINT NOT NULL DEFAULT {default}", "BIGINT")
                sql = sql.replace(f"TEXT NOT NULL DEFAULT {default}", "TEXT")
        else:
            sql = sql.replace("BIGINT", "INTEGER")
        (package / "stores" / store / "migrations" / name).write_text(sql)
    return root


def test_a_new_field_is_one_line_and_a_migration(extended: Path, empty_url: str) -> None:
    """It is written at creation and when it changes, kept by other writes, read, listed, dumped and
    audited on every store."""
    run = subprocess.run(
        [sys.executable, "-c", STORY, empty_url],
        env={**os.environ, "PYTHONPATH": str(extended)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
