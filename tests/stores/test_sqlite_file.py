"""The file under a running engine: gone, replaced, damaged, locked, full. Only SQLite has one."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowfabric.assemble import open_engine, open_store
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.engine.unit.records import Rows, save_rows
from flowfabric.errors import (
    FlowFabricError,
    InvalidInput,
    OutcomeUnknown,
    StoreCorrupt,
    StoreReplaced,
    StoreUnavailable,
)
from flowfabric.model.route import Lane, LaneState
from flowfabric.stores.sqlite import connection as module
from flowfabric.stores.sqlite.faults import translated
from flowfabric.stores.sqlite.place import Place
from flowfabric.stores.tables import LANES

QUIET = EngineConfig(loops=False)


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def in_engine(path: Path, story: Callable[[Engine], Awaitable[None]]) -> None:
    """A story told on an open engine."""

    async def tell() -> None:
        async with open_engine(url_of(path), config=QUIET) as engine:
            await story(engine)

    asyncio.run(tell())


async def create(engine: Engine) -> str:
    return (await engine.create_execution(execution_kind="k")).execution_id


def make(path: Path) -> None:
    """A file with one execution in it, in use by nothing."""

    async def story(engine: Engine) -> None:
        await create(engine)

    in_engine(path, story)


def ids_in(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {row[0] for row in connection.execute("SELECT execution_id FROM ff_exec_core")}


# --- gone or replaced -----------------------------------------------------------------------------


def test_a_write_after_the_file_was_deleted_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ff.db"

    async def story(engine: Engine) -> None:
        await create(engine)
        path.unlink()
        with pytest.raises(StoreReplaced, match="deleted") as refused:
            await create(engine)
        assert not refused.value.retryable
        assert str(path) in str(refused.value)

    in_engine(path, story)
    assert not path.exists()


def test_a_read_after_the_file_was_deleted_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ff.db"

    async def story(engine: Engine) -> None:
        made = await create(engine)
        path.unlink()
        with pytest.raises(StoreReplaced):
            await engine.describe_execution(execution_id=made)

    in_engine(path, story)


def test_a_file_that_was_moved_and_is_put_back_serves_again(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "ff.db", tmp_path / "moved.db"

    async def story(engine: Engine) -> None:
        first = await create(engine)
        path.rename(elsewhere)
        with pytest.raises(StoreReplaced):
            await create(engine)
        elsewhere.rename(path)
        second = await create(engine)
        assert {first[-36:], second[-36:]} == ids_in(path)

    in_engine(path, story)


def test_another_file_in_its_place_gets_nothing(tmp_path: Path) -> None:
    path, other = tmp_path / "ff.db", tmp_path / "other.db"
    make(other)
    before = other.read_bytes()

    async def story(engine: Engine) -> None:
        await create(engine)
        other.rename(path)
        with pytest.raises(StoreReplaced, match="another file"):
            await create(engine)
        with pytest.raises(StoreReplaced, match="another file"):
            await engine.count_executions()

    in_engine(path, story)
    assert path.read_bytes() == before


@pytest.mark.parametrize("put_there", [False, True], ids=["deleted", "replaced"])
def test_a_twin_of_the_engine_opens_no_other_file(tmp_path: Path, put_there: bool) -> None:
    """A watchdog opens its twin when it first needs it: that may be long after the engine."""
    path, other = tmp_path / "ff.db", tmp_path / "other.db"
    make(other)
    before = other.read_bytes()

    async def story(engine: Engine) -> None:
        await create(engine)
        path.unlink()
        if put_there:
            other.rename(path)
        twin = engine.again()
        for _ in range(2):  # it is tried again and again
            with pytest.raises(StoreReplaced):
                await twin.start(migrate=False)

    in_engine(path, story)
    assert path.exists() is put_there
    assert not put_there or path.read_bytes() == before


def test_a_file_that_goes_during_a_commit_is_not_acknowledged(tmp_path: Path) -> None:
    """Between the look at the beginning of a transaction and its commit."""
    path = tmp_path / "ff.db"

    async def story(engine: Engine) -> None:
        async def work(tx: Any) -> None:
            path.unlink()
            rows = Rows()
            rows.put(LANES, Lane("other", LaneState.ACTIVE, tx.now, tx.now))
            await save_rows(tx, rows)

        await create(engine)
        with pytest.raises(StoreReplaced):
            await engine.transact(work)

    in_engine(path, story)


def test_a_change_of_the_working_directory_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are made when they are needed, which may be after that."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    async def story() -> None:
        async with open_engine("sqlite:///ff.db", config=QUIET) as engine:
            made = await create(engine)
            monkeypatch.chdir(tmp_path / "elsewhere")
            assert await engine.describe_execution(execution_id=made)

    asyncio.run(story())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_memory_file_is_refused_with_the_url_that_works() -> None:
    with pytest.raises(InvalidInput, match="memory://"):
        open_store("sqlite:///:memory:")


# --- damaged --------------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_refused_for_good(tmp_path: Path) -> None:
    path = tmp_path / "ff.db"
    path.write_bytes(b"Dear diary, " * 1000)

    async def story() -> None:
        with pytest.raises(StoreCorrupt, match="backup") as refused:
            await open_engine(url_of(path), config=QUIET).start()
        assert not refused.value.retryable
        assert str(path) in str(refused.value)

    asyncio.run(story())


def damage(path: Path, table: str) -> None:
    """Spoil the first page of a table."""
    with closing(sqlite3.connect(path)) as connection:
        root, size = connection.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master "
            "WHERE name = ?",
            (table,),
        ).fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)


def test_a_quick_audit_does_not_read_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "ff.db"
    make(path)
    damage(path, "ff_exec_tag")

    async def story(engine: Engine) -> None:
        assert await engine.read(lambda reader: reader.audit(quick=True)) == []
        with pytest.raises(StoreCorrupt):
            await engine.read(lambda reader: reader.audit())

    in_engine(path, story)


def test_a_damaged_page_is_not_worth_a_retry(tmp_path: Path) -> None:
    path = tmp_path / "ff.db"
    make(path)
    damage(path, "ff_exec_core")

    async def story() -> None:
        engine = open_engine(url_of(path), config=QUIET)
        await engine.start()
        try:
            with pytest.raises(StoreCorrupt, match="malformed") as refused:
                await engine.count_executions()
            assert not refused.value.retryable
        finally:
            await engine.close()

    asyncio.run(story())


# --- who may read it ------------------------------------------------------------------------------


def modes(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_the_file_and_its_companions_are_private_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def story(engine: Engine) -> None:
        await create(engine)
        assert modes(folder) == dict.fromkeys(("ff.db", "ff.db-wal", "ff.db-shm"), 0o600)

    in_engine(folder / "ff.db", story)


@pytest.mark.usefixtures("open_umask")
def test_a_file_made_through_a_link_is_private_too(tmp_path: Path) -> None:
    (tmp_path / "ff.db").symlink_to(tmp_path / "real.db")
    make(tmp_path / "ff.db")
    assert modes(tmp_path)["real.db"] == 0o600


def test_a_file_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "ff.db"
    path.touch()
    path.chmod(0o640)

    async def story(engine: Engine) -> None:
        await create(engine)
        assert set(modes(tmp_path).values()) == {0o640}

    in_engine(path, story)


# --- no driver's error by any door ----------------------------------------------------------------

DOORS: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "create": create,
    "read": lambda engine: engine.count_executions(),
    "routes": lambda engine: engine.create_execution(execution_kind="new", lane_id="new"),
    "tick": lambda engine: engine.tick(),
    "sweep": lambda engine: engine.sweep(),
    "dump": lambda engine: engine.dump(),
    "status": lambda engine: engine.store.migration_status(),
    "facts": lambda engine: engine.store.facts(),
    "prepare": lambda engine: engine.prepare(),
    "ping": lambda engine: engine.ping(),
}
FAULTS = {
    "full": (sqlite3.OperationalError, sqlite3.SQLITE_FULL),
    "readonly": (sqlite3.OperationalError, sqlite3.SQLITE_READONLY),
    "io": (sqlite3.OperationalError, sqlite3.SQLITE_IOERR),
    "busy": (sqlite3.OperationalError, sqlite3.SQLITE_BUSY),
    "locked": (sqlite3.OperationalError, sqlite3.SQLITE_LOCKED),
    "protocol": (sqlite3.OperationalError, sqlite3.SQLITE_PROTOCOL),
    "permission": (sqlite3.OperationalError, sqlite3.SQLITE_PERM),
    "corrupt": (sqlite3.DatabaseError, sqlite3.SQLITE_CORRUPT),
    "not a database": (sqlite3.DatabaseError, sqlite3.SQLITE_NOTADB),
    "misuse": (sqlite3.InterfaceError, sqlite3.SQLITE_MISUSE),
    "unknown": (sqlite3.OperationalError, sqlite3.SQLITE_ERROR),
}
RETRYABLE = {"full", "readonly", "io", "busy", "locked", "protocol", "permission"}


class Faulty(sqlite3.Connection):
    """A connection on which every statement fails while a fault is set."""

    fault: tuple[type[sqlite3.Error], int] | None = None

    def _fail(self) -> None:
        if Faulty.fault is not None:
            kind, code = Faulty.fault
            error = kind("injected")
            error.sqlite_errorcode = code
            raise error

    def execute(self, *words: Any) -> sqlite3.Cursor:
        self._fail()
        return super().execute(*words)

    def executemany(self, *words: Any) -> sqlite3.Cursor:
        self._fail()
        return super().executemany(*words)


@contextmanager
def failing(name: str) -> Iterator[None]:
    Faulty.fault = FAULTS[name]
    try:
        yield
    finally:
        Faulty.fault = None


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    original = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: original(*a, **k, factory=Faulty))
    monkeypatch.setattr(module, "BUSY_TIMEOUT_MS", 30)


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("fault", FAULTS)
def test_no_error_of_the_driver_leaves_by_any_door(tmp_path: Path, fault: str) -> None:
    async def story(engine: Engine) -> None:
        await create(engine)
        for name, door in DOORS.items():
            with failing(fault), pytest.raises(FlowFabricError) as met:
                await door(engine)
            assert met.value.retryable == (fault in RETRYABLE), (name, met.value)
        with failing(fault):
            assert not (await engine.doctor()).healthy  # it tells what it could not look at
        await create(engine)

    in_engine(tmp_path / "ff.db", story)


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("fault", FAULTS)
def test_doctor_tells_of_each_check_that_an_error_of_the_driver_ended(
    tmp_path: Path, fault: str
) -> None:
    async def story(engine: Engine) -> None:
        await create(engine)
        with failing(fault):
            found = (await engine.doctor()).problems
        assert {each.code for each in found} == {"check_failed"}
        assert all("Store" in each.detail for each in found), found

    in_engine(tmp_path / "ff.db", story)


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("fault", FAULTS)
def test_no_error_of_the_driver_leaves_at_the_start(tmp_path: Path, fault: str) -> None:
    make(tmp_path / "ff.db")

    async def story() -> None:
        engine = open_engine(url_of(tmp_path / "ff.db"), config=QUIET)
        with failing(fault), pytest.raises(FlowFabricError) as met:
            await engine.start()
        assert met.value.retryable == (fault in RETRYABLE), met.value
        await engine.start()  # nothing of the failed start is in the way
        await engine.close()

    asyncio.run(story())


def test_a_file_locked_for_long_is_a_typed_error_at_every_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real lock of a rival, kept beyond everybody's patience."""
    monkeypatch.setattr(module, "BUSY_TIMEOUT_MS", 20)
    path = tmp_path / "ff.db"

    async def story(engine: Engine) -> None:
        await create(engine)
        with closing(sqlite3.connect(path, isolation_level=None)) as rival:
            rival.execute("BEGIN IMMEDIATE")
            for door in (DOORS["create"], DOORS["routes"], DOORS["prepare"]):
                with pytest.raises(FlowFabricError) as met:
                    await door(engine)
                assert met.value.retryable
            rival.execute("ROLLBACK")
        await create(engine)

    in_engine(path, story)


def test_an_engine_that_cannot_start_leaves_no_thread_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema is there, but the first write, the signing key, meets a lock."""
    monkeypatch.setattr(module, "BUSY_TIMEOUT_MS", 20)
    path = tmp_path / "ff.db"
    make(path)

    before = threading.enumerate()  # other tests may have threads that still end

    async def story() -> None:
        engine = open_engine(url_of(path), config=QUIET)
        with closing(sqlite3.connect(path, isolation_level=None)) as rival:
            rival.execute("DELETE FROM ff_waitpoint_hmac")
            rival.execute("BEGIN IMMEDIATE")
            with pytest.raises(FlowFabricError) as met:
                await engine.start()
            assert met.value.retryable
            rival.execute("ROLLBACK")
        left = [each.name for each in threading.enumerate() if each not in before]
        assert not [name for name in left if name.startswith("flowfabric-")]

    asyncio.run(story())


class LateFault(sqlite3.Connection):
    """The disk fails while a commit is being written, and the transaction cannot be undone."""

    broken: tuple[str, ...] = ()

    def execute(self, *words: Any) -> sqlite3.Cursor:
        if words[0] in LateFault.broken:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(*words)


def test_a_commit_that_meets_an_io_error_has_an_unknown_outcome_and_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages may have reached the disk before the flush failed: after a crash they count."""
    original = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: original(*a, **k, factory=LateFault))

    async def story(engine: Engine) -> None:
        first = await create(engine)
        LateFault.broken = ("COMMIT", "ROLLBACK")
        with pytest.raises(OutcomeUnknown):
            await create(engine)
        LateFault.broken = ()
        second = await create(engine)  # the open transaction went with its connection
        assert ids_in(tmp_path / "ff.db") == {first[-36:], second[-36:]}

    in_engine(tmp_path / "ff.db", story)


def test_a_full_disk_during_the_commit_has_written_nothing() -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    assert type(translated(error, "ff.db")) is StoreUnavailable


def test_a_file_that_sqlite_itself_misses_is_told_like_one_we_miss() -> None:
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED
    assert type(translated(error, "ff.db")) is StoreReplaced


def test_a_file_exchanged_while_it_is_opened_is_noticed(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "ff.db"))
    place.prepare()
    place.remember()
    (tmp_path / "ff.db").unlink()
    with pytest.raises(StoreReplaced):
        place.check()
