"""Messages to runs: received once and in order, in branches, over restarts, and answered once."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from typing import Any

import pytest

from flowfabric import (
    Context,
    EntryKind,
    Fabric,
    InvalidInput,
    InvalidPayload,
    PublicState,
    Run,
    RunFailed,
    SyncContext,
    WaitTimedOut,
    WaitTimeout,
)
from flowfabric.errors import NoReply, PayloadTooLarge, TargetNotSignalable, UnknownMailbox
from flowfabric.sdk.errors import InvalidTask
from tests.property.budget import budget
from tests.sdk.journal.bench import journal, keys, worked
from tests.sdk.workshop import until, within, working

MESSAGES = budget("FF_MESSAGES", 0)  # `bin/soak`: as many on every store


@dataclasses.dataclass
class Order:
    n: int


async def waits(run: Run[Any]) -> None:
    """Return when it is suspended."""

    async def is_suspended() -> bool:
        return await run.state() is PublicState.SUSPENDED

    await until(is_suspended)


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_run_receives_and_answers(url: str, is_sync: bool) -> None:
    ff, tops = Fabric(url), []

    @ff.task(mailboxes={"orders": Order})
    async def take(ctx: Context) -> list[Any]:
        tops.append(1)
        first = await ctx.receive("orders", Order)
        await first.reply(first.value.n + 1)
        second = await ctx.receive("orders")
        await second.reply("to a plain one")
        late = await ctx.receive("orders", timeout="1.1s", default="none")
        return [first.value, first.number, second.value.n, second.sender, late]

    @ff.task(mailboxes={"orders": Order})
    def take_in_a_thread(ctx: SyncContext) -> list[Any]:
        tops.append(1)
        first = ctx.receive("orders", Order)
        first.reply(first.value.n + 1)
        second = ctx.receive("orders")
        second.reply("to a plain one")
        late = ctx.receive("orders", timeout="1.1s", default="none")
        return [first.value, first.number, second.value.n, second.sender, late]

    async def main(ff: Fabric) -> None:
        run: Run[Any] = await ff.submit(take_in_a_thread if is_sync else take)
        await waits(run)
        assert "a message in orders" in (await run.explain()).summary
        assert (await run.info()).current_lease is None
        assert await run.ask("orders", Order(7), int, timeout="30s") == 8
        sent = await run.send("orders", {"n": 2}, key="k", by="ada")
        again = await run.send("orders", {"n": 2}, key="k")
        assert (sent.number, again.number, again.is_new) == (1, 1, False)
        assert await run.result() == [{"n": 7}, 0, 2, "ada", "none"]
        names = await keys(ff, run)
        assert list(dict.fromkeys(names)) == [
            *("receive:orders", "reply:orders", "receive:orders#2", "receive:orders#3"),
        ]
        assert [(each.unread, each.received) for each in await run.mailboxes()] == [(0, 2)]
        with pytest.raises(TargetNotSignalable):
            await run.send("orders", Order(1))

    worked(ff, main)


def test_thousand_messages_and_crashes(url: str) -> None:
    """7.1.47: random bursts while workers are dropped; each message is received once, in order,
    over chapters; an ask gets its answer after a restart of the worker."""
    count = MESSAGES or (1_000 if url.startswith("memory") else 150)
    ff, chance = Fabric(url), random.Random(47)

    @ff.task(mailboxes={"orders": Order}, recoveries=1_000)
    async def take(ctx: Context, done: list[int]) -> list[int]:
        while len(done) < count:
            message = await ctx.receive("orders", Order)
            done = [*done, message.value.n]
            await message.reply(f"{message.value.n} taken")
            if len(done) % 150 == 0:
                await ctx.continue_as_new(done)
        return done

    async def main() -> None:
        async with ff:
            run: Run[Any] = await ff.submit(take, [])
            sending = asyncio.create_task(bursts(run, count, chance))
            while not (sending.done() and await run.state() is PublicState.COMPLETED):
                async with working(ff, warm=chance.choice((0, 1000)), drain_timeout=0):
                    await asyncio.sleep(0.2)
            asked = await sending
            assert await run.result() == list(range(count))
            assert {at: await each for at, each in asked.items()} == {
                at: f"{at} taken" for at in range(count) if at % 97 == 5
            }

    asyncio.run(within(main()))


async def bursts(run: Run[Any], count: int, chance: random.Random) -> dict[int, asyncio.Task[Any]]:
    """Send so many messages; some of them want an answer."""
    asked = {}
    left = iter(range(count))
    while burst := list(itertools.islice(left, chance.choice((1, 3, 40, 90)))):
        for number in burst:
            if number % 97 == 5:
                asked[number] = asyncio.create_task(run.ask("orders", Order(number)))
                await has(run, number + 1)
            else:
                await run.send("orders", Order(number), key=f"s{number}")
        await asyncio.sleep(chance.choice((0, 0.001, 0.05)))
    return asked


async def has(run: Run[Any], count: int) -> None:
    """Return when so many messages came."""

    async def came() -> bool:
        (box,) = await run.mailboxes()
        return box.unread + box.received >= count

    await until(came)


def test_branches_receive_beside_each_other(url: str) -> None:
    ff = Fabric(url)

    @ff.task(mailboxes={"a": int, "b": int})
    async def both(ctx: Context) -> list[Any]:
        async def of(box: str) -> list[int]:
            return [(await ctx.receive(box, int)).value for _ in range(3)]

        async def naps() -> str:
            await ctx.sleep("1.2s")
            return "awake"

        return [*await ctx.gather(of("a"), of("a"), of("b"), naps())]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(both)
        await waits(run)
        summary = (await run.explain()).summary
        assert "a message in a" in summary
        assert "a message in b" in summary
        for number in range(6):
            await run.send("a", number)
            if number < 3:
                await run.send("b", number)
        one, two, three, four = await run.result()
        assert sorted([*one, *two]) == list(range(6))
        assert (one, two) == (sorted(one), sorted(two))
        assert (three, four) == ([0, 1, 2], "awake")

    worked(ff, main)


def test_a_retry_and_a_fork_are_answered_from_the_journal(url: str) -> None:
    ff, tops = Fabric(url), []

    @ff.task(mailboxes={"orders": Any}, retries=1, backoff="1ms")
    async def take(ctx: Context) -> list[Any]:
        tops.append(1)
        first = await ctx.receive("orders")
        await first.reply("yes")
        await ctx.step.options(compare="name")("fails", fails)
        return [first.value, (await ctx.receive("orders")).value]

    def fails() -> None:
        if len(tops) == 1:
            raise ConnectionError("once")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(take)
        assert await run.ask("orders", "one") == "yes"
        await run.send("orders", "two")
        assert await run.result() == ["one", "two"]
        kinds = [each.kind for each in await journal(ff, run)]
        assert kinds.count(EntryKind.REPLY) == 1
        fork = await run.fork(before="receive:orders#2")
        await waits(fork)
        await fork.send("orders", "other")
        assert await fork.result() == ["one", "other"]

    worked(ff, main)


def test_an_ask_ends_with_the_run_or_its_time(url: str) -> None:
    ff = Fabric(url)

    @ff.task(mailboxes={"orders": Order})
    async def deaf(ctx: Context) -> None:
        await ctx.sleep("30d")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(deaf)
        await waits(run)
        with pytest.raises(WaitTimeout):
            await run.ask("orders", Order(1), timeout="20ms", key="one")
        again = asyncio.create_task(run.ask("orders", Order(1), key="one"))
        other = asyncio.create_task(run.ask("orders", Order(2)))
        await has(run, 2)
        await run.cancel()
        for each in (again, other):
            with pytest.raises(NoReply):
                await each
        assert [each.unread for each in await run.mailboxes()] == [2]

    worked(ff, main)


def test_a_handler_sends_and_asks_as_steps(url: str) -> None:
    ff, tops = Fabric(url), []

    @ff.task(mailboxes={"orders": int})
    async def server(ctx: Context) -> list[int]:
        got = []
        while True:
            message = await ctx.receive("orders", int)
            got.append(message.value)
            await message.reply(message.value * 2)
            if message.value == 0:
                return got

    @ff.task(retries=1, backoff="1ms")
    async def client(ctx: Context, other: str) -> list[Any]:
        tops.append(1)
        run = ff.run(other)
        await run.send("orders", 1)
        doubled = await run.ask("orders", 21, int, timeout="30s")
        if len(tops) == 1:
            raise ConnectionError("again")
        await run.send("orders", 0)
        await run.result()
        try:
            await run.ask("orders", 5)
        except TargetNotSignalable as error:
            return [doubled, error.code]
        return []

    async def main(ff: Fabric) -> None:
        served = await ff.submit(server)
        asked = await ff.submit(client, served.id)
        assert await asked.result() == [42, "target_not_signalable"]
        assert await served.result() == [1, 21, 0]
        assert (await keys(ff, asked))[:2] == ["send:orders", "ask:orders"]

    worked(ff, main)


def test_wrong_messages_and_mailboxes_are_refused(url: str) -> None:
    ff = Fabric(url)

    @ff.task(mailboxes={"orders": Order})
    async def take(ctx: Context) -> str:
        with pytest.raises(UnknownMailbox, match="orders"):
            await ctx.receive("bills")
        with pytest.raises(WaitTimedOut):
            await ctx.receive("orders", timeout="1ms")
        return "ok"

    @ff.task(mailboxes={"orders": Order})
    async def late(ctx: Context) -> None:
        await ctx.receive("orders", timeout="1ms")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(take)
        for value, kind in (
            ({"n": "x"}, InvalidPayload),
            ({"n": 1, "x": "x" * 70_000}, PayloadTooLarge),
        ):
            with pytest.raises(kind):
                await run.send("orders", value)
        with pytest.raises(UnknownMailbox):
            await run.send("bills", 1)
        assert await run.result() == "ok"
        lost = await ff.submit(late)
        with pytest.raises(RunFailed, match="no message came"):
            await lost.result()

    worked(ff, main)
    for wrong in ({"": int}, {"a": object}, ["a"], {str(each): int for each in range(17)}):
        with pytest.raises((InvalidInput, InvalidTask), match="mailboxes"):
            ff.task(name="wrong", mailboxes=wrong)(nothing)  # type: ignore[arg-type]


def nothing() -> None:
    """A task that receives nothing."""
