"""A handler under the debugger: it stops where it is told to, and goes on."""

from __future__ import annotations

import inspect

from flowfabric import Context, Fabric
from flowfabric.testing import TestFabric, run
from flowfabric.testing.debugging import debug


def test_a_pause_is_made_in_the_stack_of_the_handler() -> None:
    ff, ran, seen = Fabric("memory://"), [], []

    @ff.task
    async def brief(ctx: Context, topic: str) -> str:
        page = await ctx.step("one", str.upper, topic)
        ran.append(page)
        return page + await ctx.step("two", str.lower, page)

    def pause(text: str) -> None:
        names = {frame.function: frame.frame.f_locals for frame in inspect.stack()}
        seen.append((text.split(" at ")[0], names["brief"]["page"]))

    async def main() -> None:
        async with TestFabric(ff, replay="off") as fabric:
            found = await fabric.submit(brief, "solar")
            await fabric.settle()
            history = await fabric.history(found)
        stop = await debug(brief, history, until="two", pause=pause)
        assert seen == [("two is asked for", "SOLAR")]
        assert stop.why == 'the handler returned "SOLARsolar"'
        assert ran == ["SOLAR", "SOLAR"]

    run(main())
