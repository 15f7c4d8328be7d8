"""Many clients at once, on one engine and on two: nothing surfaces that is not theirs."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from flowfabric.api.executions import NewExecution
from flowfabric.errors import FlowFabricError, StoreError
from flowfabric.model.results import Claimed
from tests.support.builders import policy, retries
from tests.support.lab import Lab, scenario

CLIENTS, ROUNDS = 20, 12
LANES = ("a", "b", "c")


async def client(lab: Lab, number: int, seen: list[Exception]) -> None:
    """One client's mixed day; what it is refused is remembered."""
    draw = random.Random(number)
    mine: list[Claimed] = []
    known: list[str] = []
    for _ in range(ROUNDS):
        try:
            await act(lab, draw, number, mine, known)
        except FlowFabricError as error:
            seen.append(error)


async def act(
    lab: Lab, draw: random.Random, number: int, mine: list[Claimed], known: list[str]
) -> None:
    engine = lab.engine
    choice = draw.randrange(10)
    if choice < 3 or not known:
        rules = policy(retry_policy=retries(1, 0))
        known.append(await lab.create(lane_id=draw.choice(LANES), policy=rules))
    elif choice < 6 or not mine:
        mine += await lab.claims(f"w{number}", lanes=LANES, limit=3)
    elif choice == 6:
        await engine.complete(mine.pop().handle, result=b"r")
    elif choice == 7:
        await engine.fail(mine.pop().handle, reason="x")
    elif choice == 8:
        await lab.cancel(draw.choice(known))
    else:
        handles = [each.handle for each in mine]
        await engine.renew_many(handles)
        await engine.list_executions(limit=5)


async def audit(lab: Lab) -> None:
    """I2, I5, I7, I8: judged from everything that is stored."""
    dump: dict[str, list[Any]] = await lab.dump()
    executions = {each.execution_id: each for each in dump["executions"]}
    ends = Counter(event.execution_id for event in dump["completion_events"])
    for execution_id, execution in executions.items():
        assert ends[execution_id] == execution.is_terminal
    attempts = Counter((each.execution_id, each.attempt_index) for each in dump["attempts"])
    assert set(attempts.values()) <= {1}
    taken = Counter(
        (event.execution_id, event.lease_epoch)
        for event in dump["lease_events"]
        if event.event_type == "acquired"
    )
    assert set(taken.values()) <= {1}
    counts = await lab.engine.count_executions()
    assert sum(sum(states.values()) for states in counts.values()) == len(executions)
    report = await lab.engine.doctor()
    assert report.problems == ()
    reconciled = await lab.engine.reconcile_execution_index()
    assert (reconciled.errors, reconciled.problems) == (0, ())


@scenario
async def test_twenty_clients_of_one_engine_leave_a_sound_store(lab: Lab) -> None:
    """No conflict of the store surfaces; every refusal is a logical one."""
    seen: list[Exception] = []
    async with asyncio.timeout(60):
        await asyncio.gather(*(client(lab, number, seen) for number in range(CLIENTS)))
    assert not [error for error in seen if isinstance(error, StoreError)]
    assert {getattr(error, "code", "") for error in seen} <= {"execution_not_active"}
    await audit(lab)


def test_the_clients_of_two_engines_leave_a_sound_store(durable_lab: Lab) -> None:
    """Two engines on one database, as two processes would be."""

    async def crowd() -> None:
        other = Lab(durable_lab.url)
        await other.engine.start(migrate=False)
        seen: list[Exception] = []
        try:
            labs = (durable_lab, other)
            calls = [client(labs[number % 2], number, seen) for number in range(CLIENTS)]
            async with asyncio.timeout(60):
                await asyncio.gather(*calls)
        finally:
            await other.engine.close()
        assert {getattr(error, "code", "") for error in seen} <= {"execution_not_active"}
        await audit(durable_lab)

    durable_lab.run(crowd())


def test_two_engines_learn_the_same_new_routes_at_once(durable_lab: Lab) -> None:
    """Rivals insert the same rows in their own order; none of them sees a deadlock."""

    async def race() -> None:
        others = [Lab(durable_lab.url) for _ in range(3)]
        for other in others:
            await other.engine.start(migrate=False)
        try:
            for turn in range(5):
                kinds = [f"kind-{turn}-{number}" for number in range(60)]
                calls = []
                for number, lab in enumerate((durable_lab, *others)):
                    mixed = random.Random(number).sample(kinds, len(kinds))
                    requests = [NewExecution(execution_kind=kind) for kind in mixed]
                    calls.append(lab.engine.create_executions(requests))
                await asyncio.gather(*calls)
        finally:
            for other in others:
                await other.engine.close()
        counts = await durable_lab.engine.count_executions()
        assert counts == {"default": {"waiting": 5 * 4 * 60}}

    durable_lab.run(race())
