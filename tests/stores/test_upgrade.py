"""Upgrades: a database of an earlier schema migrates, loses nothing, and its living work goes on.

The fixtures are databases as text, each made by the code of its time (`tools/make_fixture.py`).
Only SQL stores have a schema to migrate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from flowfabric.assemble import open_engine
from flowfabric.clock import ManualClock
from flowfabric.config import EngineConfig
from flowfabric.errors import SchemaMismatch
from flowfabric.ids import new_name
from flowfabric.model.attempt import AttemptType
from flowfabric.model.event import LeaseEventType
from flowfabric.model.flow import EdgeState, GroupState, TaskKind
from flowfabric.model.quota import AdmissionState
from flowfabric.model.record import convert
from flowfabric.model.route import LaneState
from flowfabric.model.state import PublicState, StateVector, TerminalOutcome
from flowfabric.model.suspension import WaitpointState
from flowfabric.model.worker import WorkerEventType
from flowfabric.stores.migrations import migrations_of, schema_version_of
from tests.support.backdoor import Backdoor
from tests.support.databases import PostgresServer
from tests.support.lab import DURABLE_STORES, Lab
from tests.support.living import fixture
from tests.support.living.book import KINDS
from tests.support.living.fixture import Fixture, Memory, load, opened, stored
from tests.support.living.kind import PAUSE_MS
from tests.support.living.records import differences

QUIET = EngineConfig(loops=False)
# Schemas that a released or landed version had. Several migrations may land together.
RELEASED = (7, 14, 16, 18, 19)
# Tables that no work fills: the sweep writes them, long after the events.
NOT_OF_WORK = {"ff_log_mark"}
STORED = stored()
LIVING = [(each, kind) for each in STORED for kind in each.memory().notes]

# Words that the records of living work must have between them.
WORDS: dict[str, set[Any]] = {
    "attempts.attempt_type": {*AttemptType},
    "completion_events.outcome": {*TerminalOutcome} - {TerminalOutcome.NONE},
    "ff_edge.edge_state": {*EdgeState},
    "ff_flow_member.group_state": {*GroupState},
    "ff_flow_task.kind": {*TaskKind} - {TaskKind.WAKE_PARENT},  # only where the parent is locked
    "ff_quota_admitted.state": {*AdmissionState},
    "ff_waitpoint.state": {*WaitpointState},
    "ff_lane_registry.lane_state": {*LaneState},
    "lease_events.event_type": {*LeaseEventType},
    "worker_events.event_type": {*WorkerEventType} - {WorkerEventType.TTL_SWEPT},  # by a tick
}


def versions_of(family: str) -> list[int]:
    return [each.version for each in migrations_of(family)]


every_fixture = pytest.mark.parametrize("old", STORED, ids=str)


class Shelf:
    """Databases loaded from fixtures. Putting rows back takes less time than loading them again."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> None:
        self._request = request
        self._folder = folder
        self._stack = stack
        self._kept: dict[Fixture, tuple[Lab, Backdoor]] = {}
        self._catalog_versions = count(1_000_000)

    @contextmanager
    def empty(self, family: str) -> Iterator[str]:
        """The URL of a database without anything in it."""
        if family == "sqlite":
            yield f"sqlite:///{self._folder / new_name('upgrade')}.db"
            return
        server: PostgresServer = self._request.getfixturevalue("postgres")
        with server.empty_database() as url:
            yield url

    @contextmanager
    def loaded(self, old: Fixture) -> Iterator[str]:
        """The URL of a database as the code of its time left it."""
        with self.empty(old.family) as url:
            load(url, old.sql.read_text(encoding="utf-8"))
            yield url

    def migrated(self, old: Fixture) -> Lab:
        """The same, brought up to date by the present code: all rows as they were then."""
        if old not in self._kept:
            self._kept[old] = self._keep(old)
        lab, door = self._kept[old]
        lab.run(door.restore(next(self._catalog_versions)))
        lab.clock.set(old.memory().now)
        return lab

    def _keep(self, old: Fixture) -> tuple[Lab, Backdoor]:
        url = self._stack.enter_context(self.loaded(old))
        lab = self._stack.enter_context(opened(url, old.memory().now))
        door = Backdoor(lab)
        lab.run(door.open())
        self._stack.callback(lambda: lab.run(door.close()))
        lab.run(door.keep())
        return lab, door


@pytest.fixture(scope="module")
def shelf(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shelf]:
    with ExitStack() as stack:
        yield Shelf(request, tmp_path_factory.mktemp("upgrades"), stack)


# --- the schema ----------------------------------------------------------------------------------


@every_fixture
def test_an_older_schema_is_refused_until_its_migration_is_asked_for(
    shelf: Shelf, old: Fixture
) -> None:
    known = schema_version_of(old.family)
    missing = [each for each in versions_of(old.family) if old.version < each <= known]

    async def story(url: str) -> None:
        clock = ManualClock(old.memory().now)
        first = open_engine(url, config=QUIET, clock=clock)
        if missing:
            with pytest.raises(SchemaMismatch, match="ff db migrate") as refused:
                await first.start(migrate=False)
            assert refused.value.fields["missing"] == missing
            await first.start(migrate=True)
        else:
            await first.start(migrate=False)
        status = await first.store.migration_status()
        assert [each.version for each in status if each.applied_at == clock.now_ms()] == missing
        assert all(each.applied_at is not None and each.checksum_ok for each in status)
        await first.close()
        async with open_engine(url, config=QUIET, clock=clock) as second:
            assert (await second.prepare()).applied == ()

    with shelf.loaded(old) as url:
        asyncio.run(story(url))


@every_fixture
def test_a_migrated_database_is_sound(shelf: Shelf, old: Fixture) -> None:
    lab = shelf.migrated(old)
    assert lab.run(lab.engine.store.schema_differences()) == []
    assert lab.run(lab.engine.doctor()).problems == ()
    audit = lab.run(lab.engine.reconcile_execution_index())
    assert (audit.errors, audit.problems) == (0, ())
    assert audit.processed == len(old.memory().records["executions"]["rows"])


def test_every_released_schema_has_a_fixture() -> None:
    """Made too late, it would be made by other code: run `tools/make_fixture.py` first."""
    for family in DURABLE_STORES:
        missing = {*RELEASED} - {each.version for each in STORED if each.family == family}
        assert not missing, f"{family}: no fixture of schema {missing}; see CONTRIBUTING.md"


# --- the records ---------------------------------------------------------------------------------


@every_fixture
def test_a_migration_loses_and_changes_no_record(shelf: Shelf, old: Fixture) -> None:
    memory = old.memory()
    lab = shelf.migrated(old)
    assert list(differences(memory.records, lab.run(lab.dump()))) == []


@every_fixture
def test_events_are_appended_behind_those_of_the_fixture(shelf: Shelf, old: Fixture) -> None:
    lab = shelf.migrated(old)
    before = lab.run(lab.dump())["lease_events"]
    claimed = lab.run(lab.started(lane_id="new"))
    *earlier, last = lab.run(lab.dump())["lease_events"]
    assert earlier == before
    assert last.execution_id == claimed.execution_id


@every_fixture
def test_listings_show_everything(shelf: Shelf, old: Fixture) -> None:
    """Routes and tags are in no dump; only listings read them."""
    memory = old.memory()
    kept = memory.records["executions"]
    rows = [dict(zip(kept["fields"], row, strict=True)) for row in kept["rows"]]
    lab = shelf.migrated(old)
    engine = lab.engine
    listed = lab.run(engine.list_executions(limit=1000)).items
    assert {each.execution_id for each in listed} == {row["execution_id"] for row in rows}
    shown = {each.execution_id: each for each in listed}
    for row in rows:
        snapshot, route = shown[row["execution_id"]], row["route"]
        assert snapshot.lane_id == route["lane_id"]
        assert snapshot.namespace == route["namespace"]
        assert snapshot.tags == row["tags"]
        for tag in row["tags"].items():
            tagged = lab.run(engine.list_executions(tag=tag)).items
            assert row["execution_id"] in [each.execution_id for each in tagged]
    kinds = {row["route"]["execution_kind"] for row in rows}
    # What follows an end or an undo has its kind in the catalog before it exists.
    assert set(lab.run(engine.list_kinds(limit=1000)).items) >= kinds
    flows = lab.run(engine.list_flows(limit=1000)).items
    assert len(flows) == len(memory.records["ff_flow_core"]["rows"])


# --- the work ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "kind"), LIVING, ids=str)
def test_living_work_goes_on_to_its_end(shelf: Shelf, old: Fixture, kind: str) -> None:
    memory = old.memory()
    lab = shelf.migrated(old)
    lab.run(KINDS[kind].go_on(lab, deepcopy(memory.notes[kind])))  # it may change its notes
    assert lab.run(lab.engine.doctor()).problems == ()


# --- the next fixture ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_living_work_of_the_present_code_goes_on(kind: str) -> None:
    """A fixture of work that cannot go on would be of no use. Any store will do."""
    lab = Lab("memory://")
    lab.open()
    try:
        notes = lab.run(KINDS[kind].begin(lab))
        lab.clock.advance(PAUSE_MS)
        lab.run(KINDS[kind].go_on(lab, notes))
    finally:
        lab.close()


@pytest.mark.parametrize("family", DURABLE_STORES)
def test_the_present_code_can_make_the_next_fixture(shelf: Shelf, family: str) -> None:
    with shelf.empty(family) as url:
        made, text, memory = fixture.make(url, commit="of a test")
    assert made == Fixture(family, schema_version_of(family))
    check_variety(memory)
    with shelf.empty(family) as url:
        load(url, text)
        with opened(url, memory.now) as lab:
            assert lab.run(lab.engine.store.schema_differences()) == []
            assert list(differences(memory.records, lab.run(lab.dump()))) == []
            assert lab.run(lab.engine.doctor()).problems == ()


def check_variety(memory: Memory) -> None:
    """A new table or word needs living work that has it, or no upgrade of it is tested."""
    empty = [name for name, table in memory.records.items() if not table["rows"]]
    assert {*empty} <= NOT_OF_WORK
    vectors = [
        convert(each, StateVector, field="state") for each in values(memory, "executions.state")
    ]
    assert {vector.public_state for vector in vectors} == {*PublicState}
    for place, words in WORDS.items():
        assert {*values(memory, place)} == words, place


def values(memory: Memory, place: str) -> list[Any]:
    """All values of a field of a table."""
    table, _, field = place.partition(".")
    kept = memory.records[table]
    at = kept["fields"].index(field)
    return [row[at] for row in kept["rows"]]
