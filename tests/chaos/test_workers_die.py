"""kill -9 and SIGSTOP of workers while they hold leases: nothing is lost, nothing happens twice.

FF_CHAOS_KILLS=200 at night.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.model.event import LeaseEventType
from flowfabric.model.results import Claimed, Created
from tests.chaos.processes import PATIENCE_S, Crew, WorkerProcess, crew
from tests.chaos.verdict import check_acknowledged, check_store
from tests.property.budget import budget

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

EXECUTIONS = 1_000
KILLS = budget("FF_CHAOS_KILLS", 16)
HANDS = 4


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'chaos.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def runner() -> Any:
    with asyncio.Runner() as each:
        yield each


def open_quiet(url: str, runner: asyncio.Runner) -> Engine:
    """The test's own engine: its loops are off, so only the workers recover anything."""
    engine = open_engine(url, config=EngineConfig(loops=False, pool_size=2))
    runner.run(engine.start())
    return engine


# --- kill -9 -----------------------------------------------------------------------------------


def test_workers_killed_in_the_middle_of_their_work(url: str, runner: asyncio.Runner) -> None:
    """I1, I2, I4, I5, I7, I8: all complete, none twice, no two leases valid at once."""
    engine = open_quiet(url, runner)
    work = KeptBusy(engine, runner, "work", EXECUTIONS)
    with crew(url) as workers:
        kill_many(workers, KILLS, work.top_up)
        workers.wait_until(lambda: runner.run(left(engine)) == 0, "the rest of the work")
        done = [(line[0], int(line[1])) for line in workers.lines("done")]
    dump = runner.run(engine.store.dump())
    audit = runner.run(engine.reconcile_execution_index())
    runner.run(engine.close())

    assert len(dump["executions"]) == work.created
    assert len(dump["completion_events"]) == work.created
    assert {e.public_state.value for e in dump["executions"]} == {"completed"}
    check_store(dump)
    check_acknowledged(dump, [], done)
    assert len(done) == len({key for key, _ in done}), "two workers were told that they completed"
    assert audit.errors == 0, audit.problems
    lost = [e for e in dump["lease_events"] if e.event_type is LeaseEventType.EXPIRED]
    assert len(lost) >= KILLS / 2, "the kills hit nobody who held a lease"


class KeptBusy:
    """Work that does not end before everybody was killed who should be.

    A test that is slow to kill lets its workers live, and they may finish all there is.
    """

    def __init__(self, engine: Engine, runner: asyncio.Runner, kind: str, at_once: int) -> None:
        self.engine = engine
        self.runner = runner
        self.created = 0
        self._requests: list[Any] = [{"execution_kind": kind}] * at_once
        self.top_up()

    def top_up(self) -> None:
        if self.runner.run(left(self.engine)) == 0:
            self.created += len(self.runner.run(self.engine.create_executions(self._requests)))


def kill_many(workers: Crew, kills: int, top_up: Callable[[], None] = lambda: None) -> None:
    """Each worker lives for a few claims and dies with the last one in its hands."""
    rng = random.Random(kills)
    fates = {workers.hire("work"): rng.randint(1, 3) for _ in range(HANDS)}

    def is_somebody_doomed() -> bool:
        top_up()
        return bool(doomed(fates))

    while kills:
        workers.wait_until(is_somebody_doomed, "a worker with work in its hands")
        for worker in doomed(fates):
            workers.kill(worker)
            del fates[worker]
            fates[workers.hire("work")] = rng.randint(1, 3)
            kills -= 1
            if not kills:
                return


def doomed(fates: dict[WorkerProcess, int]) -> list[WorkerProcess]:
    return [worker for worker, claims in fates.items() if worker.heard("holding") >= claims]


async def left(engine: Engine) -> int:
    counts = await engine.count_executions()
    return sum(
        number
        for states in counts.values()
        for state, number in states.items()
        if state != "completed"
    )


# --- SIGSTOP -----------------------------------------------------------------------------------

REFUSALS = {
    "nobody has taken it yet": "LeaseExpired",
    "another owner works": "StaleLease",
    "another owner finished": "ExecutionNotActive",
}


@pytest.mark.parametrize("meanwhile", REFUSALS)
def test_a_worker_that_slept_past_its_lease(
    meanwhile: str, url: str, runner: asyncio.Runner
) -> None:
    """I3: whatever it tries after SIGCONT is refused and leaves no trace."""
    engine = open_quiet(url, runner)
    created = runner.run(engine.create_execution(execution_kind="work"))
    assert isinstance(created, Created)
    with crew(url) as workers:
        sleeper = workers.hire("hold")
        workers.wait_until(lambda: sleeper.heard("holding") == 1, "a claim")
        sleeper.send(signal.SIGSTOP)
        runner.run(lapse(engine, created.execution_id))
        if meanwhile != "nobody has taken it yet":
            successor = runner.run(take(engine))
            if meanwhile == "another owner finished":
                runner.run(engine.complete(successor.handle, result=b"successor"))
        before = runner.run(engine.store.dump())
        sleeper.tell("try")
        sleeper.send(signal.SIGCONT)
        workers.wait_until(lambda: sleeper.heard("end") == 1, "the late writes")
        refused = [line[0] for line in workers.lines("refused")]
        assert not list(workers.lines("accepted"))
    after = runner.run(engine.store.dump())
    runner.run(engine.close())
    assert refused == [REFUSALS[meanwhile]] * 5
    assert after == before
    check_store(after)


async def lapse(engine: Engine, execution_id: str) -> None:
    """Until the store itself says that the lease has run out."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            moved = await engine.mark_lease_expired_if_due(execution_id=execution_id)
            if moved.what != "unchanged":
                return
            await asyncio.sleep(0.02)


async def take(engine: Engine) -> Claimed:
    async with asyncio.timeout(PATIENCE_S):
        await engine.tick()
        while True:
            claimed = await engine.claim(
                lanes=("default",), worker_id="successor", worker_instance_id="successor-1"
            )
            if claimed:
                return claimed[0]
            await asyncio.sleep(0.02)
