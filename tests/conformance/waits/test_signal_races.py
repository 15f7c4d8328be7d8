"""Signals that race with suspend, cancel, timeout and each other, over two engines on one store.

Each race is run 500 times, in small batches: exactly one resume, and nothing lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.waits import Signal, SuspendRequest, UsePending
from flowfabric.assemble import open_engine
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError, TargetNotSignalable, WaitpointClosed
from flowfabric.model.execution import Execution
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import (
    AlreadyMet,
    Count,
    CountKind,
    ResumeCause,
    SignalAccepted,
    SignalEffect,
    Single,
    Suspended,
    WaitpointDetails,
)
from flowfabric.stores.tables import SIGNALS, SUSPENSIONS
from tests.support.lab import LANE, Lab
from tests.support.waits import assert_sound, signal_to

RACES, BATCH = 500, 25
LATE = (TargetNotSignalable, WaitpointClosed)


Said = SignalEffect | type[FlowFabricError]
Engines = tuple[Engine, Engine]


def with_two(lab: Lab, race: Callable[[Lab, Engines], Awaitable[list[Said]]]) -> None:
    """Run a race with a second engine on the lab's store, then judge what is stored."""

    async def run() -> None:
        other = open_engine(lab.url, config=lab.config, clock=lab.clock)
        await other.start()
        said: Counter[Said] = Counter()
        try:
            for _ in range(RACES // BATCH):
                said.update(await race(lab, (lab.engine, other)))
        finally:
            await other.close()
        assert len(said) > 1, f"nobody raced: {said}"
        await assert_sound(lab)
        dump = await lab.dump()
        assert len(dump["executions"]) == RACES
        ends = Counter(event.execution_id for event in dump["completion_events"])
        assert max(ends.values(), default=0) <= 1

    lab.run(run())


async def claimed(lab: Lab) -> list[Claimed]:
    """A batch of new executions that run."""
    made = [NewExecution(execution_kind="work") for _ in range(BATCH)]
    await lab.engine.create_executions(made)
    found = await lab.engine.claim(
        lanes=(LANE,),
        worker_id="w1",
        worker_instance_id="w1-1",
        limit=BATCH,
        lease_ttl_ms=3_600_000,
    )
    assert len(found) == BATCH
    return found


async def waiting(
    lab: Lab, condition: Any = None, **request: Any
) -> list[tuple[Claimed, WaitpointDetails]]:
    """The same, suspended."""
    asked = SuspendRequest(resume_condition=condition or Single("a", "go"), **request)
    runs = await claimed(lab)
    done = await asyncio.gather(*(lab.engine.suspend(each.handle, asked) for each in runs))
    return [(each, outcome.waitpoints[0]) for each, outcome in zip(runs, done, strict=True)]


async def send(engine: Engine, signal: Signal) -> Said:
    """What a signal did, or why it came too late."""
    try:
        answer = await engine.deliver_signal(signal)
    except LATE as error:
        return type(error)
    assert isinstance(answer, SignalAccepted)
    return answer.effect


def stored(dump: dict[str, list[Any]]) -> Counter[str]:
    """How many signals each execution has stored."""
    return Counter(row.execution_id for row in dump[SIGNALS.name])


def images(dump: dict[str, list[Any]]) -> dict[str, Execution]:
    """Every execution as it stands."""
    return {each.execution_id: each for each in dump["executions"]}


async def finish(lab: Lab, runs: list[Claimed]) -> None:
    """Complete what is resumed, so that every batch starts alone."""
    while found := await lab.engine.claim(
        lanes=(LANE,), worker_id="w1", worker_instance_id="w1-1", limit=len(runs)
    ):
        await asyncio.gather(*(lab.engine.complete(each.handle) for each in found))


async def against_suspend(lab: Lab, engines: Engines) -> list[Said]:
    runs = await claimed(lab)
    made = await asyncio.gather(
        *(
            lab.engine.create_waitpoint(each.handle, waitpoint_key="a", expires_in_ms=60_000)
            for each in runs
        )
    )
    calls: list[Any] = []
    for number, (run, details) in enumerate(zip(runs, made, strict=True)):
        asked = SuspendRequest(
            resume_condition=Single("a", "go"),
            waitpoints=(UsePending(details.waitpoint_id, "a"),),
        )
        one, two = engines if number % 2 else engines[::-1]
        calls += [one.suspend(run.handle, asked), send(two, signal_to(run.execution_id, details))]
    done = await asyncio.gather(*calls)
    dump = await lab.dump()
    counts, found = stored(dump), images(dump)
    for number, run in enumerate(runs):
        outcome, effect = done[2 * number : 2 * number + 2]
        assert counts[run.execution_id] == 1
        if effect is SignalEffect.RESUMED:
            assert isinstance(outcome, Suspended)
            assert found[run.execution_id].public_state is PublicState.WAITING
        else:
            assert effect is SignalEffect.BUFFERED
            assert isinstance(outcome, AlreadyMet), "an accepted signal was lost"
            assert found[run.execution_id].public_state is PublicState.ACTIVE
            await lab.engine.complete(run.handle)
    await finish(lab, runs)
    return done[1::2]


async def against_cancel(lab: Lab, engines: Engines) -> list[Said]:
    runs = await waiting(lab)
    calls: list[Any] = []
    for number, (run, details) in enumerate(runs):
        one, two = engines if number % 2 else engines[::-1]
        cancel = one.cancel_execution(
            execution_id=run.execution_id, reason="race", source="operator_override"
        )
        calls += [cancel, send(two, signal_to(run.execution_id, details))]
    done = await asyncio.gather(*calls)
    dump = await lab.dump()
    counts, found = stored(dump), images(dump)
    episodes = {row.execution_id: row for row in dump[SUSPENSIONS.name]}
    for number, (run, _) in enumerate(runs):
        effect = done[2 * number + 1]
        key = run.execution_id
        assert found[key].public_state is PublicState.CANCELLED
        resumed = effect is SignalEffect.RESUMED
        assert resumed or effect in LATE
        assert counts[key] == resumed
        wanted = ResumeCause.SIGNAL if resumed else ResumeCause.CANCELLED
        assert episodes[key].cause is wanted
    return done[1::2]


async def against_timeout(lab: Lab, engines: Engines) -> list[Said]:
    runs = await waiting(lab, timeout_at=lab.now + 1000)
    lab.clock.advance(1000)
    calls: list[Any] = []
    for number, (run, details) in enumerate(runs):
        calls.append(send(engines[number % 2], signal_to(run.execution_id, details)))
        if number % 4 == 1:
            calls.append(engines[number // 4 % 2].move_due(limit=3))
    done = [each for each in await asyncio.gather(*calls) if not isinstance(each, int)]
    await lab.engine.move_due()
    dump = await lab.dump()
    counts, found = stored(dump), images(dump)
    for (run, _), effect in zip(runs, done, strict=True):
        key = run.execution_id
        resumed = effect is SignalEffect.RESUMED
        assert resumed or effect in LATE
        assert counts[key] == resumed
        wanted = PublicState.WAITING if resumed else PublicState.FAILED
        assert found[key].public_state is wanted
    await finish(lab, [run for run, _ in runs])
    return done


async def against_each_other(lab: Lab, engines: Engines) -> list[Said]:
    quorum = Count(2, CountKind.DISTINCT_SOURCES, ("a",), "go")
    runs = await waiting(lab, quorum)
    calls = [
        send(engine, signal_to(run.execution_id, details, "go", by))
        for run, details in runs
        for engine, by in zip(engines * 2, ("x", "y", "z", "x"), strict=True)
    ]
    done = await asyncio.gather(*calls)
    counts = stored(await lab.dump())
    for number, (run, _) in enumerate(runs):
        effects = done[4 * number : 4 * number + 4]
        assert effects.count(SignalEffect.RESUMED) == 1
        late = sum(effect in LATE for effect in effects)
        assert counts[run.execution_id] == 4 - late
        assert effects.count(SignalEffect.APPENDED) == 1
    await finish(lab, [run for run, _ in runs])
    return done


@pytest.mark.slow
def test_a_signal_and_a_suspend_500_times(durable_lab: Lab) -> None:
    """Buffered and replayed, or delivered to the suspension: never lost, never twice."""
    with_two(durable_lab, against_suspend)


@pytest.mark.slow
def test_a_signal_and_a_cancel_500_times(durable_lab: Lab) -> None:
    """Whoever is first; the cancel always holds in the end."""
    with_two(durable_lab, against_cancel)


@pytest.mark.slow
def test_a_signal_and_a_timeout_500_times(durable_lab: Lab) -> None:
    """Resumed or timed out, not both, and the answer says which."""
    with_two(durable_lab, against_timeout)


@pytest.mark.slow
def test_a_signal_and_another_signal_500_times(durable_lab: Lab) -> None:
    """Exactly one delivery reports the resume; every accepted one is stored once."""
    with_two(durable_lab, against_each_other)
