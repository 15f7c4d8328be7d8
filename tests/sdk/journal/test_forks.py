"""Forks of runs: what was done before the cut is not done again, what was waited for is there."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric import Context, Fabric, InvalidInput, PublicState, current_step
from tests.sdk.journal.bench import journal, keys, worked
from tests.sdk.workshop import until


def app(url: str) -> tuple[Fabric, Any, list[Any]]:
    ff, ran = Fabric(url), []

    @ff.step(compare="name")
    async def work(name: str, given: Any = None) -> Any:
        ran.append((name, given, current_step().idempotency_key))
        return f"{name}1"

    @ff.task
    async def order(ctx: Context, topic: str = "solar") -> list[Any]:
        step = work.options
        found = [await step(name="one")("one", topic), await step(name="two")("two")]
        found.append(await ctx.wait_for("paid", dict[str, int], timeout="1h"))
        await ctx.sleep("1.1s")
        quote = await step(name="four")("four")
        return [*found, quote, await step(name="five")("five", quote)]

    return ff, order, ran


def test_a_fork_goes_on_from_the_cut_with_another_result(url: str) -> None:
    """7.1.30."""
    ff, order, ran = app(url)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(order)

        async def waits() -> bool:
            return await run.state() is PublicState.SUSPENDED

        await until(waits)
        await ff.signal(run, "paid", payload={"cents": 5})
        first = await run.result()
        entries = await journal(ff, run)
        assert [each for each, _, _ in ran] == ["one", "two", "four", "five"]
        fork = await run.fork(before="five", set={"four": 7})
        assert await fork.result() == ["one1", "two1", {"cents": 5}, 7, "five1"]
        assert [(name, given) for name, given, _ in ran[4:]] == [("five", 7)]
        assert ran[4][2] != ran[3][2]  # 7.1.20: a fork has keys of its own
        assert await run.result() == first
        assert await journal(ff, run) == entries
        info = await fork.info()
        assert (info.forked_from, info.total_attempt_count) == (run.id, 1)
        assert await keys(ff, fork) == await keys(ff, run)

    worked(ff, main)


def test_a_fork_may_have_other_arguments(url: str) -> None:
    ff, order, ran = app(url)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(order)

        async def waits() -> bool:
            return await run.state() is PublicState.SUSPENDED

        await until(waits)
        fork = await run.fork("one", input={"topic": "wind"})
        await until(lambda: waiting(fork))
        assert ("one", "wind") in [(name, given) for name, given, _ in ran]
        await ff.signal(fork, "paid", payload={"cents": 1})
        assert (await fork.result())[2] == {"cents": 1}
        assert await run.state() is PublicState.SUSPENDED
        await run.cancel()

    worked(ff, main)


async def waiting(run: Any) -> bool:
    state: PublicState = await run.state()
    return state is PublicState.SUSPENDED


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("set", {"set": {"one": object()}}),
        ("set", {"set": 7}),
        ("input", {"input": [1]}),
        ("before", {"before": "fife"}),
        ("results", {"set": {"five": 1}}),
    ],
)
def test_what_makes_no_sense_is_refused(field: str, more: dict[str, Any]) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def order(ctx: Context) -> None:
        await ctx.step("one", str)
        await ctx.step("five", str)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(order)
        await run.result()
        with pytest.raises(InvalidInput) as caught:
            await run.fork(**{"before": "five", **more})
        assert caught.value.fields["field"] == field

    worked(ff, main)


def test_a_later_chapter_is_forked(url: str) -> None:
    ff, ran = Fabric(url), []

    @ff.task
    async def loop(ctx: Context, n: int = 0) -> int:
        ran.append(n)
        got = await ctx.step("a", abs, n)
        if n == 0:
            await ctx.continue_as_new(5)
        return got + await ctx.step("b", abs, n)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(loop)
        assert await run.result() == 10
        fork = await run.fork("b", set={"a": 100})
        assert await fork.result() == 105
        assert ran == [0, 5, 5]

    worked(ff, main)
