"""Budgets around steps: what is settled is not charged again by a later run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import Context, Fabric, Run, SyncContext
from flowfabric.model.budget import Ok
from tests.sdk.journal.bench import journal, keys, worked


async def used(ff: Fabric) -> int:
    """Tokens of the budget."""
    return int((await ff.budget("gpt")).usage["tokens"])


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_settled_block_charges_nothing_again(url: str, is_sync: bool) -> None:
    ff, ran = Fabric(url), []

    @ff.step
    def ask(n: int) -> int:
        ran.append(n)
        return n

    @ff.task(retries=2, backoff="1ms")
    async def agent(ctx: Context) -> int:
        for n in range(3):
            async with ctx.spend("gpt", tokens=100) as spend:
                await ctx.step("ask", ask.function, n)
                spend.actual(tokens=10)
        if ctx.attempt < 3:
            raise ValueError("again")
        return ctx.attempt

    @ff.task(retries=2, backoff="1ms")
    def agent_in_a_thread(ctx: SyncContext) -> int:
        for n in range(3):
            with ctx.spend("gpt", tokens=100) as spend:
                ask(n)
                spend.actual(tokens=10)
        if ctx.attempt < 3:
            raise ValueError("again")
        return ctx.attempt

    async def main(ff: Fabric) -> None:
        await ff.create_budget("gpt", hard={"tokens": 1_000})
        run = await ff.submit(agent_in_a_thread if is_sync else agent)
        assert await run.result() == 3
        assert ran == [0, 1, 2]
        assert await used(ff) == 30
        assert await keys(ff, run) == [
            *("ask", "spend:gpt", "ask#2", "spend:gpt#2", "ask#3", "spend:gpt#3")
        ]

    worked(ff, main)


def test_a_handler_without_steps_spends_as_before(url: str) -> None:
    """Also in tasks of its own."""
    ff = Fabric(url)

    @ff.task(retries=1, backoff="1ms")
    async def agent(ctx: Context) -> None:
        async def part() -> None:
            async with ctx.spend("gpt", tokens=10):
                pass

        await asyncio.gather(part(), part())
        async with ctx.spend("gpt", tokens=5):
            pass
        if ctx.attempt == 1:
            raise ValueError("again")

    async def main(ff: Fabric) -> None:
        await ff.create_budget("gpt", hard={"tokens": 1_000})
        run = await ff.submit(agent)
        await run.result()
        assert await used(ff) == 50
        assert await journal(ff, run) == ()

    worked(ff, main)


def test_a_block_that_was_interrupted_is_charged_once(url: str) -> None:
    ff, ran = Fabric(url), list[Any]()

    @ff.step
    async def ask() -> int:
        ran.append(1)
        if len(ran) == 1:
            raise ConnectionError("no")
        return 1

    @ff.task(retries=1, backoff="1ms")
    async def agent(ctx: Context) -> None:
        async with ctx.spend("gpt", tokens=10):
            await ask()

    async def main(ff: Fabric) -> None:
        await ff.create_budget("gpt", hard={"tokens": 1_000})
        await (await ff.submit(agent)).result()
        assert (len(ran), await used(ff)) == (2, 10)

    worked(ff, main)


def test_a_block_is_charged_with_its_entry(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction: no crash can come between the two and make a later run pay again."""
    ff, seen = Fabric(url), list[Any]()

    @ff.task
    async def agent(ctx: Context) -> None:
        await ctx.value("colour", lambda: "red")
        async with ctx.spend("gpt", tokens=100) as spend:
            spend.actual(tokens=10)
        seen.append(spend.outcome)
        run = Run[Any](ff, ctx.execution_id)
        seen.append((await used(ff), [each.key for each in await journal(ff, run)]))

    async def main(ff: Fabric) -> None:
        await ff.create_budget("gpt", hard={"tokens": 1_000})
        monkeypatch.setattr(type(await ff.start()), "settle_budget", None)
        await (await ff.submit(agent)).result()
        assert seen == [Ok(), (10, ["colour", "spend:gpt"])]

    worked(ff, main)
