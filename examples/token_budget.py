"""Five prompts on one token budget: a warning, a full stop, and an operator who gives more.

Runs by itself, on a SQLite file or where FLOWFABRIC_URL says; the model is simulated.
See docs/guides/limits.md.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from uuid import uuid4

from flowfabric import (
    BudgetExceeded,
    BudgetStatus,
    Context,
    Fabric,
    PublicState,
    Run,
    SoftBreach,
    Worker,
)
from flowfabric.cli.show.bars import Gauge, bar

PROMPTS = ["solar", "wind", "tides", "geothermal", "fusion"]
BUDGET = f"prompts-{uuid4().hex[:6]}"  # another one each time
ff = Fabric()  # sqlite:///flowfabric.db, or what FLOWFABRIC_URL names


@ff.task(budgets=[BUDGET])
async def answer(ctx: Context, prompt: str) -> str:
    """Reserve before each turn, charge what it really took, and wait when there is no room."""
    total, warned = 0, False
    try:
        async for turn in turns(prompt):
            async with ctx.spend(BUDGET, tokens=100, cost_micros=900) as spend:
                tokens = await turn.take()
                spend.actual(tokens=tokens, cost_micros=9 * tokens)
            total += tokens
            if isinstance(spend.outcome, SoftBreach) and not warned:
                soft, warned = spend.outcome, True
                print(
                    f"  {prompt}: {soft.dimension} {soft.current_usage} is over {soft.soft_limit}"
                )
    except BudgetExceeded as error:
        print(f"  {prompt}: no room, {error.dimension} {error.current_usage}/{error.hard_limit}")
        await ctx.delay("1s")  # parked; while the budget is full it is not started again
    return f"{total} tokens"


class Turn:
    """One call of a model that takes exactly a hundred tokens."""

    async def take(self) -> int:
        await asyncio.sleep(0.001)
        return 100


async def turns(prompt: str) -> AsyncIterator[Turn]:
    """Two to five turns, the same on every run."""
    for _ in range(random.Random(prompt).randint(2, 5)):
        yield Turn()


def show(title: str, budget: BudgetStatus) -> None:
    """The budget as `ff budget show` draws it."""
    print(title)
    assert budget.policy is not None
    for name, hard in budget.policy.hard_limits.items():
        soft, used = budget.policy.soft_limits[name], budget.usage.get(name, 0)
        gauge = Gauge(used=used, held=budget.held.get(name, 0), hard=hard, soft=soft)
        print(f"  {name:12}{bar(gauge)}  {used} of {hard}")


async def at_rest(runs: list[Run[str]]) -> None:
    """Return when every run has ended or waits for the budget."""
    ends = {PublicState.COMPLETED, PublicState.RATE_LIMITED}
    for run in runs:
        while True:
            if await run.state() in ends:
                break
            await asyncio.sleep(0.02)


async def main() -> None:
    async with ff:
        await ff.create_budget(
            BUDGET,
            hard={"tokens": 1_200, "cost_micros": 15_000},
            soft={"tokens": 800, "cost_micros": 10_000},
        )
        worker = Worker(ff, concurrency=1)
        working = asyncio.create_task(worker.run())
        runs = await ff.submit_many(answer, PROMPTS)

        await at_rest(runs)
        show("the budget is spent:", await ff.budget(BUDGET))
        for prompt, run in zip(PROMPTS, runs, strict=True):
            print(f"  {prompt:12}{(await run.explain()).summary}")

        print(f"an operator: ff budget raise {BUDGET} tokens=4000 cost_micros=50000")
        await ff.raise_budget(BUDGET, tokens=4_000, cost_micros=50_000)
        for prompt, run in zip(PROMPTS, runs, strict=True):
            print(f"  {prompt:12}{await run.result(timeout='30s')}")
        show("done:", await ff.budget(BUDGET))

        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
