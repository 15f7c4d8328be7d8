"""An order that takes messages for as long as it lives: one handler, one message after the other,
and an empty journal now and then. Nothing locks, nothing is lost, and asking gets an answer.

Runs by itself; nothing is stored. See docs/guides/messages.md.
"""

import dataclasses

from flowfabric import Context, Fabric
from flowfabric.testing import TestFabric, run

ff = Fabric("memory://")


@dataclasses.dataclass
class Item:
    name: str
    cents: int


@dataclasses.dataclass
class Total:
    items: int
    cents: int


@ff.step
async def reserve(item: Item) -> bool:
    """Would ask the warehouse."""
    return item.name != "unicorn"


@ff.task(mailboxes={"items": Item, "pay": str})
async def order(ctx: Context, total: Total) -> str:
    """Take items until it is paid, or a day has passed without any."""
    while True:
        ctx.state = total
        message = await ctx.receive("items", Item, timeout="1d", default=None)
        if message is None:
            break
        is_there = await reserve(message.value)
        if is_there:
            total = Total(total.items + 1, total.cents + message.value.cents)
        await message.reply(total if is_there else "sold out")
        if ctx.should_continue or (is_there and total.items % 10 == 0):  # so early, to show it
            await ctx.continue_as_new(total)
    paid = await ctx.receive("pay", timeout="30d")
    return f"{total.items} items for {total.cents / 100:.2f}, paid by {paid.value}"


async def main() -> None:
    """Twenty-five items, a worker that dies, a question, and a payment that comes early."""
    async with TestFabric(ff) as fabric:
        case = await fabric.submit(order, Total(0, 0))
        for number in range(25):
            if number == 12:
                fabric.crash(after="reserve#2")
            await fabric.send(case, "items", Item(f"item {number}", 350))
        await fabric.send(case, "pay", "ada")
        await fabric.advance("1m")  # the lease of the dead worker ends
        print(f"waits for {fabric.waits(case)}, shows {await case.published(Total)}")
        print(f"asked: {await case.ask('items', Item('unicorn', 1))}")
        print(f"chapter {(await fabric.history(case)).chapter}")
        await fabric.advance("1d")
        print(await case.result())


if __name__ == "__main__":
    run(main())
