"""What handlers publish with `ctx.state`, and what readers see of it."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from flowfabric import (
    Context,
    Fabric,
    InvalidInput,
    PublicState,
    Run,
    RunFailed,
    SyncContext,
)
from flowfabric.errors import PayloadTooLarge
from flowfabric.sdk.errors import ResultMismatch
from tests.sdk.journal.bench import journal, keys, worked
from tests.sdk.workshop import until, within, working


@dataclasses.dataclass
class Progress:
    done: int
    note: str = ""


async def shows(run: Run[Any], wanted: Any) -> None:
    """Return when it is seen."""

    async def is_seen() -> bool:
        return bool(await run.published(type(wanted)) == wanted)

    await until(is_seen)


def test_state_without_workers(url: str) -> None:
    """7.1.48: all workers stopped, and the run sleeps; on a durable store everything restarts."""

    def app() -> Fabric:
        ff = Fabric(url)

        @ff.task
        async def nap(ctx: Context) -> None:
            ctx.state = Progress(1)
            await ctx.step("work", lambda: None)
            ctx.state = Progress(2, "asleep")
            assert ctx.state == Progress(2, "asleep")
            await ctx.sleep("30d")

        return ff

    async def first(ff: Fabric) -> str:
        async with working(ff):
            run = await ff.submit(ff.tasks["nap"])

            async def is_suspended() -> bool:
                return await run.state() is PublicState.SUSPENDED

            await until(is_suspended)
        return run.id

    async def second(ff: Fabric, execution_id: str) -> None:
        run = ff.run(execution_id)
        assert await run.published(Progress) == Progress(2, "asleep")
        assert await run.published() == {"done": 2, "note": "asleep"}
        with pytest.raises(ResultMismatch, match="published"):
            await run.published(int)
        await run.cancel()
        assert await run.published(Progress) == Progress(2, "asleep")

    async def main() -> None:
        ff = app()
        async with ff:
            execution_id = await within(first(ff))
            if url.startswith("memory"):
                return await second(ff, execution_id)
        ff = app()
        async with ff:
            return await second(ff, execution_id)

    asyncio.run(main())


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_handler_without_steps_publishes_with_its_end(url: str, is_sync: bool) -> None:
    ff = Fabric(url)

    @ff.task
    async def plain(ctx: Context) -> int:
        ctx.state = Progress(0)
        await asyncio.sleep(0)
        ctx.state = Progress(1)
        return 1

    @ff.task
    def threaded(ctx: SyncContext) -> int:
        ctx.state = Progress(0)
        ctx.state = Progress(1)
        return 1

    @ff.task
    async def fails(ctx: Context) -> None:
        ctx.state = Progress(3)
        raise ValueError("no")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(threaded if is_sync else plain)
        assert await run.published() is None or (await run.published())["done"] in (0, 1)
        assert await run.result() == 1
        assert await run.published(Progress) == Progress(1)
        assert await journal(ff, run) == ()
        lost = await ff.submit(fails)
        with pytest.raises(RunFailed):
            await lost.result()
        assert await lost.published(Progress) == Progress(3)

    worked(ff, main)


def test_a_replay_publishes_nothing_and_a_fork_what_its_copies_led_to(url: str) -> None:
    ff, tops = Fabric(url), []

    @ff.task(retries=1, backoff="1ms")
    async def work(ctx: Context) -> int:
        tops.append(ctx.is_replaying)
        ctx.state = Progress(1, "old" if ctx.attempt == 1 else "replayed")
        await ctx.step("one", lambda: 1)
        ctx.state = Progress(2, "old" if ctx.attempt == 1 else "replayed")
        await ctx.wait_for("go")
        if len(tops) == 1:
            raise ConnectionError("again")
        await ctx.wait_for("on")
        return await ctx.step("two", lambda: 2)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(work)
        await shows(run, Progress(2, "old"))
        await until_signalled(ff, run, "go")
        await until_signalled(ff, run, "on")
        assert await run.result() == 2
        assert await run.published(Progress) == Progress(2, "old")
        fork = await run.fork(before="two")
        assert await fork.result() == 2
        assert (await fork.published(Progress)) == Progress(2, "old")
        assert await keys(ff, fork) == await keys(ff, run)

    worked(ff, main)


async def until_signalled(ff: Fabric, run: Run[Any], key: str) -> None:
    async def is_sent() -> bool:
        waits = await ff.waits(kind="work")
        if any(key in each.waits_for for each in waits):
            await ff.signal(run, key)
            return True
        return False

    await until(is_sent)


def test_what_cannot_be_published_is_refused_where_it_is_set(url: str) -> None:
    ff, errors = Fabric(url), []

    @ff.task
    async def wrong(ctx: Context) -> None:
        for value in (object(), "x" * 70_000):
            try:
                ctx.state = value
            except (InvalidInput, PayloadTooLarge) as error:
                errors.append((type(error), error.fields["field"]))
        assert ctx.state is None

    async def main(ff: Fabric) -> None:
        run = await ff.submit(wrong)
        await run.result()
        assert errors == [(InvalidInput, "state"), (PayloadTooLarge, "state")]
        assert await run.published() is None

    worked(ff, main)


def test_what_is_published_never_overtakes_what_it_tells_of(url: str) -> None:
    """More entries than one command carries, and the state behind half of them."""
    ff = Fabric(url)

    @ff.task
    async def busy(ctx: Context) -> int:
        for number in range(150):
            await ctx.value(f"v{number}", lambda: 1)
        ctx.state = Progress(150)
        for number in range(150, 260):
            await ctx.value(f"v{number}", lambda: 1)
        return 1

    async def main(ff: Fabric) -> None:
        run = await ff.submit(busy)
        assert await run.result() == 1
        assert await run.published(Progress) == Progress(150)
        assert len(await keys(ff, run)) == 260

    worked(ff, main)
