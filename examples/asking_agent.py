"""An agent whose budget asks: a person sees what it wants, raises the limit, and stops another.

Runs by itself, on a SQLite file or where FLOWFABRIC_URL says; the model is simulated.
See docs/guides/budgets-that-ask.md.
"""

import asyncio
from uuid import uuid4

from flowfabric import BudgetExceeded, Context, Fabric, Worker

BUDGET = f"model-{uuid4().hex[:6]}"  # another one each time
ff = Fabric()  # sqlite:///flowfabric.db, or what FLOWFABRIC_URL names
thoughts: list[str] = []


@ff.step(spend={BUDGET: {"tokens": 400}})
async def think(topic: str, turn: int) -> str:
    """One call of a model, of at most 400 tokens. Recorded, so that it is paid for once."""
    thoughts.append(f"{topic} {turn}")
    return f"{topic}, thought through {turn} times"


@ff.task
async def research(ctx: Context, topic: str) -> str:
    """Three turns. Where the budget is spent it waits, without a worker, for a person."""
    text = topic
    for turn in (1, 2, 3):
        try:
            text = await think(topic, turn)
        except BudgetExceeded as error:
            said = f"{error.fields['by']}: {error.fields['comment']}"
            return f"{text}; stopped by {said}"
    return text


async def question() -> int:
    """Wait until the budget asks, and say what about."""
    while not (asks := await ff.budget_asks(BUDGET)):  # noqa: ASYNC110 - nothing tells of one
        await asyncio.sleep(0.02)
    (ask,) = asks
    print(
        f"question {ask.number}: {ask.usage} of {ask.limit} {ask.dimension} are used, "
        f"{ask.wanted} more are wanted by {ask.execution_kind}"
    )
    return ask.number


async def main() -> None:
    async with ff:
        await ff.create_budget(BUDGET, hard={"tokens": 1_000}, on_hard="ask")
        worker = Worker(ff)
        working = asyncio.create_task(worker.run())

        first = await research.submit("the sun")
        number = await question()
        await ff.approve_ask(BUDGET, "tokens", raise_by=200, by="ada", number=number)
        print(await first.result("30s"))

        second = await research.submit("the wind")
        number = await question()
        await ff.approve_ask(BUDGET, "tokens", once=True, by="ada", number=number)
        number = await question()
        await ff.reject_ask(BUDGET, "tokens", by="ada", comment="enough", number=number)
        print(await second.result("30s"))

        budget = await ff.budget(BUDGET)
        print(
            f"{budget.usage['tokens']} used of {budget.hard_limits['tokens']}, and "
            f"{budget.allowed['tokens']} allowed; {len(thoughts)} calls of the model"
        )
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
