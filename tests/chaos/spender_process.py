"""Spends from shared budgets until it has made its calls: python -m … URL NAME MODE DIARY CALLS.

Each hand owns an execution and has one call under way at a time. What it is about to do and what it
was told stand in its diary, so that after a kill everybody knows which calls are without an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from flowfabric.api.budgets import Usage
from flowfabric.assemble import open_engine
from flowfabric.clock import monotonic
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import ExecutionNotActive, FlowFabricError, NotFound, StateError
from flowfabric.model.results import Claimed
from tests.chaos.diary import BUDGETS, Answer, Diary, Intent

LEASE_MS = 2_000
LOST = (StateError, ExecutionNotActive)  # this machine was too slow for the lease
HOLD_MS = 400
HANDS = "ab"
SAY_EVERY = 5


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Hand:
    """Owns one execution after the other and spends in its name."""

    def __init__(self, engine: Engine, name: str, diary: Diary, calls: int) -> None:
        self._engine, self._name, self._diary = engine, name, diary
        self._calls = calls
        self._rng = random.Random(name)
        self._held: Claimed
        self._renewed = 0.0
        self._count = 0

    async def work(self) -> None:
        await self._own()
        for done in range(1, self._calls + 1):
            try:
                await self._keep_lease()
                await self._one_call()
            except LOST:
                await self._own()
            if done % SAY_EVERY == 0:
                say("did", SAY_EVERY)
        with suppress(*LOST):
            await self._engine.complete(self._held.handle)

    async def _own(self) -> None:
        lane = f"{self._name}.{self._next()}"
        await self._engine.create_execution(execution_kind="spend", lane_id=lane)
        claimed: list[Claimed] = []
        while not claimed:
            claimed = await self._engine.claim(
                lanes=(lane,),
                worker_id=self._name,
                worker_instance_id=self._name,
                lease_ttl_ms=LEASE_MS,
            )
        self._held, self._renewed = claimed[0], monotonic()

    async def _keep_lease(self) -> None:
        if monotonic() - self._renewed > LEASE_MS / 4000:
            self._renewed = monotonic()
            await self._engine.renew(self._held.handle)

    def _next(self) -> int:
        self._count += 1
        return self._count

    async def _one_call(self) -> None:
        what = self._rng.choices(
            ("report", "owner_report", "spend", "reserve"), weights=(4, 2, 2, 3)
        )[0]
        if what == "reserve":
            await self._reserve_and_settle()
            return
        await self._ask_perhaps_twice(self._intent(what))

    async def _ask_perhaps_twice(self, intent: Intent) -> None:
        answer = await self._ask(intent)
        if self._rng.random() < 0.15:  # the answer was lost on the way, for all we know
            again = await self._ask(intent)
            if answer.was_applied:
                expected = "AlreadyApplied" if intent.what == "spend" else answer.outcome
                assert again.outcome == expected, f"{answer} and then {again}"

    def _intent(self, what: str, hold: str = "") -> Intent:
        amounts = {"cents": self._rng.randint(1, 5), "tokens": self._rng.randint(0, 4)}
        return Intent(
            number=f"{self._name}/{self._next()}",
            what=what,
            budget_id=self._rng.choice(BUDGETS),
            execution_id=self._held.execution_id,
            key=hold or f"{self._name}-{self._count}",
            amounts={name: amount for name, amount in amounts.items() if amount},
        )

    async def _reserve_and_settle(self) -> None:
        wanted = self._intent("reserve")
        if (await self._ask(wanted)).outcome != "Reserved":
            return
        fate = self._rng.random()
        if fate < 0.15:
            return  # left alone: it lapses, or ends with the lease
        await asyncio.sleep(self._rng.random() * 0.01)
        real = self._intent("settle" if fate < 0.85 else "release", wanted.key)
        real.budget_id, real.covered = wanted.budget_id, wanted.amounts
        await self._ask_perhaps_twice(real)

    async def _ask(self, intent: Intent) -> Answer:
        self._diary.note(intent)
        try:
            reply: Any = await self._call(intent)
        except (NotFound, *LOST) as refusal:
            self._diary.note(Answer(intent.number, type(refusal).__name__))
            if isinstance(refusal, LOST):
                raise
            return Answer(intent.number, "NotFound")  # a hold that lapsed meanwhile
        answer = Answer(intent.number, type(reply).__name__)
        self._diary.note(answer)
        return answer

    async def _call(self, intent: Intent) -> Any:
        engine, handle, budget_id = self._engine, self._held.handle, intent.budget_id
        match intent.what:
            case "report":
                return await engine.report_usage_admin(
                    budget_id=budget_id,
                    dimensions=list(intent.amounts),
                    deltas=list(intent.amounts.values()),
                    dedup_key=intent.key,
                )
            case "owner_report":
                usage = Usage(custom=intent.amounts, dedup_key=intent.key)
                return await engine.report_usage(handle, budget_id=budget_id, usage=usage)
            case "spend":
                return await engine.record_spend(
                    budget_id=budget_id,
                    execution_id=intent.execution_id,
                    deltas=intent.amounts,
                    idempotency_key=intent.key,
                )
            case "reserve":
                return await engine.reserve_budget(
                    handle,
                    budget_id=budget_id,
                    amounts=intent.amounts,
                    hold_id=intent.key,
                    ttl_ms=HOLD_MS,
                )
            case "settle":
                return await engine.settle_budget(
                    handle, budget_id=budget_id, hold_id=intent.key, amounts=intent.amounts
                )
            case _:
                return await engine.release_hold(handle, budget_id=budget_id, hold_id=intent.key)


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "name", "mode", "diary"):
        parser.add_argument(name)
    parser.add_argument("calls", type=int)
    asked = parser.parse_args()
    config = EngineConfig(pool_size=3, synchronous="normal", poll_interval_ms=200)
    diary = Diary(Path(asked.diary))
    async with open_engine(asked.url, config=config) as engine:
        hands = [Hand(engine, f"{asked.name}{hand}", diary, asked.calls) for hand in HANDS]
        try:
            await asyncio.gather(*(hand.work() for hand in hands))
        except FlowFabricError as outage:
            say("outage", type(outage).__name__, outage.detail)
            raise
        say("end")
        await asyncio.Event().wait()  # until the test is over: our loops give back what others left


if __name__ == "__main__":
    asyncio.run(main())
