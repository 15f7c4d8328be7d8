"""An agent with a budget per step and an approval: it fails at the end, and pays for nothing twice.

Runs by itself, on a SQLite file or where FLOWFABRIC_URL says; the model is simulated.
See docs/guides/steps.md and waiting.md.
"""

import asyncio
from uuid import uuid4

from flowfabric import Context, Fabric, PublicState, Run, Worker, current_step

BUDGET = f"model-{uuid4().hex[:6]}"  # another one each time
ff = Fabric()  # sqlite:///flowfabric.db, or what FLOWFABRIC_URL names
asked: list[str] = []
published: list[str] = []


@ff.step(effects=False, retries=2)
async def think(prompt: str) -> str:
    """One call of a model. It changes nothing elsewhere, so it need not wait for a commit."""
    asked.append(prompt)
    await asyncio.sleep(0.01)
    return f"{prompt}, thought through"


@ff.step
async def publish(text: str) -> str:
    """An effect: it begins when everything before it is durable. It fails the first time."""
    published.append(current_step().idempotency_key)
    if len(published) == 1:
        raise ConnectionError("the site does not answer")
    return f"published: {text}"


@ff.task(retries=3, backoff="10ms", budgets=[BUDGET])
async def write(ctx: Context, topic: str) -> str:
    """Three turns of the model, two people, one publication."""
    text = topic
    for _ in range(3):
        async with ctx.spend(BUDGET, tokens=100) as spend:
            text = await think(text)
            spend.actual(tokens=len(text))
    if not await ctx.approval("publish", of=2, timeout="2d"):
        return "rejected"
    return await publish(text)


async def main() -> None:
    """Submit it, approve it, and look at what it did and paid."""
    async with ff:
        await ff.create_budget(BUDGET, hard={"tokens": 1_000})
        worker = Worker(ff, poll_interval="50ms")
        running = asyncio.create_task(worker.run(handle_signals=False))
        run = await ff.submit(write, "solar")
        await waiting(run)
        for name in ("ada", "grace"):
            await ff.approve(run, "publish", by=name)
        print(await run.result(timeout="1m"))
        await tell(run)
        worker.stop()
        await running


async def waiting(run: Run[str]) -> None:
    """Return when it waits for people: no worker is held meanwhile."""
    while await run.state() is not PublicState.SUSPENDED:  # noqa: ASYNC110 - nothing tells it
        await asyncio.sleep(0.02)


async def tell(run: Run[str]) -> None:
    """The journal, and what was paid."""
    for entry in await run.journal():
        print(f"  {entry.position}  {entry.key:<18} {entry.state.value:<9} {entry.kind.value}")
    spent = (await ff.budget(BUDGET)).usage["tokens"]
    attempts = (await run.info()).total_attempt_count
    print(f"{attempts} attempts, {len(asked)} calls of the model, {spent} tokens")
    print(f"{len(published)} tries to publish, under {len(set(published))} key")


if __name__ == "__main__":
    asyncio.run(main())
