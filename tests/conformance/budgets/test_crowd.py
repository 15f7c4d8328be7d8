"""Many callers of one budget at once: each gets its own exact answer, and nobody is forgotten."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidInput
from flowfabric.model.budget import AMOUNT_MAX, HardBreach, Ok, Reserved
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from tests.support.budgets import (
    BUDGET,
    held,
    make_budget,
    report,
    reserve,
    settle,
    status,
    usage,
)
from tests.support.lab import Lab, scenario


@scenario
async def test_every_caller_of_a_batch_gets_its_own_outcome(lab: Lab) -> None:
    """One commit carries them; a refused one spoils nothing for the others."""
    await make_budget(lab, hard={"a": 60}, on_hard_limit="deny")
    calls = [report(lab, {"a": 1}) for _ in range(100)]
    calls += [report(lab, {"z": AMOUNT_MAX}) for _ in range(3)]
    calls += [report(lab, {"k": 1}, dedup_key="k") for _ in range(5)]
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert Counter(replies[:100]) == {Ok(): 60, HardBreach("a", 60, 60): 40}
    assert Counter(type(reply) for reply in replies[100:103]) == {Ok: 1, InvalidInput: 2}
    assert set(replies[103:]) == {Ok()}
    assert await usage(lab) == {"a": 60, "k": 1, "z": AMOUNT_MAX}
    assert (await status(lab)).breach_count == 40


def test_rival_engines_share_keys_exactly(durable_lab: Lab) -> None:
    """The same keys from three engines are applied once each."""

    async def work() -> None:
        labs = [durable_lab, Lab(durable_lab.url), Lab(durable_lab.url)]
        for other in labs[1:]:
            await other.engine.start(migrate=False)
        try:
            calls = [
                report(each, {"a": 1}, f"b{number % 4}", dedup_key=f"k{number}")
                for number in range(40)
                for each in labs
            ]
            random.Random(1).shuffle(calls)
            async with asyncio.timeout(60):
                replies = await asyncio.gather(*calls)
        finally:
            for other in labs[1:]:
                await other.engine.close()
        assert set(replies) == {Ok()}
        for number in range(4):
            assert await usage(durable_lab, f"b{number}") == {"a": 10}

    durable_lab.run(work())


def test_a_scoped_budget_is_known_to_other_engines_at_once(durable_lab: Lab) -> None:
    async def work() -> None:
        other = Lab(durable_lab.url)
        await other.engine.start(migrate=False)
        try:
            await other.create()
            await make_budget(durable_lab, hard={"a": 1}, scope_type="lane", scope_id="default")
            bounded = await other.create()
            assert (await other.record(bounded)).bounds.budget_ids == (BUDGET,)
        finally:
            await other.engine.close()

    durable_lab.run(work())


def test_a_status_is_of_one_instant(durable_lab: Lab) -> None:
    """Counters and usage belong together though reports go on."""

    async def work() -> None:
        lab, other = durable_lab, Lab(durable_lab.url)
        await other.engine.start(migrate=False)
        await make_budget(lab, soft={"a": 1})
        writing = True

        async def writer() -> None:
            nonlocal writing
            for _ in range(150):
                await report(other, {"a": 1})
            writing = False

        async def reader() -> None:
            while writing:
                for seen in (await status(lab), *(await lab.engine.list_budgets()).items):
                    assert seen.soft_breach_count == max(0, seen.usage.get("a", 0) - 1)

        try:
            async with asyncio.timeout(60):
                await asyncio.gather(writer(), reader())
        finally:
            await other.engine.close()

    durable_lab.run(work())


def test_holders_of_several_budgets_never_deadlock(durable_lab: Lab) -> None:
    """Reservations of two budgets lock both in one order, at once."""

    async def work() -> None:
        lab, other = durable_lab, Lab(durable_lab.url)
        await other.engine.start(migrate=False)
        names = [f"b{number}" for number in range(4)]
        for name in names:
            await make_budget(lab, name)

        async def rival(each: Lab, number: int) -> None:
            draw = random.Random(number)
            for _ in range(4):
                claimed = await each.started(f"w{number}", lane_id=f"lane-{number}")
                for name in draw.sample(names, len(names)):
                    await reserve(each, claimed, {"a": 1}, budget_id=name)
                    await report(each, {"a": 1}, draw.choice(names))
                await each.engine.complete(claimed.handle)

        try:
            # One deadlock alone costs a second; a storm of them would not end in time.
            async with asyncio.timeout(60):
                calls = [rival((lab, other)[number % 2], number) for number in range(8)]
                await asyncio.gather(*calls)
        finally:
            await other.engine.close()
        for name in names:
            assert await held(lab, name) == {}
        assert sum([(await usage(lab, name))["a"] for name in names]) == 8 * 4 * len(names)

    durable_lab.run(work())


def test_nobody_stays_blocked_while_a_budget_opens_and_closes(durable_lab: Lab) -> None:
    """A denial and the change that makes room meet under one lock."""

    async def work() -> None:
        lab, other = durable_lab, Lab(durable_lab.url)
        await other.engine.start(migrate=False)
        await make_budget(lab, hard={"a": 10})
        one = NewExecution(execution_kind="work", budget_ids=(BUDGET,))
        await lab.engine.create_executions([one] * 60)
        finished = 0

        async def worker(number: int) -> None:
            nonlocal finished
            for _ in range(25):
                for claimed in await lab.claims(f"w{number}", limit=2):
                    await spend_and_complete(lab, claimed)
                    finished += 1

        async def keeper() -> None:
            for _ in range(15):
                await other.engine.reset_budget(budget_id=BUDGET)
                await asyncio.sleep(0)

        try:
            async with asyncio.timeout(90):
                await asyncio.gather(*(worker(number) for number in range(3)), keeper())
        finally:
            await other.engine.close()
        await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"a": 0})
        for _ in range(5):
            lab.clock.advance(1000)
            await lab.engine.move_due()
        left = (await lab.dump())["executions"]
        assert Counter(each.public_state for each in left if not each.is_terminal) in (
            {},
            {PublicState.WAITING: 60 - finished},
        )
        assert await held(lab) == {}

    durable_lab.run(work())


async def spend_and_complete(lab: Lab, claimed: Claimed) -> None:
    reply: Any = await lab.engine.reserve_budget(
        claimed.handle, budget_id=BUDGET, amounts={"a": 3}, hold_id="h"
    )
    if isinstance(reply, Reserved):
        await settle(lab, claimed, {"a": 3})
    await lab.engine.complete(claimed.handle)
