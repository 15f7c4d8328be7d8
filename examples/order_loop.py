"""An order that takes items for ever: every ten rounds it continues as new, with a short journal.

Runs by itself; nothing is stored. See docs/guides/changing-code.md.
"""

from flowfabric import Context, Fabric
from flowfabric.testing import TestFabric, run

ff = Fabric("memory://")
ROUNDS = 10  # of one chapter; `ctx.should_continue` turns true at 2,500 entries


@ff.step
async def reserve(item: str) -> int:
    """Would ask the warehouse; the price in cents."""
    return 100 * len(item)


@ff.task
async def order(ctx: Context, number: int, total: int = 0, items: int = 0) -> str:
    """Item after item, until the customer closes the order."""
    for _ in range(ROUNDS):
        item = await ctx.wait_for("item", str, timeout="7d", default="")
        if not item:
            return f"order {number}: {items} items for {total / 100:.2f}"
        total, items = total + await reserve(item), items + 1
    return await ctx.continue_as_new(number, total, items)


async def main() -> None:
    """Twenty-five items, a worker that dies, and a week without another item."""
    async with TestFabric(ff) as fabric:
        case = await fabric.submit(order, 7, key="order-7")
        fabric.crash(after="reserve", nth=13)
        for at in range(25):
            await fabric.advance("1m")
            await fabric.signal(case, "item", payload="tea" if at % 2 else "milk")
        await fabric.settle()
        history = await fabric.history(case)
        print(f"chapter {history.chapter}: {len(history.entries)} entries")
        await fabric.advance("7d")
        print(await case.result())


if __name__ == "__main__":
    run(main())
