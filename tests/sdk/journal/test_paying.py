"""Steps that spend: reserved before they begin, charged with the entry of their end, once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from flowfabric import (
    BudgetExceeded,
    Context,
    EntryKind,
    EntryState,
    Fabric,
    InvalidInput,
    RunFailed,
    StepFailed,
    SyncContext,
)
from tests.property.budget import budget
from tests.sdk.journal.bench import journal, keys, worked
from tests.sdk.journal.test_once import lose_lease
from tests.sdk.workshop import until

SPEND = {"gpt": {"tokens": 100}}


async def used(ff: Fabric, budget: str = "gpt") -> tuple[int, int]:
    """Tokens of the budget: used, and held."""
    found = await ff.budget(budget)
    return int(found.usage.get("tokens", 0)), int(found.held.get("tokens", 0))


def cost(result: int) -> Mapping[str, int]:
    return {"tokens": result}


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_step_is_charged_what_it_cost_and_once(url: str, is_sync: bool) -> None:
    """However often the handler runs."""
    ff, ran = Fabric(url), list[int]()

    def ask(n: int) -> int:
        ran.append(n)
        return n

    step: Any = ff.step(spend=SPEND, actual=cost)(ask)

    @ff.task(retries=2, backoff="1ms")
    async def agent(ctx: Context) -> int:
        for n in (1, 2, 3):
            await step(n)
        if ctx.attempt < 3:
            raise ValueError("again")
        return ctx.attempt

    @ff.task(retries=2, backoff="1ms")
    def agent_in_a_thread(ctx: SyncContext) -> int:
        for n in (1, 2, 3):
            step(n)
        if ctx.attempt < 3:
            raise ValueError("again")
        return ctx.attempt

    async def main(ff: Fabric) -> None:
        await ff.create_budget("gpt", hard={"tokens": 1_000})
        run = await ff.submit(agent_in_a_thread if is_sync else agent)
        assert await run.result() == 3
        assert ran == [1, 2, 3]
        assert await used(ff) == (6, 0)
        assert await keys(ff, run) == ["ask", "ask#2", "ask#3"]

    worked(ff, main)


def test_budget_with_a_step_killed_between_body_and_checkpoint(url: str) -> None:
    """7.1.21: killed again and again after the body: usage equals completed steps, no hold left."""
    ff, ran, kills = Fabric(url), list[int](), budget("FF_PAYING_KILLS", 8)
    each = kills // 2 + 1

    @ff.step(spend={"gpt": {"tokens": 100}, "other": {"tokens": 1}}, actual=lambda _: {"tokens": 7})
    async def ask(n: int) -> int:
        ran.append(n)
        if len(ran) % each:
            await lose_lease(ff)  # nothing that follows is recorded
        return n

    @ff.task(recoveries=kills * 2)
    async def agent() -> list[int]:
        return [await ask(1), await ask(2)]

    async def main(ff: Fabric) -> None:
        for name in ("gpt", "other"):
            await ff.create_budget(name, hard={"tokens": 120})
        run = await ff.submit(agent)
        assert await run.result() == [1, 2]
        assert ran == [1] * each + [2] * each
        assert await used(ff) == (14, 0)
        assert await used(ff, "other") == (14, 0)

    worked(ff, main)


def test_a_failed_step_is_charged_nothing(url: str) -> None:
    """Its tries share one reservation."""
    ff, seen = Fabric(url), list[Any]()

    @ff.step(spend=SPEND, retries=2, backoff="1ms")
    async def ask() -> None:
        seen.append(await used(ff))
        raise ConnectionError("no line")

    @ff.task
    async def agent() -> str:
        try:
            await ask()
        except StepFailed as error:
            return error.category
        return ""

    async def main(ff: Fabric) -> None:
        await ff.create_budget("gpt", hard={"tokens": 120})
        assert await (await ff.submit(agent)).result() == "ConnectionError"
        assert seen == [(0, 100)] * 3
        assert await used(ff) == (0, 0)

    worked(ff, main)


def test_a_budget_without_room_is_told_at_the_call_and_in_every_later_run(url: str) -> None:
    """A failure that the handler caught is history: more room changes nothing."""
    ff, seen, ran = Fabric(url), list[Any](), list[int]()

    @ff.step(spend={"a": {"tokens": 1}, "gpt": {"tokens": 100}})
    async def ask() -> None:
        ran.append(1)

    @ff.task(retries=1, backoff="1ms")
    async def agent(ctx: Context) -> None:
        try:
            await ask()
        except BudgetExceeded as error:
            seen.append((error.budget, error.dimension, error.current_usage, error.hard_limit))
        if ctx.attempt == 1:
            await ff.create_budget("other", hard={"tokens": 1})
            engine = await ff.start()
            await engine.update_budget(budget_id="gpt", hard_limits={"tokens": 1_000})
            raise ValueError("again")

    async def main(ff: Fabric) -> None:
        await ff.create_budget("a", hard={"tokens": 10})
        await ff.create_budget("gpt", hard={"tokens": 99})
        run = await ff.submit(agent)
        await run.result()
        assert seen == [("gpt", "tokens", 0, 99)] * 2
        assert ran == []
        assert (await used(ff, "a"), await used(ff)) == ((0, 0), (0, 0))

    worked(ff, main)


def test_a_budget_without_room_that_ends_the_attempt_is_asked_again(url: str) -> None:
    ff, ran = Fabric(url), list[int]()

    @ff.step(once=True, spend=SPEND)
    async def ask() -> int:
        ran.append(1)
        return 1

    @ff.task
    async def agent() -> int:
        return await ask()

    async def main(ff: Fabric) -> None:
        await ff.create_budget("gpt", hard={"tokens": 99})
        run = await ff.submit(agent)
        with pytest.raises(RunFailed, match="is used or reserved"):
            await run.result()
        engine = await ff.start()
        await engine.update_budget(budget_id="gpt", hard_limits={"tokens": 1_000})
        await run.retry()
        assert await run.result() == 1
        assert ran == [1]
        assert await used(ff) == (100, 0)
        states = [(each.kind, each.state) for each in await journal(ff, run)]
        assert states == [
            (EntryKind.STEP, EntryState.FAILED),
            (EntryKind.STEP, EntryState.REOPENED),
            (EntryKind.STARTED, EntryState.OPEN),
            (EntryKind.STEP, EntryState.OK),
        ]

    worked(ff, main)


def test_a_cancelled_step_gives_its_reservation_back(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def agent(ctx: Context) -> Any:
        async def slow() -> None:
            await ctx.sleep("500ms")
            await ctx.sleep("500ms")

        async def paying() -> None:
            await ctx.step.options(spend=SPEND)("ask", _forever)

        index, _ = await ctx.first_of(slow(), paying())
        assert index == 0

        async def is_free() -> bool:
            return await used(ff) == (0, 0)

        await until(is_free)

    async def main(ff: Fabric) -> None:
        await ff.create_budget("gpt", hard={"tokens": 120})
        await (await ff.submit(agent)).result()

    worked(ff, main)


async def _forever() -> None:
    await asyncio.Event().wait()


def test_a_function_that_cannot_tell_the_cost_fails_the_step(url: str) -> None:
    ff = Fabric(url)

    @ff.step(spend=SPEND, actual=lambda result: {"tokens": result["no"]}, retries=5)
    async def ask() -> dict[str, int]:
        return {}

    @ff.task
    async def agent() -> str:
        try:
            await ask()
        except StepFailed as error:
            return error.reason
        return ""

    async def main(ff: Fabric) -> None:
        await ff.create_budget("gpt", hard={"tokens": 120})
        assert "actual: KeyError" in await (await ff.submit(agent)).result()
        assert await used(ff) == (0, 0)

    worked(ff, main)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"spend": "gpt"}, "spend"),
        ({"spend": {}}, "spend"),
        ({"spend": {"gpt": {}}}, "spend"),
        ({"spend": {"": {"a": 1}}}, "spend"),
        ({"spend": {"gpt": {"a": -1}}}, "spend.a"),
        ({"spend": {str(n): {"a": 1} for n in range(17)}}, "spend"),
        ({"spend": SPEND, "actual": 7}, "actual"),
        ({"actual": cost}, "actual"),
    ],
)
def test_wrong_amounts_are_refused_when_decorated(options: dict[str, Any], field: str) -> None:
    ff = Fabric("memory://")
    with pytest.raises(InvalidInput) as caught:
        ff.step(**options)(lambda: None)
    assert caught.value.fields["field"] == field
