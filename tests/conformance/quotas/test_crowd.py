"""Quotas under a crowd: two engines, many workers at once, and never more than the cap."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from flowfabric.assemble import open_engine
from flowfabric.engine.engine import Engine
from flowfabric.model.state import PublicState
from tests.support.builders import policy, retries
from tests.support.gates import assert_counters, many, quota
from tests.support.lab import Lab

CAP, KEYS, EACH = 3, ("a", "b"), 25


class Census:
    """How many of each key ran at the same time, by a look at the store after every claim."""

    def __init__(self, lab: Lab, key_of: dict[str, str]) -> None:
        self._lab = lab
        self._key_of = key_of
        self.most: Counter[str] = Counter()

    async def look(self) -> None:
        executions = (await self._lab.dump())["executions"]
        running = Counter(self._key_of[each.execution_id] for each in executions if each.is_leased)
        self.most |= running


async def work(
    engine: Engine, name: str, chance: random.Random, left: set[str], census: Census
) -> None:
    while left:
        claimed = await engine.claim(
            lanes=("default",),
            worker_id=name,
            worker_instance_id=name,
            limit=chance.randrange(1, 5),
            lease_ttl_ms=3_600_000,
        )
        await census.look()
        for each in claimed:
            await asyncio.sleep(0)
            if chance.random() < 0.2:
                await engine.fail(each.handle, reason="again")
            else:
                await engine.complete(each.handle)
                left.discard(each.execution_id)
        await asyncio.sleep(0)


async def keep_time(lab: Lab, left: set[str]) -> None:
    """What a process died over is found by time: room nobody used, retries."""
    for _ in range(2_000):
        if not left:
            return
        lab.clock.advance(100)
        await lab.engine.tick()
        await asyncio.sleep(0.002)
    raise AssertionError(f"{len(left)} never ran")


async def story(lab: Lab, engines: list[Engine]) -> None:
    await quota(lab, cap=CAP)
    key_of = {}
    for key in KEYS:
        rules = policy(retry_policy=retries(1000, delay_ms=0))
        for execution_id in await many(lab, EACH, concurrency_key=key, policy=rules):
            key_of[execution_id] = key
    left, census = set(key_of), Census(lab, key_of)
    workers = [
        work(engine, f"w{number}-{turn}", random.Random(number * 10 + turn), left, census)
        for number, engine in enumerate(engines)
        for turn in range(4)
    ]
    async with asyncio.TaskGroup() as group:
        group.create_task(keep_time(lab, left))
        for each in workers:
            group.create_task(each)
    states = {await lab.state(execution_id) for execution_id in key_of}
    assert states == {PublicState.COMPLETED}
    assert census.most == dict.fromkeys(KEYS, CAP)
    await assert_counters(lab)


def test_a_crowd_on_one_engine(lab: Lab) -> None:
    lab.run(story(lab, [lab.engine]))


def test_a_crowd_on_two_engines(durable_lab: Lab) -> None:
    lab = durable_lab

    async def both() -> None:
        other = open_engine(lab.url, config=lab.config, clock=lab.clock)
        await other.start()
        try:
            await story(lab, [lab.engine, other])
        finally:
            await other.close()

    lab.run(both())


def test_rivals_for_a_new_gate(durable_lab: Lab) -> None:
    """The first admissions of a key race to make its gate; no conflict surfaces."""
    lab, rivals = durable_lab, 8

    async def race() -> None:
        await quota(lab, cap=2)
        ids = await many(lab, rivals)
        other = open_engine(lab.url, config=lab.config, clock=lab.clock)
        await other.start()
        try:
            answers = await asyncio.gather(
                *(
                    engine.check_admission(quota_policy_id="q", execution_id=execution_id)
                    for execution_id, engine in zip(
                        ids, [lab.engine, other] * (rivals // 2), strict=True
                    )
                )
            )
        finally:
            await other.close()
        names = Counter(type(each).__name__ for each in answers)
        assert names == {"Admitted": 2, "ConcurrencyExceeded": rivals - 2}
        await assert_counters(lab)

    lab.run(race())
