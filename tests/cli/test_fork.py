"""`ff fork`."""

from __future__ import annotations

import asyncio

from flowfabric import Context, Fabric
from flowfabric.cli.exits import Exit
from tests.cli.desk import Desk
from tests.sdk.workshop import within, working


def app(desk: Desk) -> Fabric:
    ff = Fabric(desk.url)

    @ff.task
    async def order(ctx: Context, topic: str) -> str:
        quote = await ctx.step("quote", len, topic)
        sent = await ctx.step.options(key="a=b")("mail", str, "sent")
        return f"{topic} {quote} {sent} {await ctx.step('charge', abs, quote)}"

    return ff


def done(desk: Desk) -> str:
    ff = app(desk)

    async def main() -> str:
        async with ff, working(ff):
            run = await ff.submit(ff.tasks["order"], "solar")
            await within(run.result())
            return run.id

    return asyncio.run(main())


def ended(desk: Desk, key: str) -> str:
    ff = app(desk)

    async def main() -> str:
        async with ff, working(ff):
            return str(await within(ff.run(key).result()))

    return asyncio.run(main())


def test_a_fork_with_other_results(desk: Desk) -> None:
    source = done(desk)
    changes = ("--set", "quote=7", "--set", 'mail[a=b]="kept"')
    assert desk.ff("fork", source, "--from", "charge", *changes) == 0
    assert "2 recorded calls copied" in desk.err
    fork = desk.out.strip()
    assert ended(desk, fork) == "solar 7 kept 7"
    assert desk.ff("show", fork) == 0
    assert source in desk.out
    assert desk.ff("timeline", source) == 0
    assert fork in desk.out


def test_json_and_a_short_name(desk: Desk) -> None:
    source = done(desk)
    found = desk.json("fork", "latest", "--from", "quote", "--input", "topic=wind")
    assert (found["forked_from"], found["entry_count"]) == (source, 0)
    assert ended(desk, found["execution_id"]) == "wind 4 sent 4"


def test_what_makes_no_sense(desk: Desk) -> None:
    source = done(desk)
    assert desk.ff("fork", source) == Exit.USAGE
    assert desk.ff("fork", source, "--from", "chrage") == Exit.USAGE
    assert "the nearest keys are charge" in desk.err
    for words in (["quote"], ["quote={"], ["=7"], ["quote=1", "--set", "quote=2"], ["charge=1"]):
        assert desk.ff("fork", source, "--from", "charge", "--set", *words) == Exit.USAGE, words
