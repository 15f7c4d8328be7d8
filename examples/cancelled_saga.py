"""A saga that survives its process: each step says how it is undone, and a trip that is cancelled
while it sleeps, or that fails, is undone by the store, last step first. No handler is asked."""

from __future__ import annotations

import asyncio

from flowfabric import Context, Fabric, Fatal, RunEnded, Worker

ff = Fabric()  # sqlite:///flowfabric.db, or what FLOWFABRIC_URL names


@ff.step
async def book(what: str, where: str) -> str:
    """At some other service."""
    print(f"  booked a {what} to {where}")
    return f"{what}-{where}"


@ff.task(retries=5)
async def unbook(booking: str) -> None:
    """Take a booking back."""
    print(f"  took back {booking}")


@ff.task
async def tell(ended: RunEnded) -> None:
    """However it ended."""
    print(f"  told the customer: {ended.state}")


@ff.task(on_end=tell)
async def trip(ctx: Context, where: str) -> str:
    """Three bookings; what was booked is registered to be undone."""
    for what in ("flight", "hotel", "car"):
        if what == "car" and where == "the moon":
            raise Fatal("there are no cars")
        booking = await book(what, where)
        await ctx.undo(unbook, booking)
    await ctx.sleep("30d")  # until it begins
    return f"bon voyage to {where}"


async def until(states: set[str], earlier: set[str]) -> None:
    """Until all runs but the earlier ones of the store are in one of these states, those of hooks
    and undos too."""
    for _ in range(1200):
        now = {(await run.state()).value async for run in ff.runs() if run.id not in earlier}
        if now <= states:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"a minute long not all runs were {' or '.join(sorted(states))}")


ENDED = {"completed", "failed", "cancelled"}


async def main() -> None:
    """One trip is cancelled while it sleeps, one fails half way."""
    async with ff:
        worker = Worker(ff, poll_interval="50ms")
        running = asyncio.create_task(worker.run(handle_signals=False))
        earlier = {run.id async for run in ff.runs()}
        print("a trip that is cancelled:")
        run = await trip.submit("rome")
        await until({"suspended"}, earlier)
        await run.cancel("changed their mind")
        await until(ENDED, earlier)
        print("a trip that fails:")
        run = await trip.submit("the moon")
        await until(ENDED, earlier)
        for each in (await run.info()).successors:
            print(f"  {each.role.value}: {each.execution_kind}, {each.count} of them")
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main())
