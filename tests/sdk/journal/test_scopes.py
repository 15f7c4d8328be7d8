"""Several things at once: each call keeps its key, whatever comes first."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from flowfabric import (
    Context,
    Fabric,
    FlowFabricError,
    InvalidInput,
    PublicState,
    RunFailed,
    SyncContext,
    current_step,
)
from tests.sdk.journal.bench import attempts, journal, keys, worked
from tests.sdk.workshop import until, working


def test_gather_of_steps(url: str) -> None:
    """7.1.6: results at their places, however late each one comes, over interrupted runs."""
    ff, chance, interrupted = Fabric(url), random.Random(5), []

    @ff.step
    async def fetch(n: int) -> int:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.02:
            interrupted.append(n)
            raise ConnectionError(n)
        return 10 * n

    async def process(n: int) -> int:
        return await fetch(n) + await fetch(n + 1)

    @ff.task(retries=50, backoff=0)
    async def fan(ctx: Context) -> list[Any]:
        left = await ctx.gather(*(fetch(n) for n in range(25)))
        right = await ctx.gather(*(process(n) for n in range(25)))
        return [left, right]

    async def main(ff: Fabric) -> None:
        for _ in range(3):
            run = await ff.submit(fan)
            left, right = await run.result()
            assert left == [10 * n for n in range(25)]
            assert right == [20 * n + 10 for n in range(25)]
        assert interrupted

    worked(ff, main)


def test_branches_with_the_same_step_names_do_not_mix(url: str) -> None:
    """7.1.7, 7.1.9."""
    ff, ran = Fabric(url), []

    @ff.step
    async def mark(word: str) -> str:
        ran.append((current_step().key, word))
        await asyncio.sleep(0)
        return word

    @ff.task(retries=1, backoff="1ms")
    async def both(ctx: Context) -> list[str]:
        found: dict[str, str] = {}

        async def side(name: str, turns: int) -> None:
            for _ in range(turns if ctx.attempt == 1 else 9 - turns):
                await asyncio.sleep(0)
            async with ctx.branch(name):
                found[name] = await mark(name) + await mark(f"{name}!")

        async with asyncio.TaskGroup() as group:
            group.create_task(side("left", 7))
            group.create_task(side("right", 1))
        if ctx.attempt == 1:
            raise ValueError("again")
        return [found["left"], found["right"]]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(both)
        assert await run.result() == ["leftleft!", "rightright!"]
        assert len(ran) == 4
        assert set(await keys(ff, run)) == {
            *("left/mark", "left/mark#2", "right/mark", "right/mark#2")
        }

    worked(ff, main)


def test_raw_tasks_are_refused(url: str) -> None:
    """7.1.8: on the first run, before anything has happened."""
    ff, ran = Fabric(url), []

    @ff.step
    async def work() -> None:
        ran.append(1)

    @ff.task(retries=3, backoff="1ms")
    async def handle(ctx: Context) -> None:
        async def raw() -> None:
            await work()

        await asyncio.create_task(raw())

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        with pytest.raises(RunFailed, match=r"ctx\.gather") as caught:
            await run.result()
        assert caught.value.category == "outside_scope"
        assert (await run.info()).total_attempt_count == 1
        assert ran == []

    worked(ff, main)


def test_a_key_of_its_own_is_accepted_in_a_raw_task(url: str) -> None:
    ff = Fabric(url)

    @ff.step
    async def work(n: int) -> int:
        return n

    @ff.task
    async def handle(ctx: Context) -> int:
        async def raw(n: int) -> int:
            return await work.options(key=f"n{n}")(n)

        return sum(await asyncio.gather(*(asyncio.create_task(raw(n)) for n in range(3))))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == 3
        assert sorted(await keys(ff, run)) == ["work[n0]", "work[n1]", "work[n2]"]

    worked(ff, main)


def test_a_second_thread_of_a_sync_handler_is_refused(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def handle(ctx: SyncContext) -> str:
        told: list[str] = []

        def other() -> None:
            try:
                ctx.step("work", lambda: 1)
            except FlowFabricError as error:
                told.append(type(error).__name__)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return told[0]

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == "OutsideScope"

    worked(ff, main)


def test_the_context_of_another_run_is_refused(url: str) -> None:
    """7.2: a handler that kept its context somewhere lends it to no other."""
    ff, kept, ran = Fabric(url), list[Context](), list[int]()

    @ff.task
    async def handle(ctx: Context) -> str:
        kept.append(ctx)
        try:
            await kept[0].step("work", lambda: ran.append(1))
        except FlowFabricError as error:
            return type(error).__name__
        return "ran"

    async def main(ff: Fabric) -> None:
        found = [await (await ff.submit(handle)).result() for _ in range(2)]
        assert (found, ran) == (["ran", "OutsideScope"], [1])

    worked(ff, main)


def test_a_step_inside_of_a_step_is_refused(url: str) -> None:
    ff = Fabric(url)

    @ff.step
    async def inner() -> None: ...

    @ff.step
    async def outer() -> None:
        await inner()

    @ff.step
    def in_a_thread() -> None:
        inner()  # type: ignore[unused-coroutine]

    @ff.task
    async def handle(ctx: Context) -> list[str]:
        found = await ctx.gather(outer(), ctx.step("thread", in_a_thread), return_exceptions=True)
        return [each.category for each in found]  # type: ignore[union-attr]

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == ["NestedStep", "NestedStep"]

    worked(ff, main)


def test_the_same_key_twice_is_refused(url: str) -> None:
    ff = Fabric(url)

    @ff.step
    async def work(n: int) -> int:
        return n

    @ff.task
    async def handle() -> None:
        await work.options(key="a")(1)
        await work.options(key="a")(2)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert caught.value.category == "duplicate_step_key"

    worked(ff, main)


def test_gather_raises_the_failure_that_stands_first(url: str) -> None:
    """The same on every run, whichever came first; all of them are tried again by a retry."""
    ff, ran = Fabric(url), []

    @ff.step
    async def fail(n: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        ran.append(n)
        if len(ran) <= 3:
            raise ValueError(f"number {n}")
        return n

    @ff.task(retries=1, backoff="1ms")
    async def handle(ctx: Context) -> tuple[int, ...]:
        return await ctx.gather(fail(0, 5), fail(1, 0), fail(2, 3))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == (0, 1, 2)
        assert sorted(ran) == [0, 0, 1, 1, 2, 2]
        reasons = [each.failure_reason or "" for each in await attempts(ff, run)]
        assert "number 0" in reasons[0]

    worked(ff, main)


def test_map_keeps_its_limit_and_its_order(url: str) -> None:
    """7.1.10, in tasks and in threads."""
    ff, lock = Fabric(url), threading.Lock()
    running, most = [0], [0]

    def enter(change: int) -> None:
        with lock:
            running[0] += change
            most[0] = max(most[0], running[0])

    @ff.step
    def work(n: int) -> int:
        enter(1)
        threading.Event().wait(0.001)
        enter(-1)
        return n * n

    async def twice(n: int) -> int:
        enter(1)
        await asyncio.sleep(0)
        enter(-1)
        return 2 * n

    @ff.task
    def in_threads(ctx: SyncContext) -> list[int]:
        return ctx.map(work, range(100), limit=8)

    @ff.task
    async def in_tasks(ctx: Context) -> list[int]:
        return await ctx.map(twice, range(2_000), limit=8)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(in_threads)
        assert await run.result() == [n * n for n in range(100)]
        assert 1 < most[0] <= 8
        assert len(await journal(ff, run)) == 100
        most[0] = 0
        assert await (await ff.submit(in_tasks)).result() == [2 * n for n in range(2_000)]
        assert 1 < most[0] <= 8

    worked(ff, main)


def test_branches_left_open_are_cancelled_and_told(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ff, ended, kept = Fabric(url), asyncio.Event(), list[Any]()

    @ff.task
    async def handle(ctx: Context) -> str:
        entered = asyncio.Event()

        async def left() -> None:
            try:
                async with ctx.branch("left"):
                    entered.set()
                    await asyncio.Event().wait()
            finally:
                ended.set()

        kept.append(asyncio.create_task(left()))
        await entered.wait()
        return "done"

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == "done"
        await ended.wait()

    worked(ff, main)
    assert "while branches of it ran" in caplog.text


@pytest.mark.parametrize("limit", [0, -1, 1001, "many"])
def test_a_wrong_limit_is_refused(url: str, limit: Any) -> None:
    ff = Fabric(url)

    @ff.task
    async def handle(ctx: Context) -> str:
        try:
            await ctx.map(asyncio.sleep, [0], limit=limit)
        except InvalidInput as error:
            return str(error.fields["field"])
        return ""

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == "limit"

    worked(ff, main)


def test_calls_with_keys_of_their_own_may_come_at_any_time(url: str) -> None:
    """They have no place among the calls of the handler, so another order is no change of code."""
    ff, ran = Fabric(url), list[str]()

    @ff.step
    async def work(name: str) -> str:
        ran.append(name)
        if name in ("second", "a") and ran.count(name) == 1:
            await asyncio.Event().wait()
        return name

    async def aside(name: str) -> str:
        return await work.options(key=name)(name)

    @ff.task
    async def show() -> list[str]:
        async with asyncio.TaskGroup() as group:
            asides = [group.create_task(aside(name)) for name in "ab"]
            own = [await work(name) for name in ("first", "second", "third")]
        return own + [each.result() for each in asides]

    async def story() -> None:
        async with ff:
            run = await ff.submit(show)

            async def is_recorded() -> bool:
                return await keys(ff, run) == ["work", "work[b]"] and ran.count("a") == 1

            async with working(ff, drain_timeout="1ms"):
                await until(is_recorded)
            async with working(ff):

                async def ended() -> bool:
                    state = (await run.info()).public_state
                    assert state is not PublicState.SUSPENDED
                    return state is PublicState.COMPLETED

                await until(ended)
            assert await run.result() == ["first", "second", "third", "a", "b"]
            assert sorted(ran) == ["a", "a", "b", "first", "second", "second", "third"]

    asyncio.run(story())
