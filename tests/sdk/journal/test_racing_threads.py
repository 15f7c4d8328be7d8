"""A sync handler waits for the first of several, as an async one does."""

from __future__ import annotations

import asyncio
from typing import Any

from flowfabric import EntryKind, Fabric, InvalidInput, PublicState, SyncContext
from tests.sdk.journal.bench import journal, worked
from tests.sdk.workshop import until


def test_a_step_wins_in_a_thread_and_wins_again_in_another_run(url: str) -> None:
    ff, ran = Fabric(url), []

    @ff.step
    def ask(model: str) -> str:
        ran.append(model)
        return model.upper()

    @ff.step
    async def ask_later(model: str) -> str:
        ran.append(model)
        await asyncio.sleep(3_600)
        return model

    @ff.task(retries=1, backoff="1ms")
    def race(ctx: SyncContext) -> list[Any]:
        first = ctx.first_of(ctx.later.sleep("1h"), ask.later("sun"))
        second = ctx.first_of(ask_later.later("moon"), ctx.step.later("now", lambda: 7))
        if ctx.attempt == 1:
            raise ValueError("run it again")
        return [*first, *second, ctx.step("last", lambda: 8)]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(race)
        assert await run.result("20s") == [1, "SUN", 1, 7, 8]
        assert sorted(ran) == ["moon", "sun"]
        kinds = [each.kind for each in await journal(ff, run)]
        assert kinds.count(EntryKind.WINNER) == 2

    worked(ff, main)


def test_threads_race_over_waits_without_a_worker(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def child(ctx: SyncContext) -> str:
        ctx.sleep("30d")
        return "child"

    @ff.task(mailboxes={"orders": str})
    def wait(ctx: SyncContext) -> list[Any]:
        slow = ctx.spawn(child)
        first = ctx.first_of(
            ctx.later.wait_for("reply", str), ctx.later.sleep("30d"), slow, losers="cancel"
        )
        second = ctx.first_of(ctx.later.sleep("30d"), ctx.later.receive("orders"))
        return [*first, second[0], second[1].value]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(wait)

        async def waits_at(place: str) -> bool:
            if await run.state() is not PublicState.SUSPENDED:
                return False
            return place in str(await run.explain())

        await until(lambda: waits_at("reply"))
        assert (await run.info()).current_lease is None
        await ff.signal(run, "reply", payload="hello")
        await until(lambda: waits_at("orders"))
        await run.send("orders", "tea")
        assert await run.result("20s") == [0, "hello", 1, "tea"]

    worked(ff, main)


def test_what_a_thread_gets_as_it_ends_keeps_its_order(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def child() -> str:
        return "child"

    @ff.task(retries=1, backoff="1ms")
    def wait(ctx: SyncContext) -> list[Any]:
        told = []
        for name, done in ctx.as_completed(
            a=ctx.step.later("quick", lambda: 1), b=ctx.spawn(child), c=ctx.later.sleep("5ms")
        ):
            told.append((name, done.result()))
        if ctx.attempt == 1:
            ctx.step("told", lambda: [name for name, _ in told])
            raise ValueError("run it again")
        return [told, ctx.step("told", list)]

    @ff.task
    def leave(ctx: SyncContext) -> str:
        for name, _ in ctx.as_completed(a=ctx.later.sleep("30d"), b=ctx.step.later("b", int)):
            return name
        return "none"

    async def main(ff: Fabric) -> None:
        told, names = await (await ff.submit(wait)).result("20s")
        assert [name for name, _ in told] == names
        assert dict(told) == {"a": 1, "b": "child", "c": None}
        assert await (await ff.submit(leave)).result("20s") == "b"

    worked(ff, main)


def test_threads_gather_waits_beside_calls(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def wait(ctx: SyncContext) -> Any:
        return ctx.gather(
            ctx.later.wait_for("k", str, timeout="1ms", default="none"),
            ctx.step.later("b", lambda: 2),
            ctx.later.sleep("1ms"),
        )

    @ff.task
    def races(ctx: SyncContext) -> list[Any]:
        """Each thread of a map waits for branches of its own."""

        def race(number: int) -> tuple[int, Any]:
            return ctx.first_of(ctx.later.sleep("30d"), ctx.later.sleep(f"{1_100 + number}ms"))

        return ctx.map(race, range(3))

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(wait)).result("20s") == ["none", 2, None]
        assert await (await ff.submit(races)).result("20s") == [[1, None]] * 3

    worked(ff, main)


def test_what_would_block_the_loop_is_refused(url: str) -> None:
    ff = Fabric(url)

    async def another(ctx: SyncContext) -> None:
        ctx.sleep("1s")

    @ff.task
    def race(ctx: SyncContext) -> list[str]:
        said = []
        for call in (
            lambda: ctx.first_of(3),
            ctx.first_of,
            lambda: ctx.first_of(ctx.later.sleep("1ms"), losers="kill"),
            lambda: list(ctx.as_completed(a="x")),
            lambda: ctx.first_of(ctx.later.sleep("soon")),
            lambda: ctx.later.sleep_until("soon"),  # type: ignore[arg-type]
        ):
            try:
                call()
            except InvalidInput as error:
                said.append(error.detail.partition(":")[0])
        coroutine = another(ctx)
        try:
            ctx.first_of(coroutine)
        except InvalidInput as error:
            said.append(error.detail.partition(":")[0])
        coroutine.close()
        return said

    async def main(ff: Fabric) -> None:
        told = await (await ff.submit(race)).result("20s")
        named = ["first_of", "first_of", "losers", "as_completed", "sleep", "sleep_until"]
        assert told == [*named, "first_of"]

    worked(ff, main)
