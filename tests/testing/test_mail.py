"""Messages and state under the testing kit: crashes, lost replies, replays from every prefix."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric import Context, Fabric, SyncContext
from flowfabric.testing import TestFabric, run


@pytest.mark.parametrize("is_sync", [False, True])
def test_messages_survive_crashes_and_lost_replies(is_sync: bool) -> None:
    ff = Fabric("memory://")

    @ff.step
    def charge(number: int) -> int:
        return number * 10

    @ff.task(mailboxes={"orders": int})
    async def shop(ctx: Context) -> list[Any]:
        got = []
        for _ in range(4):
            message = await ctx.receive("orders", int)
            got.append(await ctx.step("charge", charge.function, message.value))
            await message.reply(got[-1])
            ctx.state = got
        late = await ctx.receive("orders", int, timeout="1d", default=None)
        return [*got, late]

    @ff.task(mailboxes={"orders": int})
    def shop_in_a_thread(ctx: SyncContext) -> list[Any]:
        got = []
        for _ in range(4):
            message = ctx.receive("orders", int)
            got.append(ctx.step("charge", charge.function, message.value))
            message.reply(got[-1])
            ctx.state = got
        late = ctx.receive("orders", int, timeout="1d", default=None)
        return [*got, late]

    async def main() -> None:
        async with TestFabric(ff) as fabric:
            case = await fabric.submit(shop_in_a_thread if is_sync else shop)
            await fabric.settle()
            assert fabric.waits(case) == ["orders"]
            fabric.duplicate()
            await fabric.send(case, "orders", 1)
            fabric.crash(after="receive:orders#2", at="commit")
            fabric.unknown_outcome(2)
            await fabric.settle()
            await fabric.send(case, "orders", 2)
            await fabric.advance("1m")
            assert await case.published() == [10, 20]
            fabric.crash(after="reply:orders#3", at="checkpoint")
            await fabric.send(case, "orders", 3)
            await fabric.advance("1m")
            assert await case.ask("orders", 4) == 40
            assert await case.published() == [10, 20, 30, 40]
            await fabric.advance("2d")
            assert await case.result() == [10, 20, 30, 40, None]

    run(main())
