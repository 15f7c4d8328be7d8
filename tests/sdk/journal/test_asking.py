"""A budget that asks, met by handlers: they wait without a worker, and go on where they were."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric import BudgetExceeded, Context, Fabric, InvalidInput, PublicState, Run, SyncContext
from flowfabric.errors import AskOver
from flowfabric.model.ask import BudgetAsk
from flowfabric.sdk.errors import RunFailed
from tests.sdk.workshop import until, within, working

BUDGET = "gpt"
CALLS: list[str] = []


async def asked(ff: Fabric, count: int = 1) -> list[BudgetAsk]:
    """The open questions, once so many spenders wait for their answers."""

    async def are() -> bool:
        found = await ff.budget_asks()
        return sum(each.spenders for each in found) >= count

    await until(are)
    return await ff.budget_asks()


async def suspended(run: Run[Any]) -> None:
    async def is_so() -> bool:
        return await run.state() is PublicState.SUSPENDED

    await until(is_so)


def play(
    url: str, handler: Any, act: Callable[[Fabric, Run[Any]], Awaitable[Any]], **task: Any
) -> Any:
    """The end of one run of a handler, after a person has acted: its result, or its error."""

    async def main() -> Any:
        ff = Fabric(url)
        made = ff.task(**task)(handler)
        async with ff, working(ff):
            await ff.create_budget(BUDGET, hard={"tokens": 100}, on_hard="ask")
            run = await ff.submit(made)
            await act(ff, run)
            try:
                result = await within(run.result())
            except RunFailed as error:
                result = error
            return result, await ff.budget(BUDGET)

    CALLS.clear()
    return asyncio.run(main())


def test_a_block_waits_for_a_raise_and_settled_ones_are_charged_once(url: str) -> None:
    async def agent(ctx: Context) -> str:
        for turn in range(3):
            async with ctx.spend(BUDGET, tokens=60) as spend:
                CALLS.append(f"turn {turn}")
                spend.actual(tokens=50)
        return "done"

    async def act(ff: Fabric, run: Run[Any]) -> None:
        (ask,) = await asked(ff)
        assert (ask.usage, ask.wanted, ask.projected, ask.limit) == (50, 60, 110, 100)
        assert (ask.execution_id, ask.execution_kind) == (run.id, "agent")
        await suspended(run)
        await ff.approve_ask(BUDGET, "tokens", raise_by=10, by="ada", number=ask.number)
        (ask,) = await asked(ff)
        assert (ask.number, ask.usage) == (2, 100)
        await ff.approve_ask(BUDGET, "tokens", once=True, by="ada", run=run)

    result, budget = play(url, agent, act)
    assert result == "done"
    assert (budget.usage, budget.hard_limits, budget.allowed) == (
        {"tokens": 150},
        {"tokens": 110},
        {"tokens": 60},
    )
    assert not budget.held


@pytest.mark.parametrize("how", ["block", "step", "sync"])
def test_a_rejection_is_raised_in_the_handler_in_every_run(url: str, how: str) -> None:
    spend: Any = {BUDGET: {"tokens": 101}}
    ff = Fabric("memory://")

    @ff.step(spend=spend)
    async def think() -> str:
        CALLS.append("thought")
        return "thought"

    async def block(ctx: Context) -> str:
        said = ""
        try:
            async with ctx.spend(BUDGET, tokens=101):
                CALLS.append("thought")
        except BudgetExceeded as error:
            said = f"{error.fields['answer']} by {error.fields['by']}: {error.fields['comment']}"
        await ctx.wait_for("again")  # another run meets the same
        return said

    async def step(ctx: Context) -> str:
        said = ""
        try:
            await think()
        except BudgetExceeded as error:
            said = f"{error.fields['answer']} by {error.fields['by']}: {error.fields['comment']}"
        await ctx.wait_for("again")
        return said

    def sync(ctx: SyncContext) -> str:
        said = ""
        try:
            with ctx.spend(BUDGET, tokens=101):
                CALLS.append("thought")
        except BudgetExceeded as error:
            said = f"{error.fields['answer']} by {error.fields['by']}: {error.fields['comment']}"
        ctx.wait_for("again")
        return said

    async def act(ff: Fabric, run: Run[Any]) -> None:
        await asked(ff)
        await ff.reject_ask(BUDGET, "tokens", by="ada", comment="enough")

        async def waits() -> bool:
            return any("again" in each.waits_for for each in await ff.waits())

        await until(waits)
        await ff.signal(run, "again")

    result, budget = play(url, {"block": block, "step": step, "sync": sync}[how], act)
    assert result == "rejected by ada: enough"
    assert (CALLS, budget.usage) == ([], {})


def test_an_uncaught_rejection_fails_the_run_and_a_retry_asks_anew(url: str) -> None:
    async def agent(ctx: Context) -> str:
        async with ctx.spend(BUDGET, tokens=120):
            CALLS.append("thought")
        return "done"

    async def act(ff: Fabric, run: Run[Any]) -> None:
        await asked(ff)
        await ff.reject_ask(BUDGET, "tokens", by="ada")
        (again,) = await asked(ff)
        assert again.number == 2
        await ff.approve_ask(BUDGET, "tokens", once=True, by="ada")

    result, _ = play(url, agent, act, retries=2, backoff=0, retry_on=[BudgetExceeded])
    assert (result, CALLS) == ("done", ["thought"])
    failed, _ = play(url, agent, lambda ff, _: rejected(ff))
    assert isinstance(failed, RunFailed)
    assert failed.category == "budget_exceeded"


async def rejected(ff: Fabric) -> None:
    await asked(ff)
    await ff.reject_ask(BUDGET, "tokens", by="ada")


def test_no_answer_in_time_is_a_refusal(url: str) -> None:
    async def agent(ctx: Context) -> str:
        try:
            async with ctx.spend(BUDGET, answer_in="200ms", tokens=120):
                CALLS.append("thought")
        except BudgetExceeded as error:
            return f"{error.fields['answer']}: {error.dimension} {error.hard_limit}"
        return "done"

    async def act(ff: Fabric, run: Run[Any]) -> None:
        await asyncio.sleep(0)

    result, budget = play(url, agent, act)
    assert (result, CALLS, budget.usage) == ("no answer in time: tokens 100", [], {})


def test_steps_beside_each_other_share_a_question(url: str) -> None:
    plain = Fabric("memory://")

    @plain.step(spend={BUDGET: {"tokens": 70}})
    async def think(topic: str) -> str:
        CALLS.append(topic)
        return topic

    async def agent(ctx: Context) -> Any:
        return await ctx.gather(think.later("a"), think.later("b"), think.later("c"))

    async def act(ff: Fabric, run: Run[Any]) -> None:
        (ask,) = await asked(ff, 2)
        assert (ask.spenders, ask.wanted) == (2, 140)
        await ff.approve_ask(BUDGET, "tokens", raise_by=110, by="ada")

    result, budget = play(url, agent, act)
    assert result == ["a", "b", "c"]
    assert sorted(CALLS) == ["a", "b", "c"]
    assert budget.usage == {"tokens": 210}


def test_a_step_of_two_budgets_asks_for_each(url: str) -> None:
    plain = Fabric("memory://")

    @plain.step(spend={BUDGET: {"tokens": 170}, "money": {"cents": 7}})
    async def think() -> str:
        CALLS.append("thought")
        return "thought"

    async def agent(ctx: Context) -> str:
        return await think()

    async def act(ff: Fabric, run: Run[Any]) -> None:
        await ff.create_budget("money", hard={"cents": 5}, on_hard="ask")
        for _ in range(2):
            (ask,) = await asked(ff)
            await ff.approve_ask(ask.budget_id, ask.dimension, once=True, by="ada")

    async def main() -> Any:
        ff = Fabric(url)
        made = ff.task()(agent)
        async with ff:
            await ff.create_budget(BUDGET, hard={"tokens": 100}, on_hard="ask")
            await ff.create_budget("money", hard={"cents": 5}, on_hard="ask")
            async with working(ff):
                run = await ff.submit(made)
                await act(ff, run)
                result = await within(run.result())
            money = await ff.budget("money")
            return result, (await ff.budget(BUDGET)).usage, money.usage, money.allowed

    CALLS.clear()
    found = asyncio.run(main())
    assert found == ("thought", {"tokens": 170}, {"cents": 7}, {"cents": 7})
    assert CALLS == ["thought"]


def test_a_spend_without_a_place_in_the_handler_does_not_ask(url: str) -> None:
    async def agent(ctx: Context) -> str:
        async def one() -> str:
            try:
                async with ctx.spend(BUDGET, tokens=101):
                    return "spent"
            except BudgetExceeded as error:
                return error.dimension

        return await asyncio.create_task(one())

    async def act(ff: Fabric, run: Run[Any]) -> None:
        await asyncio.sleep(0)

    result, budget = play(url, agent, act)
    assert (result, budget.breach_count) == ("tokens", 1)


def test_answers_are_checked_where_they_are_given(url: str) -> None:
    async def agent(ctx: Context) -> str:
        async with ctx.spend(BUDGET, tokens=101):
            return "done"

    async def act(ff: Fabric, run: Run[Any]) -> None:
        await asked(ff)
        for field, wrong in (
            ("by", {"by": "", "once": True}),
            ("raise_by", {"by": "ada"}),
            ("raise_by", {"by": "ada", "raise_by": 1, "once": True}),
        ):
            with pytest.raises(InvalidInput) as error:
                await ff.approve_ask(BUDGET, "tokens", **wrong)
            assert error.value.fields["field"] == field
        with pytest.raises(AskOver):
            await ff.reject_ask(BUDGET, "tokens", by="ada", number=9)
        if url == "memory://":  # which a blocking fabric does not share
            await ff.approve_ask(BUDGET, "tokens", by="ada", once=True)
            return
        assert await asyncio.to_thread(ff.sync.budget_asks, BUDGET)
        await asyncio.to_thread(ff.sync.approve_ask, BUDGET, "tokens", by="ada", once=True)
        await asyncio.to_thread(ff.sync.close)

    result, _ = play(url, agent, act)
    assert result == "done"
