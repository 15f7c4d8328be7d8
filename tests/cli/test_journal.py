"""`ff journal`, and what `ff why` and `ff retry` tell of steps."""

from __future__ import annotations

import asyncio
import json

from flowfabric import Context, Fabric
from tests.cli.desk import Desk
from tests.sdk.workshop import within, working


def worked(desk: Desk) -> str:
    """An execution with a journal of every kind of entry."""
    ff = Fabric(desk.url)

    @ff.step(secret=True)
    async def token() -> str:
        return "hush"

    @ff.task
    async def brief(ctx: Context) -> str:
        await ctx.step("fetch", lambda: {"page": 1})
        await token()
        await ctx.sleep("1ms")
        await ctx.wait_for("reply", timeout="1ms", default=None)

        def decline() -> None:
            raise ConnectionError("no \x1b[31mred")

        await ctx.step("charge", decline)
        return "done"

    async def main() -> str:
        async with ff, working(ff):
            run = await ff.submit(brief)
            await within(asyncio.gather(run.result(), return_exceptions=True))
            return run.id

    return asyncio.run(main())


def test_the_entries_in_their_order(desk: Desk) -> None:
    execution_id = worked(desk)
    assert desk.ff("journal", execution_id) == 0
    shown = desk.out
    for key in ("fetch", "token", "sleep", "wait:reply", "charge"):
        assert key in shown
    assert "reopened" in shown
    assert "hush" not in shown
    assert "\x1b[31m" not in shown
    assert '{"page":1}' not in shown
    assert desk.ff("journal", execution_id, "--values") == 0
    assert '{"page":1}' in desk.out


def test_entries_as_json(desk: Desk) -> None:
    execution_id = worked(desk)
    assert desk.ff("journal", execution_id, "--values", "--json") == 0
    first, second, *_, last = map(json.loads, desk.out.splitlines())
    assert (first["key"], first["value"], first["state"]) == ("fetch", '{"page":1}', "ok")
    assert (second["is_secret"], second["value"]) == (True, None)
    assert (last["state"], last["category"]) == ("reopened", "ConnectionError")


def test_entries_that_the_code_does_not_ask_for_any_more_are_marked(desk: Desk) -> None:
    ff, is_changed = Fabric(desk.url), False

    @ff.task(retries=1, backoff="1ms")
    async def brief(ctx: Context) -> None:
        nonlocal is_changed
        if not is_changed:
            await ctx.step("fetch", lambda: 1)
        await ctx.step("charge", lambda: 2)
        if not is_changed:
            is_changed = True
            raise ValueError("the code is changed now")

    async def main() -> str:
        async with ff, working(ff):
            run = await ff.submit(brief)
            await within(run.result())
            return run.id

    execution_id = asyncio.run(main())
    assert desk.ff("journal", execution_id, "--json") == 0
    shown = {each["key"]: each["is_unused"] for each in map(json.loads, desk.out.splitlines())}
    assert shown == {"fetch": True, "charge": False, "unused": False}
    assert desk.ff("journal", execution_id) == 0
    fetched = next(line for line in desk.out.splitlines() if " fetch " in line)
    assert " unused " in fetched


def test_an_execution_without_a_journal(desk: Desk) -> None:
    assert desk.ff("journal", desk.submit()) == 0
    assert desk.out == "no journal: this handler makes no journaled calls\n"
    assert desk.ff("journal", desk.submit(), "--chapter", "3") == 0
    assert desk.out == "no journal: it has no chapter 3, or keeps it no longer\n"
    assert desk.ff("journal", desk.submit(), "--journal", "5") == 0
    assert "no journal: it has no journal 5" in desk.out


def test_an_earlier_chapter_is_shown_by_its_number(desk: Desk) -> None:
    ff = Fabric(desk.url)

    @ff.task
    async def brief(ctx: Context, left: int = 1) -> str:
        await ctx.step(f"round{left}", lambda: left)
        if left:
            await ctx.continue_as_new(left - 1)
        return "done"

    async def main() -> str:
        async with ff, working(ff):
            run = await ff.submit(brief)
            await within(run.result())
            return run.id

    execution_id = asyncio.run(main())
    assert desk.ff("journal", execution_id, "--values") == 0
    assert "round0" in desk.out
    assert "round1" not in desk.out
    assert '{"left":0}' in desk.out
    assert desk.ff("journal", execution_id, "--chapter", "0") == 0
    assert "round1" in desk.out
    assert desk.ff("journal", execution_id, "--chapter", "0", "--export", "-") == 0
    head, *_ = desk.out.splitlines()
    assert (json.loads(head)["chapter"], json.loads(head)["state"]) == (0, None)
