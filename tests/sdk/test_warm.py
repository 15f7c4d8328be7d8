"""Handlers that wait and stay in memory: they go on where they are, or are called again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import Context, Fabric, InvalidInput, PublicState, Run, Worker
from flowfabric.sdk.worker import warm
from tests.sdk.journal.bench import worked
from tests.sdk.workshop import until, within, working


async def waits(run: Run[Any], state: PublicState = PublicState.SUSPENDED) -> None:
    """Return when it waits."""

    async def is_waiting() -> bool:
        return await run.state() is state

    await until(is_waiting)


def waiting_task(ff: Fabric, tops: list[int], ran: list[str]) -> Any:
    """A handler that notes how often it is called."""

    @ff.step
    async def work(name: str) -> str:
        ran.append(name)
        return name

    @ff.task
    async def handle(ctx: Context) -> str:
        tops.append(1)
        await work("before")
        answer = await ctx.wait_for("reply", str)
        return await work(f"{answer} after")

    return handle


@pytest.mark.parametrize("kept", [1000, 0])
def test_a_handler_goes_on_where_it_waits_or_from_the_top(url: str, kept: int) -> None:
    """7.1.32."""
    ff, tops, ran = Fabric(url), list[int](), list[str]()
    handle = waiting_task(ff, tops, ran)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        await waits(run)
        await ff.signal(run, "reply", payload="soon")
        assert await run.result() == "soon after"
        assert len(tops) == (1 if kept else 2)
        assert ran == ["before", "soon after"]
        assert (await run.info()).total_attempt_count == 1

    worked(ff, main, warm=kept)


def test_a_handler_that_was_overtaken_is_dropped_and_writes_nothing(durable_url: str) -> None:
    """7.1.33: another worker had the execution in between."""
    ff, other = Fabric(durable_url), Fabric(durable_url)
    tops, ran = [], []

    def two_waits(ff: Fabric, name: str) -> Any:
        @ff.step
        async def work(part: str) -> str:
            ran.append(f"{name} {part}")
            return part

        @ff.task(name="handle")
        async def handle(ctx: Context) -> list[str]:
            tops.append(name)
            one = await ctx.wait_for("one", str)
            await work(one)
            two = await ctx.wait_for("two", str)
            await work(two)
            return [one, two]

        return handle

    mine = two_waits(ff, "mine")
    two_waits(other, "other")

    async def main() -> None:
        async with ff, other:
            held = Worker(ff, poll_interval="50ms")
            running = asyncio.create_task(held.run(handle_signals=False))
            run = await ff.submit(mine)
            await waits(run)
            shift = held._shift
            assert shift is not None
            claim, shift._claim = shift._claim, _never  # type: ignore[method-assign]
            async with working(other):
                await ff.signal(run, "one", payload="1")

                async def is_done() -> bool:
                    return "other 1" in ran and await run.state() is PublicState.SUSPENDED

                await until(is_done)
            shift._claim = claim  # type: ignore[method-assign]
            await ff.signal(run, "two", payload="2")
            assert await within(run.result()) == ["1", "2"]
            held.stop()
            await running

    asyncio.run(main())
    assert ran == ["other 1", "mine 2"]
    assert tops == ["mine", "other", "mine"]


async def _never(limit: int, wait_ms: int = 0) -> list[Any] | None:
    return []


def test_only_so_many_are_kept_the_oldest_go_first(url: str) -> None:
    ff, tops, ran = Fabric(url), list[int](), list[str]()
    handle = waiting_task(ff, tops, ran)

    async def main(ff: Fabric) -> None:
        runs = []
        for _ in range(3):
            runs.append(await ff.submit(handle))
            await waits(runs[-1])
        tops.clear()
        for run in runs:
            await ff.signal(run, "reply", payload="x")
            await run.result()
        assert len(tops) == 2  # of three one was kept

    worked(ff, main, warm=1)


def test_one_that_waits_too_long_is_dropped(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "KEPT_S", 0.01)
    ff, tops, left = Fabric(url), list[int](), asyncio.Event()

    @ff.task
    async def handle(ctx: Context) -> str:
        tops.append(1)
        try:
            return await ctx.wait_for("reply", str)
        finally:
            if ctx.is_leaving:
                left.set()

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        await left.wait()
        await ff.signal(run, "reply", payload="late")
        assert await run.result() == "late"
        assert len(tops) == 2

    worked(ff, main, warm=10)


def test_a_worker_that_stops_drops_what_waits(url: str) -> None:
    ff, events = Fabric(url), []

    @ff.task
    async def handle(ctx: Context) -> str:
        events.append("top")
        try:
            return await ctx.wait_for("reply", str)
        finally:
            events.append("left" if ctx.is_leaving else "done")

    async def main() -> None:
        async with ff:
            async with working(ff, warm=10):
                run = await ff.submit(handle)
                await waits(run)
            assert events == ["top", "left"]
            await ff.signal(run, "reply", payload="x")
            async with working(ff, warm=10):
                assert await within(run.result()) == "x"

    asyncio.run(main())
    assert events == ["top", "left", "top", "done"]


def test_branches_children_and_other_runs_go_on_where_they_wait(url: str) -> None:
    ff, tops = Fabric(url), []

    @ff.task
    async def double(number: int) -> int:
        return 2 * number

    @ff.task
    async def handle(ctx: Context) -> list[Any]:
        tops.append(1)

        async def ask(place: str) -> str:
            return await ctx.wait_for(place, str)

        both = await ctx.gather(ask("a"), ask("b"))
        four = await ctx.gather(*[await ctx.spawn(double, at) for at in range(4)])
        five = await ctx.gather(*[ctx.call(double, at) for at in range(5)])
        await ctx.sleep("1s")
        return [*both, *four, *five]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        for place in ("b", "a"):
            await waits(run)
            await ff.signal(run, place, payload=place)
        assert await run.result() == ["a", "b", 0, 2, 4, 6, 0, 2, 4, 6, 8]
        assert len(tops) == 1

    worked(ff, main, warm=10)


def test_an_operator_ends_waits_of_a_handler_in_memory(url: str) -> None:
    ff, tops = Fabric(url), []

    @ff.task
    async def handle(ctx: Context) -> str:
        tops.append(1)
        await ctx.sleep("1h")
        await ctx.gather(ctx.sleep("1h"), ctx.sleep("2h"))
        return "awake"

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        engine = await ff.start()
        seen: set[str] = set()
        for _ in range(2):

            async def is_new_wait() -> bool:
                found = (await engine.describe_waits(execution_ids=[run.id])).get(run.id)
                return found is not None and found.suspension_id not in seen

            await until(is_new_wait)
            seen.add((await engine.describe_waits(execution_ids=[run.id]))[run.id].suspension_id)
            await engine.resume_execution(execution_id=run.id)
        assert await run.result() == "awake"
        assert len(tops) == 1

    worked(ff, main, warm=10)


def test_a_lost_lease_after_the_wait_stops_the_handler(url: str) -> None:
    ff, gate, seen = Fabric(url), asyncio.Event(), []

    @ff.step
    async def slow() -> str:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            seen.append("stopped")
            raise
        return "done"

    @ff.task
    async def handle(ctx: Context) -> str:
        await ctx.wait_for("reply")
        return await slow()

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        await waits(run)
        await ff.signal(run, "reply")
        await waits(run, PublicState.ACTIVE)
        await run.cancel()

        async def is_stopped() -> bool:
            return seen == ["stopped"]

        await until(is_stopped)

    worked(ff, main, warm=10)


@pytest.mark.parametrize("value", [-1, "many", 1.5, True])
def test_a_bad_number_of_kept_handlers_is_refused(value: Any) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def handle() -> None: ...

    with pytest.raises(InvalidInput) as refused:
        Worker(ff, warm=value)
    assert refused.value.fields["field"] == "warm"


def test_what_is_logged_and_shown_after_a_wait_is_kept(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def handle(ctx: Context) -> str:
        ctx.log.warning("before")
        await ctx.emit("first")
        await ctx.wait_for("reply")
        ctx.log.warning("after")
        await ctx.emit("second")
        return "ok"

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        await waits(run)
        await ff.signal(run, "reply")
        await run.result()
        lines = [line async for line in run.logs()]
        assert [each.message.split("] ")[-1] for each in lines] == ["before", "after"]
        frames = [frame async for frame in run.stream()]
        assert len(frames) == 2

    worked(ff, main, warm=10)
