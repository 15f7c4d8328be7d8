"""A month of reminders, tested in milliseconds: the handler waits for days, the test moves time.

Runs by itself; nothing is stored. See docs/guides/waiting.md and testing.md.
"""

from flowfabric import Context, Fabric
from flowfabric.testing import TestFabric, run

ff = Fabric("memory://")


@ff.step
async def remind(invoice: str, number: int) -> str:
    """Would send a mail."""
    return f"reminder {number} for {invoice}"


@ff.task
async def dun(ctx: Context, invoice: str) -> str:
    """Three reminders, ten days apart, until it is paid; then two people decide."""
    for number in range(1, 4):
        await remind(invoice, number)
        if await ctx.wait_for("paid", bool, timeout="10d", default=False):
            return f"paid after {number}"
    decided = await ctx.approval("hand-over", of=2, timeout="30d")
    return "handed over" if decided else "forgiven"


async def never_paid() -> None:
    """Thirty days pass, then two people decide."""
    async with TestFabric(ff) as fabric:
        reminders = fabric.spy(remind)
        case = await fabric.submit(dun, "invoice 7")
        await fabric.advance("30d")
        print(f"after 30 days: {len(reminders.calls)} reminders, waits for {fabric.waits(case)}")
        for name in ("ada", "grace"):
            await fabric.approve(case, "hand-over", by=name)
        await fabric.settle()
        print(f"invoice 7: {await case.result()}")


async def paid_late() -> None:
    """It is paid on day twelve, and the worker dies on the way."""
    async with TestFabric(ff) as fabric:
        case = await fabric.submit(dun, "invoice 8")
        fabric.crash(after="remind", nth=2)
        await fabric.advance("12d")
        await fabric.signal(case, "paid", payload=True)
        await fabric.settle()
        print(f"invoice 8: {await case.result()}")
        await fabric.assert_steps(case, ["remind", "remind#2"])


if __name__ == "__main__":
    run(never_paid())
    run(paid_late())
