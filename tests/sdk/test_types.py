"""What type checkers see. mypy reads this file with the rest: a line that must be refused says so
by its `type: ignore`, which is itself an error once nothing is refused there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, assert_type, get_overloads

from flowfabric import Child, Context, Fabric, Run, SyncContext, SyncRun
from flowfabric.sdk.blocking import SyncFabric
from flowfabric.sdk.errors import ChildFailed
from flowfabric.sdk.options import OPTION_NAMES
from tests.sdk.workshop import working

ff = Fabric("memory://")


@ff.task
async def brief(ctx: Context, topic: str, pages: int = 1) -> str:
    return topic * pages


@ff.task
def double(number: int) -> int:
    return 2 * number


async def submits() -> None:
    assert_type(await brief.submit("solar"), Run[str])
    assert_type(await brief.submit("solar", pages=2), Run[str])
    assert_type(await brief.options(key="k").submit("solar"), Run[str])
    assert_type(await ff.submit(brief, "solar"), Run[str])
    assert_type(await ff.submit(brief, "solar", pages=2), Run[str])
    assert_type(await ff.submit(brief.options(priority=3), "solar"), Run[str])
    assert_type(await ff.submit(brief, "solar", key="k2"), Run[str])
    assert_type(await ff.submit(brief, "solar", pages=2, delay="10m", priority=3), Run[str])
    assert_type(await ff.submit(double, 2), Run[int])


def test_the_typed_program_runs() -> None:
    async def main() -> None:
        async with ff:
            await submits()
            once = await ff.submit(brief.options(key="once"), "solar")
            again = await ff.submit(brief.options(key="once"), topic="solar")
            assert once.id == again.id

    asyncio.run(main())


def test_every_option_of_a_submit_can_be_given_beside_the_arguments() -> None:
    """Each option has an overload that requires it."""
    for submit in (Fabric.submit, SyncFabric.submit):
        names = {name for each in get_overloads(submit) for name in each.__annotations__}
        assert names >= OPTION_NAMES


def test_gathered_children_keep_their_types() -> None:
    shop = Fabric("memory://")

    @shop.task
    async def shout(word: str) -> str:
        return word.upper()

    @shop.task
    def half(number: int) -> float:
        return number / 2

    @shop.task
    async def parent(ctx: Context) -> str:
        word, number = await ctx.gather(
            await ctx.spawn(shout, "a"), await ctx.spawn(half.options(priority=2), 3)
        )
        assert_type(word, str)
        assert_type(number, float)
        return f"{word} {number}"

    async def main() -> None:
        async with shop, working(shop):
            assert await (await parent.submit()).result("60s") == "A 1.5"

    asyncio.run(main())


if TYPE_CHECKING:

    async def refused() -> None:
        await brief.submit(5)  # type: ignore[arg-type]
        await brief.submit("solar", colour="red")  # type: ignore[call-arg]
        await brief.options(key="k").submit(5)  # type: ignore[arg-type]
        await brief.options(key=5)  # type: ignore[arg-type, misc]
        await ff.submit(brief, 5)  # type: ignore[call-overload]
        await ff.submit(brief)  # type: ignore[call-overload]
        await ff.submit(brief, "solar", colour="red")  # type: ignore[call-arg]
        await ff.submit(brief.options(key="k"), 5)  # type: ignore[call-overload]
        await ff.submit(brief, "solar", key=5)  # type: ignore[call-arg]
        ff.sync.submit(brief, 5)  # type: ignore[call-overload]

    def without_asyncio() -> None:
        assert_type(ff.sync.submit(brief, "solar"), SyncRun[str])
        assert_type(ff.sync.submit(brief.options(key="k"), "solar"), SyncRun[str])
        assert_type(ff.sync.submit(brief, "solar", key="k"), SyncRun[str])
        assert_type(ff.sync.submit(brief, "solar", start_at=datetime.now(UTC)), SyncRun[str])
        assert_type(ff.sync.submit(double, 1).result(), int)

    def found() -> None:
        assert_type(ff.runs(kind=brief, state="failed"), AsyncIterator[Run[str]])
        assert_type(ff.sync.runs(kind=brief, state="failed"), Iterator[SyncRun[str]])

    async def gathered(ctx: Context, a: Child[str], b: Child[int], many: list[Child[int]]) -> None:
        assert_type(await ctx.gather(a), tuple[str])
        assert_type(await ctx.gather(a, b, a), tuple[str, int, str])
        assert_type(await ctx.gather(a, b, a, b, a), tuple[str, int, str, int, str])
        assert_type(await ctx.gather(*many), list[int])
        assert_type(await ctx.gather(*many, return_exceptions=True), list[int | ChildFailed])
        assert_type(await ctx.spawn(brief, "solar"), Child[str])
        assert_type(await ctx.spawn_many(double, [1, 2]), list[Child[int]])
        await ctx.spawn(brief, 5)  # type: ignore[arg-type]

    def gathered_in_a_thread(ctx: SyncContext, a: Child[str], b: Child[int]) -> None:
        assert_type(ctx.gather(a, b), tuple[str, int])
        assert_type(ctx.spawn(double, 1), Child[int])
        assert_type(ctx.gather(a, return_exceptions=True), list[str | ChildFailed])
        ctx.spawn(double, "x")  # type: ignore[arg-type]
