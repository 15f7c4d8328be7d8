"""Handlers with a bit of everything that can be killed: steps, branches, waits and children."""

from __future__ import annotations

from typing import Any

from flowfabric import Context, Fabric

LEGS = 4  # children of each journey
PLACES = ("left", "go")  # where it is told a word


def add_journeys(ff: Fabric, steps: Any, policy: dict[str, Any]) -> None:
    """The task `journey`, and the one of its children."""
    given = steps.given

    @ff.task(**policy)
    async def leg(first: str) -> list[str]:
        a = given(await steps.effect([first]))
        b = given(await steps.read([a]))
        return [a, b, given(await steps.effect([a, b]))]

    @ff.task(**policy)
    async def journey(ctx: Context, number: int) -> dict[str, Any]:
        first = given(await steps.effect([]))

        async def ask() -> list[str]:
            said = given(await ctx.wait_for("left", str))
            return [said, given(await steps.effect([first, said]))]

        async def pause() -> list[str]:
            await ctx.sleep("1100ms")
            return [given(await steps.effect([first]))]

        async def errand() -> list[str]:
            found = [given(each) for each in await ctx.call(leg, first)]
            return [*found, given(await steps.effect(found))]

        sides = await ctx.gather(steps.side(first, "x"), ask(), pause(), errand())
        second = given(await steps.read([first]))
        alone = [given(each) for each in await ctx.call(leg, second)]
        children = await ctx.spawn_many(leg, [first, second])
        *both, beside = await ctx.gather(*children, steps.effect(alone))
        for word in [beside, *both[0], *both[1]]:
            given(word)
        _, quick = await ctx.first_of(steps.effect([beside]), ctx.sleep("1h"))
        said = given(await ctx.wait_for("go", str, timeout="1h"))
        decided = await ctx.approval("publish", of=2)
        await steps.stubborn([said])  # not caught: it ends the attempt
        return {
            "line": [first, second, *alone, given(quick), said],
            "sides": sides,
            "children": both,
            "by": sorted(decided.by),
            "last": await steps.effect([said, *both[0]]),
        }


_LEG = ["effect", "read", "effect#2"]
JOURNEY: dict[str, Any] = {
    "line": ["effect", "read", *_LEG, "effect#3", "go"],
    "sides": [
        ["gather/0/effect", "gather/0/read", "gather/0/effect#2"],
        ["left", "gather/1/effect"],
        ["gather/2/effect"],
        [*_LEG, "gather/3/effect"],
    ],
    "children": [_LEG, _LEG],
    "by": ["operator:ada", "operator:bob"],
    "last": "effect#4",
}
EFFECTS = 11 + 3 * LEGS  # bodies of one journey that nothing disturbs
