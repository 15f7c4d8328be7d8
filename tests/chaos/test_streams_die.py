"""kill -9 of writers and readers of streams.

No acknowledged frame is lost, none is doubled, every stream says that it is closed, and a reader
that begins again after the last place it saw sees every frame once. FF_CHAOS_KILLS=200 at night.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.assemble import open_engine
from flowfabric.clock import monotonic
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.model.stream import ClosedReason, frame_id_from
from tests.chaos.processes import PATIENCE_S, Crew, WorkerProcess, crew
from tests.chaos.stream_process import FRAMES
from tests.chaos.test_workers_die import left
from tests.chaos.verdict import check_store
from tests.property.budget import budget

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

PROCESS = "tests.chaos.stream_process"
EXECUTIONS = 4
KILLS = budget("FF_CHAOS_KILLS", 6)
WRITERS = 2


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'chaos.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as each:
        yield each


class Follower:
    """A reader of one execution that is killed and begins again where it was."""

    def __init__(self, workers: Crew, execution_id: str) -> None:
        self._workers = workers
        self._execution_id = execution_id
        self._seen: list[tuple[str, int]] = []
        self._process = self._begin()

    def _begin(self) -> WorkerProcess:
        after = self._seen[-1][0] if self._seen else "none"
        return self._workers.hire("read", PROCESS, self._execution_id, after)

    @property
    def seen(self) -> list[tuple[str, int]]:
        """Places and numbers, over all lives."""
        lines = [line for line in self._process.said if line[0] == "saw"]
        return self._seen + [(line[1], int(line[2])) for line in lines]

    @property
    def is_over(self) -> bool:
        return bool(self._process.heard("closed"))

    def die(self) -> None:
        """Killed, and begun again after the last frame that was heard of."""
        self._workers.kill(self._process)
        self._seen = self.seen
        self._process = self._begin()


def test_writers_and_readers_of_streams_are_killed(url: str, runner: asyncio.Runner) -> None:
    engine = open_engine(url, config=EngineConfig(loops=False, pool_size=2))
    runner.run(engine.start(migrate=True))
    created = runner.run(
        engine.create_executions([NewExecution(execution_kind="talk")] * EXECUTIONS)
    )
    ids = [each.execution_id for each in created]
    with crew(url) as workers:
        followers = {each: Follower(workers, each) for each in ids[:2]}
        kill_many(workers, list(followers.values()))

        def is_over() -> bool:
            return runner.run(left(engine)) == 0 and all(f.is_over for f in followers.values())

        workers.wait_until(is_over, "the ends of all streams")
        wrote = list(workers.lines("wrote"))
        seen = {key: follower.seen for key, follower in followers.items()}
    dump = runner.run(engine.store.dump())
    check_store(dump)
    check_frames(dump, wrote)
    for execution_id in ids:
        runner.run(check_closed(engine, execution_id))
    for execution_id, frames in seen.items():
        check_seen(dump, execution_id, frames)
    audit = runner.run(engine.doctor())
    runner.run(engine.close())
    assert audit.problems == ()


def kill_many(workers: Crew, followers: list[Follower]) -> None:
    """Each writer dies somewhere in its frames; after each death a reader dies too."""
    rng = random.Random(KILLS)
    fates = {workers.hire("write", PROCESS): rng.randint(1, FRAMES) for _ in range(WRITERS)}
    deadline = monotonic() + PATIENCE_S
    kills = KILLS
    while kills:
        assert monotonic() < deadline, f"in vain: {kills} more writers in the middle of a stream"
        workers.listen(0.02)
        for worker in [each for each in fates if each.heard("wrote") >= fates[each]]:
            workers.kill(worker)
            del fates[worker]
            fates[workers.hire("write", PROCESS)] = rng.randint(1, FRAMES)
            rng.choice(followers).die()
            kills -= 1
        if all(follower.is_over for follower in followers):
            return  # a test that is slow to kill lets them finish


def check_frames(dump: dict[str, list[Any]], wrote: list[list[str]]) -> None:
    """What was acknowledged is there, once; numbers of an attempt have no gap."""
    stored: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for row in dump["ff_stream_frame"]:
        stored[row.execution_id, row.attempt_index].append(row)
    for (execution_id, attempt), rows in stored.items():
        rows.sort(key=lambda row: row.frame_id)
        numbers = [int(row.payload) for row in rows]
        assert numbers == list(range(1, len(rows) + 1)), f"{execution_id} attempt {attempt}"
    for execution_id, said_attempt, number, frame_id in wrote:
        row = stored[execution_id, int(said_attempt)][int(number) - 1]
        assert row.frame_id == frame_id_from(frame_id, field="said")
    for execution in dump["executions"]:
        last = stored[execution.execution_id, execution.attempt_index]
        assert len(last) == FRAMES, "the successful attempt has every frame"


async def check_closed(engine: Engine, execution_id: str) -> None:
    """Every attempt's stream is closed, the last one by success and the others by lost leases."""
    count = await engine.read_total_attempt_count(execution_id=execution_id)
    for index in range(count or 0):
        page = await engine.read_stream(
            execution_id=execution_id, attempt_index=index, count_limit=10_000
        )
        is_last = index == (count or 0) - 1
        wanted = ClosedReason.COMPLETED if is_last else ClosedReason.LEASE_EXPIRED
        assert page.closed_reason is wanted


def check_seen(
    dump: dict[str, list[Any]], execution_id: str, frames: list[tuple[str, int]]
) -> None:
    """A reader saw every frame once, in order, however often it was killed."""
    rows = [row for row in dump["ff_stream_frame"] if row.execution_id == execution_id]
    rows.sort(key=lambda row: (row.attempt_index, row.frame_id))
    wanted = [(f"{row.attempt_index}:{row.frame_id}", int(row.payload)) for row in rows]
    assert frames == wanted
