"""Handlers that spawn children and gather their results."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from flowfabric import (
    Child,
    ChildFailed,
    Context,
    Fabric,
    Fatal,
    InvalidInput,
    PublicState,
    Run,
    RunFailed,
    SyncContext,
    Worker,
)
from flowfabric.api.backend import EngineBackend
from flowfabric.errors import OutcomeUnknown
from tests.sdk.workshop import until, within, working


class Shop:
    """A fabric with tasks for children; every call of a child's handler is counted."""

    def __init__(self, url: str) -> None:
        self.ff = ff = Fabric(url)
        self.gate = asyncio.Event()
        self.calls: list[int] = []
        shop = self

        @ff.task
        async def double(n: int) -> int:
            shop.calls.append(n)
            return 2 * n

        @ff.task
        async def broken(n: int) -> int:
            shop.calls.append(n)
            raise Fatal(f"no {n}")

        @ff.task
        async def slow(n: int) -> int:
            await shop.gate.wait()
            return n

        self.double, self.broken, self.slow = double, broken, slow


@pytest.fixture
def shop(url: str) -> Shop:
    return Shop(url)


def one_slot(ff: Fabric) -> AbstractAsyncContextManager[Worker]:
    """A worker whose parents must wait: no child begins before its parent has let go of the slot.

    With more slots the children may have ended when they are gathered, and nobody waits.
    """
    return working(ff, concurrency=1)


async def waits(run: Run[Any]) -> None:
    """Return once the run waits for its children."""

    async def is_waiting() -> bool:
        return await run.state() is PublicState.WAITING_CHILDREN

    await until(is_waiting)


def test_a_handler_gathers_the_results_of_its_children_in_order(shop: Shop) -> None:
    passes: list[tuple[int, bool]] = []
    seen: list[list[str]] = []

    @shop.ff.task
    async def parent(ctx: Context) -> list[int]:
        passes.append((ctx.attempt, ctx.is_resumed))
        first = await ctx.spawn(shop.double, 1)
        rest = await ctx.spawn_many(shop.double, [2, (3,)])
        last = await ctx.spawn(shop.double.options(priority=9), n=4)
        seen.append([child.id for child in (first, *rest, last)])
        return await ctx.gather(last, *rest, first)

    async def main() -> None:
        async with shop.ff, one_slot(shop.ff):
            run = await shop.ff.submit(parent)
            assert await within(run.result()) == [8, 4, 6, 2]

    asyncio.run(main())
    assert passes == [(1, False), (1, True)]
    assert seen[0] == seen[1]
    assert sorted(shop.calls) == [1, 2, 3, 4]


def test_a_parent_waits_without_a_worker(shop: Shop) -> None:
    @shop.ff.task
    async def parent(ctx: Context) -> list[int]:
        return list(await ctx.gather(await ctx.spawn(shop.slow, 1), await ctx.spawn(shop.slow, 2)))

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            run = await shop.ff.submit(parent)
            await waits(run)
            info = await run.info()
            assert info.current_lease is None
            assert info.blocking_detail == "waiting for 2 of its children"
            shop.gate.set()
            assert await within(run.result()) == [1, 2]

    asyncio.run(main())


def test_a_parent_waits_although_some_children_have_ended(shop: Shop) -> None:
    @shop.ff.task
    async def parent(ctx: Context) -> list[int]:
        ended, running = await ctx.spawn(shop.double, 1), await ctx.spawn(shop.slow, 2)
        await within(shop.ff.run(ended.id).result())
        return list(await ctx.gather(ended, running))

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            run = await shop.ff.submit(parent)
            await waits(run)
            shop.gate.set()
            assert await within(run.result()) == [2, 2]

    asyncio.run(main())


def test_children_may_spawn_children(shop: Shop) -> None:
    @shop.ff.task
    async def tree(ctx: Context, depth: int) -> int:
        if not depth:
            return 1
        children = await ctx.spawn_many(tree, [depth - 1, depth - 1])
        return sum(await ctx.gather(*children))

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            assert await within((await shop.ff.submit(tree, 3)).result()) == 8

    asyncio.run(main())


def test_a_later_spawn_may_use_what_earlier_children_gave(shop: Shop) -> None:
    @shop.ff.task
    async def chain(ctx: Context) -> int:
        value = 1
        for _ in range(3):
            (value,) = await ctx.gather(await ctx.spawn(shop.double, value))
        return value

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            assert await within((await shop.ff.submit(chain)).result()) == 8

    asyncio.run(main())
    assert shop.calls == [1, 2, 4]


def test_a_failed_child_fails_its_parent_once(shop: Shop) -> None:
    passes: list[int] = []

    @shop.ff.task(retries=5, backoff="1ms")
    async def parent(ctx: Context) -> list[int]:
        passes.append(ctx.attempt)
        return list(
            await ctx.gather(await ctx.spawn(shop.double, 1), await ctx.spawn(shop.broken, 7))
        )

    async def main() -> None:
        async with shop.ff, one_slot(shop.ff):
            run = await shop.ff.submit(parent)
            with pytest.raises(RunFailed) as caught:
                await within(run.result())
            assert caught.value.category == "child_failed"
            assert caught.value.reason == "broken: no 7"

    asyncio.run(main())
    assert passes == [1, 1]  # another try would find the same child


def test_a_failed_child_can_be_caught_or_taken_as_a_value(shop: Shop) -> None:
    seen: list[Any] = []

    @shop.ff.task
    async def parent(ctx: Context) -> str:
        good, bad = await ctx.spawn(shop.double, 1), await ctx.spawn(shop.broken, 7)
        seen[:] = await ctx.gather(good, bad, return_exceptions=True)
        try:
            await ctx.gather(bad)
        except ChildFailed as error:
            return f"{error.state.value} {error.reason} {error.execution_id == bad.id}"
        return "nothing"

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            assert await within((await shop.ff.submit(parent)).result()) == "failed no 7 True"

    asyncio.run(main())
    assert seen[0] == 2
    assert isinstance(seen[1], ChildFailed)


def test_a_retry_finds_the_same_children(shop: Shop) -> None:
    seen: list[tuple[int, str]] = []

    @shop.ff.task(retries=2, backoff="1ms")
    async def parent(ctx: Context) -> int:
        child = await ctx.spawn(shop.double, 5)
        seen.append((ctx.attempt, child.id))
        (value,) = await ctx.gather(child)
        if ctx.attempt == 1:
            raise ValueError("after the children")
        return int(value)

    async def main() -> None:
        async with shop.ff, one_slot(shop.ff):
            assert await within((await shop.ff.submit(parent)).result()) == 10

    asyncio.run(main())
    assert [attempt for attempt, _ in seen] == [1, 1, 2]
    assert len({child for _, child in seen}) == 1
    assert shop.calls == [5]


def test_a_fresh_replay_begins_with_new_children(shop: Shop) -> None:
    @shop.ff.task
    async def parent(ctx: Context) -> int:
        (value,) = await ctx.gather(await ctx.spawn(shop.double, 5))
        return int(value)

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            run = await shop.ff.submit(parent)
            assert await within(run.result()) == 10
            engine = await shop.ff.start()
            await engine.replay_execution(execution_id=run.id)
            assert await within(run.result()) == 10
            assert shop.calls == [5]  # a replay goes on where the journal ends
            await engine.replay_execution(execution_id=run.id, fresh=True)
            assert await within(run.result()) == 10

    asyncio.run(main())
    assert shop.calls == [5, 5]


@pytest.mark.parametrize("on_mismatch", ["hold", "fail"])
def test_a_handler_that_spawns_something_else_the_second_time_is_told_so(
    shop: Shop, on_mismatch: Any
) -> None:
    """It is held as any other code that does not fit, with no retry used."""
    numbers = iter([1, 2])

    @shop.ff.task(retries=3, backoff="1ms", on_mismatch=on_mismatch)
    async def parent(ctx: Context) -> list[int]:
        return list(await ctx.gather(await ctx.spawn(shop.double, next(numbers))))

    told = "the call 'spawn:double' is recorded with other arguments"

    async def main() -> None:
        async with shop.ff, one_slot(shop.ff):
            run = await shop.ff.submit(parent)
            if on_mismatch == "fail":
                with pytest.raises(RunFailed) as caught:
                    await within(run.result())
                assert caught.value.category == "journal_mismatch"
                assert told in caught.value.reason
                return

            async def is_held() -> bool:
                return await run.state() is PublicState.SUSPENDED

            await until(is_held)
            assert told in (await run.explain()).summary
            assert (await run.info()).retry_count == 0

    asyncio.run(main())
    assert shop.calls == [1]


def test_a_child_with_changed_options_is_still_the_same_child(shop: Shop) -> None:
    priorities = iter([1, 2])

    @shop.ff.task
    async def parent(ctx: Context) -> list[int]:
        chosen = shop.double.options(priority=next(priorities))  # as after a deployment
        return await ctx.gather(*await ctx.spawn_many(chosen, [1, 2]))

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            assert await within((await shop.ff.submit(parent)).result()) == [2, 4]

    asyncio.run(main())
    assert sorted(shop.calls) == [1, 2]


def test_cancelling_a_parent_cancels_its_children(shop: Shop) -> None:
    children: list[Child[Any]] = []

    @shop.ff.task
    async def parent(ctx: Context) -> list[int]:
        children[:] = await ctx.spawn_many(shop.slow, [1, 2])
        return list(await ctx.gather(*children))

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            run = await shop.ff.submit(parent)
            await waits(run)
            await run.cancel("enough")
            for child in children:
                state = shop.ff.run(child.id).state

                async def is_cancelled(state: Any = state) -> bool:
                    return await state() is PublicState.CANCELLED

                await until(is_cancelled)

    asyncio.run(main())


def test_a_sync_handler_gathers_too(shop: Shop) -> None:
    @shop.ff.task
    def parent(ctx: SyncContext) -> list[int]:
        first = ctx.spawn(shop.double, 1)
        rest = ctx.spawn_many(shop.double, [2, 3])
        assert ctx.spawn_many(shop.double, []) == []
        return ctx.gather(first, *rest)

    async def main() -> None:
        async with shop.ff, one_slot(shop.ff):
            assert await within((await shop.ff.submit(parent)).result()) == [2, 4, 6]

    asyncio.run(main())
    assert sorted(shop.calls) == [1, 2, 3]


def test_a_child_that_is_never_gathered_runs_all_the_same(shop: Shop) -> None:
    children: list[Child[Any]] = []

    @shop.ff.task
    async def parent(ctx: Context) -> str:
        children.append(await ctx.spawn(shop.double, 4))
        assert await ctx.gather() == []
        return "done"

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            assert await within((await shop.ff.submit(parent)).result()) == "done"
            assert await within(shop.ff.run(children[0].id, shop.double).result()) == 8

    asyncio.run(main())


def test_a_spawn_with_a_lost_reply_makes_one_child(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = EngineBackend.spawn_children
    lost: list[int] = []

    async def lose(engine: EngineBackend, handle: Any, children: Any, **more: Any) -> Any:
        answer = await spawn(engine, handle, children, **more)
        if not lost:
            lost.append(1)
            raise OutcomeUnknown("the connection broke")
        return answer

    monkeypatch.setattr(EngineBackend, "spawn_children", lose)

    @shop.ff.task
    async def parent(ctx: Context) -> list[int]:
        return list(await ctx.gather(await ctx.spawn(shop.double, 3)))

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            assert await within((await shop.ff.submit(parent)).result()) == [6]

    asyncio.run(main())
    assert lost
    assert shop.calls == [3]


def test_anything_but_a_task_or_a_child_is_refused(shop: Shop) -> None:
    told: list[str] = []

    @shop.ff.task
    async def parent(ctx: Context) -> None:
        for wrong in (
            lambda: ctx.spawn("double", 1),  # type: ignore[arg-type]
            lambda: ctx.spawn(shop.double, "x"),  # type: ignore[arg-type]
            lambda: ctx.spawn(shop.double.options(key="k"), 1),
            lambda: ctx.gather("x"),  # type: ignore[call-overload]
        ):
            try:
                await wrong()
            except InvalidInput as error:
                told.append(error.detail)

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            await within((await shop.ff.submit(parent)).result())

    asyncio.run(main())
    assert [each.split(";")[0] for each in told] == [
        "task: 'double' is not a task",
        "double: n: Expected `int`, got `str`",
        "double: key= is not for children",
        "gather: 'x' is no coroutine, step call or child",
    ]
    assert shop.calls == []


def test_a_worker_that_takes_over_finds_the_children_of_the_lost_one(durable_url: str) -> None:
    shop = Shop(durable_url)
    first = asyncio.Event()
    hang = True
    seen: list[str] = []

    @shop.ff.task
    async def parent(ctx: Context) -> list[int]:
        child = await ctx.spawn(shop.double, 3)
        seen.append(child.id)
        if hang:
            first.set()
            await asyncio.sleep(60)
        return list(await ctx.gather(child))

    async def main() -> None:
        nonlocal hang
        async with shop.ff, working(shop.ff, drain_timeout="0s"):
            run = await shop.ff.submit(parent)
            await within(first.wait())
            hang = False
            engine = await shop.ff.start()
            await engine.revoke_lease(execution_id=run.id, reason="lost")
            assert await within(run.result()) == [6]

    asyncio.run(main())
    assert len(set(seen)) == 1
    assert shop.calls == [3]
