"""Waits beside each other: in branches, for children, for other runs, for the first of several."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import (
    ChildFailed,
    Context,
    EntryKind,
    Fabric,
    Fatal,
    PublicState,
    Run,
    RunFailed,
    SyncContext,
    WaitInfo,
    WaitTimeout,
)
from tests.sdk.journal.bench import journal, keys, worked
from tests.sdk.workshop import until


async def reaches(run: Run[Any], state: PublicState) -> None:
    """Return when it is in this state."""

    async def is_there() -> bool:
        return await run.state() is state

    await until(is_there)


async def waits(run: Run[Any]) -> None:
    """Return when it is suspended."""
    await reaches(run, PublicState.SUSPENDED)


def test_branches_wait_without_a_worker_and_go_on_one_by_one(url: str) -> None:
    ff, ran = Fabric(url), []

    @ff.step
    async def work(name: str) -> str:
        ran.append(name)
        return name

    @ff.task
    async def handle(ctx: Context) -> list[str]:
        async def ask(place: str) -> str:
            await work(f"before {place}")
            answer = await ctx.wait_for(place, str)
            return await work(f"{place} {answer}")

        return list(await ctx.gather(ask("left"), ask("right")))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        await waits(run)
        await ff.signal(run, "right", payload="yes")

        async def is_heard() -> bool:
            return "right yes" in ran and await run.state() is PublicState.SUSPENDED

        await until(is_heard)  # the other branch waits on
        await ff.signal(run, "left", payload="no")
        assert await run.result() == ["left no", "right yes"]
        assert sorted(ran) == sorted(["before left", "before right", "right yes", "left no"])

    worked(ff, main)


def test_a_signal_for_a_branch_wakes_it_while_another_one_works(url: str) -> None:
    ff, gate, heard = Fabric(url), asyncio.Event(), asyncio.Event()

    @ff.step
    async def work() -> str:
        await gate.wait()
        return "worked"

    @ff.step
    async def hear(answer: str) -> str:
        heard.set()
        return answer

    @ff.task
    async def handle(ctx: Context) -> list[str]:
        async def ask() -> str:
            return await hear(await ctx.wait_for("reply", str))

        return list(await ctx.gather(work(), ask()))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)

        async def is_open() -> bool:
            engine = await ff.start()
            page = await engine.list_pending_waitpoints(execution_id=run.id)
            return bool(page.items)

        await until(is_open)
        await ff.signal(run, "reply", payload="now")
        await heard.wait()  # in place: the other branch has not moved
        assert await run.state() is PublicState.ACTIVE
        gate.set()
        assert await run.result() == ["worked", "now"]

    worked(ff, main)


@pytest.mark.parametrize("how", ["group", "tasks"])
def test_a_group_of_tasks_in_branches_waits_without_a_worker(url: str, how: str) -> None:
    """7.1.9: no suspension until both wait."""
    ff, gate, ran = Fabric(url), asyncio.Event(), []

    @ff.step
    async def work(name: str) -> str:
        ran.append(name)
        if name == "slow":
            await gate.wait()
        return name

    @ff.task
    async def handle(ctx: Context) -> str:
        async def left() -> None:
            async with ctx.branch("left"):
                await ctx.sleep("1h")
                await work("left")

        async def right() -> None:
            async with ctx.branch("right"):
                await work("slow")
                await ctx.sleep("1h")
                await work("right")

        if how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(left())
                group.create_task(right())
        else:
            await asyncio.gather(left(), right())
        return "done"

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)

        async def is_slow() -> bool:
            return "slow" in ran

        await until(is_slow)
        assert await run.state() is PublicState.ACTIVE
        gate.set()
        await waits(run)
        engine = await ff.start()
        await engine.resume_execution(execution_id=run.id)  # ends both sleeps
        assert await run.result() == "done"
        assert sorted(ran) == ["left", "right", "slow"]

    worked(ff, main)


def test_waits_in_threads_of_a_sync_handler(url: str) -> None:
    ff, ran = Fabric(url), []

    @ff.step
    def work(name: str) -> str:
        ran.append(name)
        return name

    @ff.task
    def handle(ctx: SyncContext) -> list[str]:
        def ask(place: str) -> str:
            return work(f"{place} {ctx.wait_for(place, str)}")

        return list(ctx.map(ask, ["a", "b", "c"], limit=2))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        for place in ("a", "b", "c"):
            await waits(run)
            await ff.signal(run, place, payload="ok")
        assert await run.result() == ["a ok", "b ok", "c ok"]
        assert sorted(ran) == ["a ok", "b ok", "c ok"]

    worked(ff, main)


def test_two_branches_may_not_wait_at_one_place(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def handle(ctx: Context) -> list[Any]:
        async def ask() -> Any:
            return await ctx.wait_for("reply", timeout="1ms", default="none")

        found = await ctx.gather(ask(), ask(), return_exceptions=True)
        return sorted(getattr(each, "code", each) for each in found)

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == ["invalid_input", "none"]

    worked(ff, main)


def test_a_retry_finds_the_signals_that_came_before_it(url: str) -> None:
    """An approval of one person is not lost when another branch fails."""
    ff, tries = Fabric(url), []

    @ff.step
    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("once")
        return "ok"

    @ff.task(retries=1, backoff="1ms")
    async def handle(ctx: Context) -> Any:
        async def approve() -> list[str]:
            async with ctx.branch("approve"):
                return list(await ctx.approval("publish", of=2))

        async def work() -> str:
            async with ctx.branch("work"):
                await ctx.wait_for("go")
                return await flaky()

        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(approve()), group.create_task(work())
        return [each.result() for each in tasks]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        await waits(run)
        await ff.approve(run, "publish", by="ada")
        await ff.signal(run, "go")

        async def is_tried() -> bool:
            return len(tries) == 2 and await run.state() is PublicState.SUSPENDED

        await until(is_tried)
        await ff.approve(run, "publish", by="bob")
        assert await run.result() == [["operator:ada", "operator:bob"], "ok"]

    worked(ff, main)


def test_a_race_of_a_child_against_a_sleep(url: str) -> None:
    ff, gate = Fabric(url), asyncio.Event()

    @ff.task
    async def slow(number: int) -> int:
        await gate.wait()
        return number

    @ff.task
    async def handle(ctx: Context) -> Any:
        child = await ctx.spawn(slow, 5)
        return await ctx.first_of(child, ctx.wait_for("stop", str), losers="cancel")

    async def main(ff: Fabric) -> None:
        one, two = await ff.submit(handle), await ff.submit(handle)
        await waits(one)
        await waits(two)
        await ff.signal(one, "stop", payload="enough")
        assert await one.result() == [1, "enough"]
        page = await (await ff.start()).list_executions(execution_kind="slow")
        states = sorted(each.public_state.value for each in page.items)
        assert "cancelled" in states
        gate.set()
        assert await two.result() == [0, 5]

    worked(ff, main)


def test_gather_names_two_of_three_children_and_goes_on_without_the_third(url: str) -> None:
    """7.1.36."""
    ff, gate = Fabric(url), asyncio.Event()

    @ff.task
    async def quick(number: int) -> int:
        return number

    @ff.task
    async def slow(number: int) -> int:
        await gate.wait()
        return number

    @ff.task
    async def handle(ctx: Context) -> list[int]:
        last = await ctx.spawn(slow, 3)
        pair = await ctx.gather(await ctx.spawn(quick, 1), await ctx.spawn(quick, 2))
        await ctx.value("reached", gate.set)
        (three,) = await ctx.gather(last)
        return [*pair, three]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == [1, 2, 3]

    worked(ff, main)


def test_calls_in_branches_wait_together_and_are_spawned_in_one_go(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def double(number: int) -> int:
        return 2 * number

    @ff.task
    async def handle(ctx: Context) -> list[int]:
        return list(await ctx.gather(*[ctx.call(double, at) for at in range(10)]))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == [2 * at for at in range(10)]
        found = await journal(ff, run)
        spawned = [each for each in found if each.kind is EntryKind.SPAWN]
        assert len(spawned) == 10
        assert len({each.recorded_at for each in spawned}) == 1

    worked(ff, main)


def test_a_branch_that_waits_for_two_ends_frees_its_worker_after_the_first(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def ask(ctx: Context, place: str) -> str:
        return await ctx.wait_for(place, str)

    @ff.task
    async def handle(ctx: Context) -> list[Any]:
        async def pair() -> list[str]:
            return list(await ctx.gather(*await ctx.spawn_many(ask, ["a", "b"])))

        async def one() -> str:
            return await ctx.call(ask, "c")

        return list(await ctx.gather(pair(), one()))

    async def main(ff: Fabric) -> None:
        run, seen = await ff.submit(handle), set[str]()
        for place, left in (("a", "abc"), ("b", "bc"), ("c", "c")):
            waiting: dict[str, WaitInfo] = {}

            async def waits_again(left: str = left, into: dict[str, WaitInfo] = waiting) -> bool:
                into.clear()
                into.update({key: wait for wait in await ff.waits() for key in _keys(wait)})
                is_whole = into.keys() == {"__ended", *left}
                return is_whole and into["__ended"].suspension_id not in seen

            await until(waits_again)
            seen.add(waiting["__ended"].suspension_id)
            await ff.signal(waiting[place].execution_id, place, payload=place.upper())
        assert await run.result() == [["A", "B"], "C"]

    worked(ff, main, concurrency=1, warm=10)  # one that is not free ends no child


def _keys(wait: WaitInfo) -> set[str]:
    return {key for line in wait.lines for key in line.waitpoint_keys}


def test_the_end_of_a_child_that_was_caught_stays_as_it_was(url: str) -> None:
    """A child that failed, and is retried by an operator later, has failed for its parent."""
    ff, is_broken = Fabric(url), [True]

    @ff.task
    async def fragile() -> str:
        if is_broken:
            raise Fatal("no")
        return "fine"

    @ff.task
    async def handle(ctx: Context) -> str:
        child = await ctx.spawn(fragile)
        try:
            (answer,) = await ctx.gather(child)
        except ChildFailed:
            answer = "failed"
        await ctx.wait_for("go")
        return str(answer)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        await waits(run)
        is_broken.clear()
        (child,) = (await (await ff.start()).list_executions(execution_kind="fragile")).items
        again = ff.run(child.execution_id)
        await again.retry()
        assert await again.result() == "fine"
        await ff.signal(run, "go")
        assert await run.result() == "failed"

    worked(ff, main)


def test_a_handler_waits_for_any_other_run_without_a_worker(url: str) -> None:
    ff, gate = Fabric(url), asyncio.Event()

    @ff.task
    async def other(number: int) -> int:
        await gate.wait()
        if number < 0:
            raise Fatal("negative")
        return number

    @ff.task
    async def handle(ctx: Context, run_id: str) -> int:
        return await ff.run(run_id, other).result()

    async def main(ff: Fabric) -> None:
        good, bad = await ff.submit(other, 7), await ff.submit(other, -1)
        runs = [await ff.submit(handle, each.id) for each in (good, bad)]
        for run in runs:
            await waits(run)
        gate.set()
        assert await runs[0].result() == 7
        with pytest.raises(RunFailed) as caught:
            await runs[1].result()
        assert "negative" in caught.value.reason
        assert await (await ff.submit(handle, good.id)).result() == 7  # ended before

    worked(ff, main)


def test_a_wait_for_another_run_that_takes_too_long(url: str) -> None:
    ff, gate = Fabric(url), asyncio.Event()

    @ff.task
    async def other() -> int:
        await gate.wait()
        return 1

    @ff.task
    async def handle(ctx: Context, run_id: str) -> str:
        try:
            await ff.run(run_id).result(timeout="1ms")
        except WaitTimeout:
            await ctx.sleep("2s")
            return "too late"
        return "in time"

    async def main(ff: Fabric) -> None:
        slow = await ff.submit(other)
        run = await ff.submit(handle, slow.id)

        async def sleeps() -> bool:
            return "sleep" in await keys(ff, run) and await run.state() is PublicState.SUSPENDED

        await until(sleeps)
        gate.set()
        await slow.result()
        engine = await ff.start()
        await engine.resume_execution(execution_id=run.id)
        assert await run.result() == "too late"

    worked(ff, main)


def test_a_wait_for_a_run_that_is_not_there(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def handle(ctx: Context, run_id: str) -> str:
        return str(await ff.run(run_id).result())

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle, "nowhere")
        with pytest.raises(RunFailed):
            await run.result()
        unknown = run.id[:-4] + "0000"
        with pytest.raises(RunFailed) as caught:
            await (await ff.submit(handle, unknown)).result()
        assert "NotFound" in (caught.value.category or "")

    worked(ff, main)


def test_results_come_in_the_order_of_the_first_run(url: str) -> None:
    ff, gates, ran = Fabric(url), {"a": asyncio.Event(), "b": asyncio.Event()}, []
    runs: list[list[str]] = []

    @ff.step
    async def work(name: str) -> str:
        ran.append(name)
        await gates[name].wait()
        return name.upper()

    @ff.task
    async def handle(ctx: Context) -> list[str]:
        seen: list[str] = []
        runs.append(seen)
        async for name, done in ctx.as_completed(a=work("a"), b=work("b")):
            seen.append(f"{name} {done.result()}")
            gates["a"].set()
        await ctx.wait_for("go")
        return seen

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        gates["b"].set()
        await waits(run)
        await ff.signal(run, "go")
        assert await run.result() == ["b B", "a A"]
        assert runs == [["b B", "a A"]] * 2
        assert sorted(ran) == ["a", "b"]

    worked(ff, main)


def test_a_loop_that_is_left_early_cancels_the_others(url: str) -> None:
    ff, ended = Fabric(url), []

    @ff.step
    async def work(name: str) -> str:
        try:
            await asyncio.sleep(0 if name == "a" else 3600)
        except asyncio.CancelledError:
            ended.append(name)
            raise
        return name

    @ff.task
    async def handle(ctx: Context) -> str:
        found = ctx.as_completed(a=work("a"), b=work("b"))
        names = []
        async for name, _ in found:
            names.append(name)
            break
        await found.aclose()
        return names[0]

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == "a"
        assert ended == ["b"]

    worked(ff, main)


@pytest.mark.parametrize("where", ["root", "branch"])
def test_a_time_out_of_asyncio_around_a_wait_is_refused(url: str, where: str) -> None:
    """Another run could not know of it."""
    ff, gate = Fabric(url), asyncio.Event()

    @ff.step
    async def work() -> None:
        await gate.wait()

    @ff.task
    async def handle(ctx: Context) -> str:
        async def hurry() -> str:
            async with asyncio.timeout(0.01):
                return await ctx.wait_for("reply", str)

        if where == "root":
            async with asyncio.timeout(0.01):
                await ctx.sleep("500ms")
            return "slept"
        try:
            await ctx.gather(hurry(), work())
        finally:
            gate.set()
        return "heard"

    async def main(ff: Fabric) -> None:
        if where == "branch":
            asyncio.get_running_loop().call_later(0.2, gate.set)
        with pytest.raises(RunFailed) as caught:
            await (await ff.submit(handle)).result()
        assert caught.value.category == "unrecorded_timeout"

    worked(ff, main)


def test_a_waitpoint_is_the_same_after_a_retry(url: str) -> None:
    ff, links = Fabric(url), []

    @ff.task(retries=1, backoff="1ms")
    async def handle(ctx: Context) -> str:
        place = await ctx.waitpoint("reply", expires="1h", expect=str)
        links.append(place.link())
        if ctx.attempt == 1:
            raise ConnectionError("after the link was handed out")
        return await ctx.wait_for(place, str)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        await waits(run)
        assert links[0] == links[1]
        await ff.signal(run, "reply", payload="same")
        assert await run.result() == "same"
        assert await keys(ff, run) == ["waitpoint:reply", "wait:reply"]

    worked(ff, main)


def test_too_many_places_at_once_are_refused(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def handle(ctx: Context) -> int:
        async def ask(at: int) -> Any:
            return await ctx.wait_for(f"place-{at}", timeout="50ms", default=at)

        found = await ctx.gather(*[ask(at) for at in range(40)], return_exceptions=True)
        return sum(isinstance(each, Exception) for each in found)

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() > 0

    worked(ff, main)


def test_calls_that_are_gathered_keep_their_order_and_their_failures(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def check(number: int) -> int:
        if number == 1:
            raise Fatal("one")
        return number

    @ff.step
    async def plain() -> str:
        return "step"

    @ff.task
    async def handle(ctx: Context) -> list[Any]:
        calls = [ctx.call(check, at) for at in range(3)]
        found = await ctx.gather(*calls[:2], plain(), calls[2], return_exceptions=True)
        return [getattr(each, "code", each) for each in found]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == [0, "child_failed", "step", 2]

    worked(ff, main)
