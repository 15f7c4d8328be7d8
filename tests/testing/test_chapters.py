"""Chapters in the kit: each is replayed by itself, from its own arguments."""

from __future__ import annotations

import pytest

from flowfabric import Context, Fabric
from flowfabric.testing import ReplayMismatch, TestFabric, check, redacted, run
from tests.testing.conftest import Play


def app(*, broken: bool = False) -> Fabric:
    ff, calls = Fabric("memory://"), []

    @ff.step
    async def work(n: int) -> int:
        return n

    @ff.step(secret=True)
    async def token(n: int) -> str:
        return f"s{n}"

    @ff.task
    async def loop(ctx: Context, left: int, said: str = "") -> str:
        calls.append(left)
        if broken and calls.count(left) > 1:
            await ctx.step("another", lambda: 1)
        said += str(await work(left)) + await token(left)
        if left:
            await ctx.continue_as_new(left - 1, said)
        return said

    return ff


def test_every_chapter_is_checked(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        found = await fabric.submit(fabric.ff.tasks["loop"], 3)
        await fabric.settle()
        assert await found.result() == "3s32s21s10s0"
        history = await fabric.history(found)
        assert (history.chapter, [each.key for each in history.entries]) == (
            3,
            ["chapter", "work", "token"],
        )

    play(scenario, app())


def test_a_chapter_that_does_not_do_the_same_again_is_found() -> None:
    async def scenario() -> None:
        async with TestFabric(app(broken=True)) as fabric:
            await fabric.submit(fabric.ff.tasks["loop"], 0)
            await fabric.settle()

    with pytest.raises(ReplayMismatch, match="another"):
        run(scenario())


def test_a_worker_that_dies_in_a_later_chapter_goes_on_in_it(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        works = fabric.spy("work")
        fabric.crash(after="token", nth=3)
        found = await fabric.submit(fabric.ff.tasks["loop"], 3)
        await fabric.settle(skip=True)
        assert await found.result() == "3s32s21s10s0"
        assert list(works.calls) == [(3,), (2,), (1,), (0,)]

    play(scenario, app())


def test_the_arguments_of_a_chapter_are_redacted_as_the_input_is() -> None:
    async def scenario() -> None:
        ff = app()
        async with TestFabric(ff) as fabric:
            found = await fabric.submit(fabric.ff.tasks["loop"], 1)
            await fabric.settle()
            history = redacted(await fabric.history(found), ["input.said"])
            assert b"redacted" in (history.entries[0].value or b"")
            await check(ff.tasks["loop"], history)

    run(scenario())
