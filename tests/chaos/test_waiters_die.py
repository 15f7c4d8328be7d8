"""kill -9 of workers while executions suspend and another process signals them.

Every wait ends exactly once, by exactly one signal, and every execution completes.
FF_CHAOS_KILLS=200 at night.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowfabric.api.waits import Signal
from flowfabric.assemble import open_engine
from flowfabric.clock import monotonic
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.model.event import LeaseEventType
from flowfabric.model.suspension import ResumeCause, SignalEffect, WaitpointState
from tests.chaos.processes import PATIENCE_S, Crew, crew
from tests.chaos.test_workers_die import KeptBusy, left
from tests.chaos.verdict import check_acknowledged, check_store
from tests.property.budget import budget
from tests.property.waiting import check_waits

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

WAITER = "tests.chaos.waiter_process"
EXECUTIONS = 80
KILLS = budget("FF_CHAOS_KILLS", 6)
HANDS = 2


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


class Sender:
    """The other process: signals whatever it finds waiting, twice from each of two sources."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.answers: Counter[str] = Counter()

    async def send(self) -> None:
        """One round over everything that waits now; a token is asked for as an operator would."""
        for each in (await self._engine.list_suspended(limit=200)).items:
            key = each.execution_id
            page = await self._engine.list_pending_waitpoints(execution_id=key)
            for waitpoint in page.items:
                token = await self._engine.read_waitpoint_token(
                    execution_id=key, waitpoint_id=waitpoint.waitpoint_id
                )
                if token is not None:
                    await self._signal(key, waitpoint.waitpoint_id, token)

    async def _signal(self, execution_id: str, waitpoint_id: str, token: Any) -> None:
        signals = [
            Signal(
                execution_id=execution_id,
                waitpoint_id=waitpoint_id,
                token=token,
                signal_name="ok",
                source_type="user",
                source_identity=who,
                idempotency_key=who,
            )
            for who in ("ann", "ann", "bob", "bob", "zoe")
        ]
        for answer in await self._engine.deliver_signals(signals):
            kind = type(answer).__name__
            effect = "" if isinstance(answer, FlowFabricError) else answer.effect.value
            self.answers[f"{kind} {effect}".strip()] += 1


def test_waiters_killed_while_others_signal(url: str, runner: asyncio.Runner) -> None:
    engine = open_engine(url, config=EngineConfig(loops=False, pool_size=2))
    runner.run(engine.start(migrate=True))
    sender = Sender(engine)
    with crew(url) as workers:
        kill_many(workers, sender, KeptBusy(engine, runner, "wait", EXECUTIONS))

        def is_over() -> bool:
            runner.run(sender.send())
            return runner.run(left(engine)) == 0

        workers.wait_until(is_over, "the rest of the waits")
        done = [(line[0], int(line[1])) for line in workers.lines("done")]
        resumed = [int(line[1]) for line in workers.lines("resumed")]
    dump = runner.run(engine.store.dump())
    audit = runner.run(engine.doctor())
    runner.run(engine.close())

    assert {e.public_state.value for e in dump["executions"]} == {"completed"}
    assert len(dump["completion_events"]) == len(dump["executions"])
    check_store(dump)
    check_waits(dump)
    check_acknowledged(dump, [], done)
    assert audit.problems == ()
    assert set(resumed) == {2}, "a resumed handler sees the two signals that count"
    check_every_wait(dump)
    assert "InvalidToken" not in sender.answers
    assert sender.answers["WaitpointClosed"]  # zoe always comes too late


def check_every_wait(dump: dict[str, list[Any]]) -> None:
    """Every episode ended once, by the second source.

    An execution waits a second time only if whoever had resumed it lost it: killed, or too slow.
    """
    episodes = dump["ff_suspension"]
    waits = Counter(each.execution_id for each in episodes)
    assert waits.keys() == {each.execution_id for each in dump["executions"]}
    lost = [e for e in dump["lease_events"] if e.event_type is LeaseEventType.EXPIRED]
    assert waits.total() - len(waits) <= len(lost)
    assert {each.cause for each in episodes} == {ResumeCause.SIGNAL}
    assert {each.state for each in dump["ff_waitpoint"]} == {WaitpointState.CLOSED}
    bound = {each.waitpoint_id: each.suspension_id for each in dump["ff_waitpoint"]}
    effects = Counter((bound[each.waitpoint_id], each.effect) for each in dump["ff_signal"])
    for each in episodes:
        assert effects[each.suspension_id, SignalEffect.RESUMED] == 1
        assert effects[each.suspension_id, SignalEffect.APPENDED] == 1
        assert [one.source_identity for one in each.progress] == ["ann", "bob"]
    for execution in dump["executions"]:
        assert execution.signal_count == 2 * waits[execution.execution_id]


def kill_many(workers: Crew, sender: Sender, work: KeptBusy) -> None:
    """Each worker lives for a claim or two and dies with it; signals are sent all the time."""
    rng = random.Random(KILLS)
    fates = {workers.hire("wait", WAITER): rng.randint(1, 2) for _ in range(HANDS)}
    kills = KILLS
    deadline = monotonic() + PATIENCE_S
    while kills:
        assert monotonic() < deadline, f"in vain: {kills} more workers with work in their hands"
        work.top_up()
        workers.listen(0.02)
        work.runner.run(sender.send())
        for worker in [each for each in fates if each.heard("holding") >= fates[each]]:
            workers.kill(worker)
            del fates[worker]
            fates[workers.hire("wait", WAITER)] = rng.randint(1, 2)
            kills -= 1
            if not kills:
                return
