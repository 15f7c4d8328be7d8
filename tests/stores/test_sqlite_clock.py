"""One time for all processes that share a file, whatever their own clocks say. Only SQLite needs
it: PostgreSQL has the server's clock, and memory is one process."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flowfabric.api.admin import DoctorReport
from flowfabric.assemble import open_engine
from flowfabric.clock import ManualClock, SystemClock, boot_id, boot_ms
from flowfabric.config import EngineConfig
from flowfabric.model.state import PublicState
from flowfabric.stores.sqlite import clock as module
from flowfabric.stores.sqlite.clock import LOOK_EVERY_MS, StoreClock
from flowfabric.stores.sqlite.timeline import (
    BACK_MS_MAX,
    JUMP_MS,
    LEAD_MS,
    REFUSED_MS,
    STANDS_MS,
    TOLERANCE_MS,
    Timeline,
    judged,
)

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
NOON = 1_700_000_000_000


class Machine:
    """A boot clock that a test moves, and processes on it with clocks of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.boot_ms = 1_000_000
        self.boot_id = "first"
        self._path = path
        self._connections: list[sqlite3.Connection] = []
        monkeypatch.setattr(module, "boot_ms", lambda: self.boot_ms)
        monkeypatch.setattr(module, "boot_id", lambda: self.boot_id)

    def process(self, wall_ms: int) -> Process:
        return Process(self, wall_ms)

    def restart(self, boot_id: str) -> None:
        self.boot_id, self.boot_ms = boot_id, 0

    def connect(self) -> sqlite3.Connection:
        self._connections.append(sqlite3.connect(self._path, isolation_level=None))
        return self._connections[-1]

    def close(self) -> None:
        for each in self._connections:
            each.close()


class Process:
    """One process with the file open; its wall clock runs with the machine, from where it began."""

    def __init__(self, machine: Machine, wall_ms: int) -> None:
        self._machine = machine
        self._began = machine.boot_ms
        self.wall_ms = wall_ms
        self.connection = machine.connect()
        self.clock = StoreClock(None)
        self.clock._wall = self
        if not self.clock.find(self.connection):
            self.clock.draw(self.connection)

    def now_ms(self) -> int:
        return self.wall_ms + self._machine.boot_ms - self._began

    @property
    def now(self) -> int:
        return self.clock.now(self.connection)


@pytest.fixture
def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_template: Path
) -> Iterator[Machine]:
    path = tmp_path / "clock.db"
    path.write_bytes(sqlite_template.read_bytes())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM ff_clock")
    with closing(Machine(monkeypatch, path)) as machine:
        yield machine


def live(machine: Machine, milliseconds: int, *processes: Process) -> list[int]:
    """Let time pass, with a look of every process each second; the last times they had."""
    times = [0] * len(processes)
    for _ in range(milliseconds // 1000):
        machine.boot_ms += 1000
        seen = [each.now for each in processes]
        assert len(set(seen)) == 1, "processes disagree about the time"
        assert all(after >= before for before, after in zip(times, seen, strict=True))
        times = seen
    return times


# --- processes with other clocks ------------------------------------------------------------------


def test_a_process_with_a_wrong_clock_has_the_time_of_the_others(machine: Machine) -> None:
    right, wrong = machine.process(NOON), machine.process(NOON + 3 * HOUR_MS)
    assert right.now == wrong.now == NOON
    assert live(machine, 600_000, right, wrong) == [NOON + 600_000] * 2


def test_the_wish_of_one_is_void_when_another_objects(machine: Machine) -> None:
    right, wrong = machine.process(NOON), machine.process(NOON + 3 * HOUR_MS)
    live(machine, 4 * (STANDS_MS + REFUSED_MS), wrong, right)
    assert wrong.now == right.now == right.now_ms()


def test_a_step_of_the_machines_clock_is_followed_slowly(machine: Machine) -> None:
    """Three processes whose clocks were set forward by ten minutes at once."""
    three = [machine.process(NOON) for _ in range(3)]
    live(machine, 10_000, *three)
    for each in three:
        each.wall_ms += 600_000
    before = three[0].now
    live(machine, STANDS_MS, *three)
    assert three[0].now - before <= STANDS_MS + 1_000
    live(machine, 3 * 600_000, *three)
    assert three[0].now == three[0].now_ms()


def test_a_clock_set_back_slows_the_time_and_never_turns_it(machine: Machine) -> None:
    two = [machine.process(NOON) for _ in range(2)]
    for each in two:
        each.wall_ms -= 600_000
    live(machine, STANDS_MS + LEAD_MS + 3 * 600_000, *two)
    assert two[0].now == two[0].now_ms()


def test_a_machine_that_slept_for_hours_unnoticed_jumps_when_all_agree(machine: Machine) -> None:
    two = [machine.process(NOON) for _ in range(2)]
    for each in two:
        each.wall_ms += 5 * HOUR_MS
    live(machine, STANDS_MS + LEAD_MS + 3 * LOOK_EVERY_MS, *two)
    assert two[0].now == two[0].now_ms()


def test_a_store_far_in_the_future_is_left_for_an_operator(machine: Machine) -> None:
    """A clock that lost its battery says 1970: the store must not follow it."""
    one = machine.process(NOON)
    one.wall_ms -= 2 * BACK_MS_MAX
    (now,) = live(machine, 1_000_000, one)
    assert now == NOON + 1_000_000
    assert one.clock.facts()["clock_offset_ms"] == -2 * BACK_MS_MAX


def test_time_and_rules_survive_a_rolled_back_transaction(machine: Machine) -> None:
    """What a process thinks of the time counts for nobody before it is committed."""
    one = machine.process(NOON)
    one.wall_ms += HOUR_MS
    for _ in range(200):
        machine.boot_ms += 1000
        one.connection.execute("BEGIN IMMEDIATE")
        now = one.now
        one.connection.execute("ROLLBACK")
        assert now == NOON + machine.boot_ms - 1_000_000


# --- another boot ---------------------------------------------------------------------------------


def test_another_boot_goes_by_the_wall_clock(machine: Machine) -> None:
    machine.process(NOON)
    machine.restart("second")
    assert machine.process(NOON + HOUR_MS).now == NOON + HOUR_MS


def test_another_boot_never_begins_before_what_the_file_has_seen(machine: Machine) -> None:
    one, seen = machine.process(NOON), 0
    for _ in range(20):
        machine.boot_ms += 30_000
        one.connection.execute("BEGIN IMMEDIATE")
        seen = one.now
        one.connection.execute("COMMIT")
    machine.restart("second")
    begun = machine.process(0).now
    assert begun <= seen
    assert begun >= seen - 90_000


def test_only_the_last_boots_are_remembered(machine: Machine) -> None:
    for number in range(10):
        machine.restart(f"boot-{number}")
        machine.process(NOON + number)
    with closing(machine.connect()) as connection:
        assert connection.execute("SELECT count(*) FROM ff_clock").fetchone() == (4,)


# --- rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gain", [0, 1, 999, 600_000, JUMP_MS, JUMP_MS + 1, -1, -600_000])
def test_a_line_never_turns_back_and_ends_where_it_should(gain: int) -> None:
    line = Timeline(50_000, NOON, gain)
    times = [line.time_at(boot) for boot in range(0, 3 * abs(gain) + 200_000, 500)]
    assert times == sorted(times)
    assert line.time_at(49_999) == NOON - 1
    end = 50_000 + 2 * abs(gain) + 2
    assert line.is_steady(end)
    assert line.time_at(end) == NOON + end - 50_000 + gain


def test_clocks_within_the_tolerance_agree() -> None:
    line = Timeline(0, NOON)
    assert judged(line, 0, NOON + TOLERANCE_MS) is line
    assert judged(line, 0, NOON - TOLERANCE_MS) is line
    assert judged(line, 0, NOON + TOLERANCE_MS + 1).wish_ms == TOLERANCE_MS + 1


def test_nothing_is_wished_while_a_correction_runs() -> None:
    line = Timeline(0, NOON, gain_ms=10_000)
    assert judged(line, 5_000, NOON + HOUR_MS) is line


# --- the store ------------------------------------------------------------------------------------

pytest_needs_boot_clock = pytest.mark.skipif(boot_id() is None, reason="there is no boot clock")

WRONG_PROCESS = """
import asyncio, sys
from flowfabric.clock import SystemClock
really = SystemClock.now_ms
SystemClock.now_ms = lambda self: really(self) + int(sys.argv[2])
from flowfabric.assemble import open_engine

async def main():
    async with open_engine(sys.argv[1]) as engine:  # with its loops
        await engine.create_execution(execution_kind="other", lane_id="other")
        moved = [await engine.tick() for _ in range(3)]
        assert moved == [0, 0, 0], moved
        print(await engine.server_time_ms() - really(SystemClock()))

asyncio.run(main())
"""


@pytest_needs_boot_clock
@pytest.mark.parametrize("wrong_by_ms", [5 * HOUR_MS, -5 * HOUR_MS])
def test_a_process_with_a_wrong_clock_fails_no_wait_of_others(
    tmp_path: Path, wrong_by_ms: int
) -> None:
    """A running lease, a wait with a timeout, a delay and an idempotency key outlive its visit."""
    url = f"sqlite:///{tmp_path / 'ff.db'}"

    async def story() -> None:
        async with open_engine(url, config=EngineConfig(loops=False)) as engine:
            now = await engine.server_time_ms()
            running = await engine.create_execution(execution_kind="k")
            (claimed,) = await engine.claim(
                lanes=("default",), worker_id="w", worker_instance_id="i", lease_ttl_ms=60_000
            )
            delayed = await engine.create_execution(execution_kind="k", delay_until=now + HOUR_MS)
            visit = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                WRONG_PROCESS,
                url,
                str(wrong_by_ms),
                cwd=ROOT,
                stdout=subprocess.PIPE,
            )
            said, _ = await visit.communicate()
            assert visit.returncode == 0
            assert abs(int(said)) < 1_500  # the right time, in a process that does not have it
            for made, state in ((running, PublicState.ACTIVE), (delayed, PublicState.DELAYED)):
                found = await engine.describe_execution(execution_id=made.execution_id)
                assert found is not None
                assert found.public_state is state
            await engine.complete(claimed.handle)
            assert abs(await engine.server_time_ms() - SystemClock().now_ms()) < 1_500

    asyncio.run(story())


@pytest_needs_boot_clock
def test_doctor_tells_how_far_the_clock_of_this_process_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path / 'ff.db'}"
    really = SystemClock.now_ms

    async def examined() -> DoctorReport:
        async with open_engine(url, config=EngineConfig(loops=False)) as engine:
            await engine.create_execution(execution_kind="k")
            return await engine.doctor()

    first = asyncio.run(examined())
    assert first.facts["clock"] == "boot"
    assert abs(first.facts["clock_offset_ms"]) < 900
    assert "clock" not in {each.code for each in first.notices}
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: really(self) - HOUR_MS)
    with caplog.at_level(logging.WARNING, "flowfabric.stores"):
        second = asyncio.run(examined())
    assert abs(second.facts["clock_offset_ms"] + HOUR_MS) < 1_500
    (notice,) = [each for each in second.notices if each.code == "clock"]
    assert "-3600 s off" in notice.detail
    assert notice.advice
    assert [record.message[:34] for record in caplog.records] == [
        "the clock of this process is -3600"
    ]


def test_a_clock_that_is_given_counts_and_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "ff.db"

    async def story() -> None:
        clock = ManualClock(NOON)
        engine = open_engine(f"sqlite:///{path}", config=EngineConfig(loops=False), clock=clock)
        async with engine:
            assert await engine.server_time_ms() == NOON
            clock.advance(5)
            assert await engine.server_time_ms() == NOON + 5

    asyncio.run(story())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM ff_clock").fetchone() == (0,)


def test_without_a_boot_clock_the_wall_clock_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "boot_id", lambda: None)

    async def story() -> None:
        async with open_engine(f"sqlite:///{tmp_path / 'ff.db'}") as engine:
            assert abs(await engine.server_time_ms() - SystemClock().now_ms()) < 1_500
            assert (await engine.doctor()).facts["clock"] == "wall"

    asyncio.run(story())


@pytest_needs_boot_clock
def test_the_boot_clock_runs_and_never_goes_back() -> None:
    readings = [boot_ms() for _ in range(1000)]
    assert readings == sorted(readings)
    assert readings[0] > 0
