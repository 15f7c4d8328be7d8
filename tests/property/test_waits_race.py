"""Rivals at the same waits: what was answered is what is stored, each wait ends once.

On Postgres most of these calls are one guarded statement without a lock, so this is where a lost
update would show.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flowfabric.api.waits import Fresh, Signal, SuspendRequest, UsePending
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.model.results import Created
from flowfabric.model.suspension import (
    AlreadyMet,
    Count,
    CountKind,
    SignalAccepted,
    SignalDuplicate,
    SignalEffect,
    Suspended,
    WaitpointDetails,
)
from tests.property.budget import budget
from tests.property.waiting import check_waits
from tests.support.databases import PostgresServer

ENGINES = 3
RIVALS = 3  # of each engine
STEPS = budget("FF_RACE_STEPS", 60)


class Arena:
    """A few executions everybody is after, and what everybody was told."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.addresses: list[tuple[str, WaitpointDetails]] = []
        self.running: list[Any] = []
        self.pending: dict[str, list[WaitpointDetails]] = {}
        self.effects: dict[str, SignalEffect] = {}
        self.duplicates: list[SignalDuplicate] = []
        self.refused: Counter[str] = Counter()

    def learn(self, execution_id: str, details: WaitpointDetails) -> None:
        self.addresses = [*self.addresses[-5:], (execution_id, details)]


async def step(engine: Engine, arena: Arena) -> None:
    """One thing somebody does."""
    draw = arena.random.random()
    if draw < 0.55 and arena.addresses:
        await deliver(engine, arena)
    elif draw < 0.65 and arena.running:
        await hand_out(engine, arena)
    elif draw < 0.85:
        await suspend(engine, arena)
    elif draw < 0.92 and arena.addresses:
        owner, details = arena.random.choice(arena.addresses)
        await engine.close_waitpoint(execution_id=owner, waitpoint_id=details.waitpoint_id)
    elif draw < 0.96 and arena.addresses:
        await engine.resume_execution(execution_id=arena.random.choice(arena.addresses)[0])
    elif arena.addresses:
        owner = arena.random.choice(arena.addresses)[0]
        await engine.cancel_execution(execution_id=owner, reason="x", source="operator_override")


async def deliver(engine: Engine, arena: Arena) -> None:
    owner, details = arena.random.choice(arena.addresses)
    signal = Signal(
        execution_id=owner,
        waitpoint_id=details.waitpoint_id,
        token=details.token,
        signal_name="ok",
        source_identity=arena.random.choice("abc"),
        idempotency_key=arena.random.choice((None, "1", "2")),
    )
    answer = await engine.deliver_signal(signal)
    if isinstance(answer, SignalAccepted):
        assert answer.signal_id not in arena.effects
        arena.effects[answer.signal_id] = answer.effect
    else:
        arena.duplicates.append(answer)


async def hand_out(engine: Engine, arena: Arena) -> None:
    handle = arena.random.choice(arena.running)
    details = await engine.create_waitpoint(handle, waitpoint_key="early", expires_in_ms=60_000)
    arena.learn(handle.execution_id, details)
    arena.pending.setdefault(handle.execution_id, []).append(details)


async def suspend(engine: Engine, arena: Arena) -> None:
    """Take what waits for a worker, or something new, and suspend it."""
    claimed = await engine.claim(
        lanes=("default",), worker_id="w", worker_instance_id="w-1", limit=1, lease_ttl_ms=60_000
    )
    if not claimed and not arena.running:
        created = await engine.create_execution(execution_kind="race")
        assert isinstance(created, Created)
        return
    arena.running += [each.handle for each in claimed]
    handle = arena.random.choice(arena.running)
    early = arena.pending.get(handle.execution_id, [])
    bound: list[Any] = [Fresh("now")]
    if early:
        bound.append(UsePending(early.pop().waitpoint_id, "early"))
    keys = tuple(each.waitpoint_key for each in bound)
    request = SuspendRequest(
        resume_condition=Count(2, CountKind.DISTINCT_SOURCES, keys, "ok"), waitpoints=tuple(bound)
    )
    try:
        begun = await engine.suspend(handle, request)
    except FlowFabricError:
        if handle in arena.running:
            arena.running.remove(handle)
        raise
    for details in begun.waitpoints:
        arena.learn(handle.execution_id, details)
    if isinstance(begun, Suspended) and handle in arena.running:
        arena.running.remove(handle)
    assert isinstance(begun, Suspended | AlreadyMet)


async def rival(engine: Engine, arena: Arena) -> None:
    for _ in range(STEPS):
        try:
            await step(engine, arena)
        except FlowFabricError as error:
            arena.refused[type(error).__name__] += 1


async def race(url: str, seed: int) -> tuple[Arena, dict[str, list[Any]]]:
    arena = Arena(seed)
    engines = [
        open_engine(url, config=EngineConfig(loops=False, pool_size=3, synchronous="normal"))
        for _ in range(ENGINES)
    ]
    for engine in engines:
        await engine.start(migrate=True)
    try:
        rivals = [rival(engine, arena) for engine in engines for _ in range(RIVALS)]
        await asyncio.gather(*rivals)
        report = await engines[0].doctor()
        assert report.problems == ()
        return arena, await engines[0].store.dump()
    finally:
        for engine in engines:
            await engine.close()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_rivals_at_the_same_waits(
    store: str,
    seed: int,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "flowfabric.stores.postgres.store.HOLD_S", 0.0
    )  # always without locks first
    if store == "sqlite":
        arena, dump = asyncio.run(race(f"sqlite:///{tmp_path / 'race.db'}", seed))
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        with server.database() as url:
            arena, dump = asyncio.run(race(url, seed))
    check_waits(dump)
    stored = {each.signal_id: each.effect for each in dump["ff_signal"]}
    assert stored == arena.effects
    assert arena.effects, "nothing was delivered"
    assert SignalEffect.RESUMED in stored.values(), arena.refused
    for answer in arena.duplicates:
        assert stored[answer.existing_signal_id] is answer.effect
    counts = Counter(each.execution_id for each in dump["ff_signal"])
    for execution in dump["executions"]:
        assert execution.signal_count == counts[execution.execution_id]
    internal = {"StoreError", "StoreConflict", "Corruption", "ContentionError", "StoreUnavailable"}
    assert not internal & arena.refused.keys(), arena.refused
    by_key = Counter((each.waitpoint_id, each.idempotency_key) for each in dump["ff_signal_dedup"])
    assert all(count == 1 for count in by_key.values())
