"""Stubs stand in for steps and tasks, and their values pass through JSON."""

from __future__ import annotations

from datetime import date

import pytest

from flowfabric import Context, Fabric, RunFailed, StepFailed
from flowfabric.errors import InvalidInput
from flowfabric.testing import TestFabric
from tests.testing.conftest import Play

ff = Fabric("memory://")


@ff.step
async def fetch(topic: str) -> str:
    raise AssertionError("the real one")


@ff.task
async def child(topic: str) -> str:
    return f"real {topic}"


@ff.task
async def parent(ctx: Context, topic: str) -> str:
    page = await fetch(topic)
    (text,) = await ctx.gather(await ctx.spawn(child, page))
    return text


def test_a_stub_returns_what_the_test_says(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        calls = fabric.stub(fetch, returns="page").calls
        seen = fabric.spy(child)
        run = await fabric.submit(parent, "solar")
        assert await run.result() == "real page"
        assert calls == [("solar",)]
        assert seen.calls == [("page",)]
        fabric.assert_ran_once("fetch", run)

    play(scenario, ff)


def test_a_task_has_a_double_too(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        fabric.stub("fetch", side_effect=lambda topic: topic[::-1])
        spy = fabric.stub(child, side_effect=lambda topic: f"double {topic}")
        run = await fabric.submit(parent, "solar")
        assert await run.result() == "double ralos"
        assert spy.count == 1

    play(scenario, ff)
    assert ff.tasks["child"].function.__name__ == "child"


def test_a_stub_raises(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        fabric.stub(fetch, raises=ConnectionError("away"))
        run = await fabric.submit(parent, "solar")
        with pytest.raises(RunFailed, match="away"):
            await run.result()

    play(scenario, ff)


def test_what_is_no_json_fails_in_the_test(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        @fabric.task
        async def handler() -> str:
            try:
                return await fetch("a")
            except StepFailed as error:
                return error.category

        fabric.stub(fetch, returns=object())
        run = await fabric.submit(handler)
        assert await run.result() == "InvalidResult"
        fabric.stub(fetch, side_effect=lambda topic: date(2030, 1, 1))
        other = await fabric.submit(handler)
        assert await other.result() == "2030-01-01"

    play(scenario)


def test_a_stub_does_one_thing() -> None:
    fabric = TestFabric(ff)
    with pytest.raises(InvalidInput, match="give one of"):
        fabric.stub(fetch)
    with pytest.raises(InvalidInput, match="give one of"):
        fabric.stub(fetch, returns=1, raises=ValueError)
