"""`ff send`, `ff ask`, `ff mail`, and what `ff show` and `ff why` tell of mailboxes and state."""

from __future__ import annotations

import asyncio
import json

from flowfabric import Context, Fabric, PublicState
from flowfabric.cli.exits import Exit
from tests.cli.desk import Desk
from tests.sdk.workshop import until, within, working


def app(desk: Desk) -> Fabric:
    ff = Fabric(desk.url)

    @ff.task(mailboxes={"orders": dict[str, int], "notes": str})
    async def shop(ctx: Context) -> list[int]:
        ctx.state = {"open": True}
        got = []
        for _ in range(2):
            message = await ctx.receive("orders")
            got.append(message.value["n"])
            await message.reply({"taken": message.value["n"]})
        return got

    return ff


def opened(desk: Desk) -> str:
    """A run that waits, without a worker now."""
    ff = app(desk)

    async def main() -> str:
        async with ff, working(ff):
            run = await ff.submit(ff.tasks["shop"])

            async def is_suspended() -> bool:
                return await run.state() is PublicState.SUSPENDED

            await within(until(is_suspended))
            return run.id

    return asyncio.run(main())


def test_messages_from_the_command_line(desk: Desk) -> None:
    key = opened(desk)
    assert desk.ff("why", key) == 0
    assert "waits for a message in orders" in desk.out
    assert desk.ff("send", key, "orders", "n:=1", "--key", "k", "--by", "ada") == 0
    assert desk.out == "message 0 in orders\n"
    assert desk.ff("send", key, "orders", "n:=1", "--key", "k") == 0
    assert "counts once" in desk.out
    assert desk.ff("send", key, "notes", "--payload", '"hello"', "--json") == 0
    assert json.loads(desk.out)["mailbox"] == "notes"
    assert desk.ff("mail", key) == 0
    assert [line.split() for line in desk.out.splitlines()[1:]] == [
        ["notes", "1", "0"],
        ["orders", "1", "0"],
    ]
    assert desk.ff("mail", key, "orders", "--json") == 0
    (message,) = json.loads(desk.out)["messages"]
    assert (message["payload"], message["sender"]) == ({"n": 1}, "ada")
    assert desk.ff("mail", key, "notes") == 0
    assert "hello" in desk.out
    assert desk.ff("show", key) == 0
    assert "notes 1 unread, 0 received; orders 1 unread, 0 received" in desk.out
    assert '{"open": true}' in desk.out
    assert desk.ff("show", key, "--json") == 0
    shown = json.loads(desk.out)
    assert shown["published"] == {"open": True}
    assert [each["unread"] for each in shown["mailboxes"]] == [1, 1]
    assert desk.ff("ask", key, "orders", "n:=2", "--timeout", "0", "--key", "q") == Exit.TIMEOUT
    ff = app(desk)

    async def main() -> None:
        async with ff, working(ff):
            assert await within(ff.run(key).result()) == [1, 2]

    asyncio.run(main())
    assert desk.ff("ask", key, "orders", "n:=2", "--timeout", "1s", "--key", "q") == 0
    assert json.loads(desk.out) == {"taken": 2}
    assert desk.ff("ask", key, "orders", "n:=3") == Exit.REFUSED
    assert "ff show" in desk.err


def test_wrong_messages_are_told_so(desk: Desk) -> None:
    key = opened(desk)
    for words, said in (
        (("bills", "n:=1"), "ff mail"),
        (("orders", "n=x"), "payload"),
        (("orders", "n:=1", "--payload", "{}"), "one of them"),
        (("orders", "--payload", "{"), "JSON"),
        (("orders", "n:=1", "n:=2"), "twice"),
    ):
        assert desk.ff("send", key, *words) == Exit.USAGE
        assert said in desk.err
    assert desk.ff("mail", key, "bills") == Exit.USAGE


def test_a_task_that_is_submitted_by_its_name_has_the_mailboxes_that_are_named(desk: Desk) -> None:
    ff = app(desk)
    key = desk.json("submit", "shop", "--mailbox", "orders", "--mailbox", "notes")["execution_id"]
    assert desk.ff("mail", desk.submit()) == 0
    assert "no mailbox: it was submitted without one" in desk.err
    for number in (1, 2):
        assert desk.ff("send", key, "orders", f"n:={number}") == 0

    async def main() -> None:
        async with ff, working(ff):
            assert await within(ff.run(key).result()) == [1, 2]

    asyncio.run(main())
