"""A race of models: the first good answer wins, and the others are stopped in the middle.

Runs by itself, on a SQLite file or where FLOWFABRIC_URL says. See docs/guides/flows.md.
"""

import asyncio

from flowfabric import Context, Fabric, Fatal, Worker, any_of, quorum

ff = Fabric()  # sqlite:///flowfabric.db, or what FLOWFABRIC_URL names

SECONDS = {"small": 0.2, "medium": 0.4, "large": 60.0}  # how long each model takes to answer


@ff.task
async def ask(ctx: Context, model: str, question: str) -> str:
    """Stands for a call to a model. One of them is out of order."""
    if model == "broken":
        raise Fatal("the model is overloaded")
    try:
        await asyncio.sleep(SECONDS[model])
    except asyncio.CancelledError:
        print(f"  {model}: interrupted, somebody else was faster")
        raise
    print(f"  {model}: answers")
    return f"{model}'s answer to {question!r}"


@ff.task
async def publish(answer: str) -> str:
    """Gets the first answer there is."""
    return f"published {answer}"


@ff.task
async def compare(answers: list[str]) -> str:
    """Gets the first two answers."""
    return " / ".join(answers)


async def first_wins() -> None:
    print("the first answer is published, whoever gives it:")
    with ff.flow("race") as f:
        runners = [
            f.add(ask, model, "why is the sky blue?", name=model)
            for model in ("broken", "small", "large")
        ]
        f.add(publish, any_of(*runners, losers="cancel"))
    run = await f.submit()
    results = await run.result(timeout="30s")
    print(f"  {results['publish']}")
    for name, node in (await run.nodes()).items():
        print(f"  {name:8} {(await node.state()).value}")


async def two_of_three() -> None:
    print("two of three are enough to compare:")
    with ff.flow("quorum") as f:
        runners = [
            f.add(ask, model, "what is rain?", name=model) for model in ("small", "medium", "large")
        ]
        f.add(compare, answers=quorum(2, *runners, losers="cancel"))
    run = await f.submit()
    print(f"  {(await run.result(timeout='30s'))['compare']}")


async def main() -> None:
    async with ff:
        worker = Worker(ff)
        working = asyncio.create_task(worker.run())
        await first_wins()
        await two_of_three()
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
