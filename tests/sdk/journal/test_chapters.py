"""A handler that begins anew: other arguments, an empty journal, the same run."""

from __future__ import annotations

import asyncio
import math
import os
from functools import partial
from typing import Any

import pytest

from flowfabric import (
    Context,
    Fabric,
    InvalidInput,
    OpenBranches,
    RunFailed,
    SyncContext,
    current_step,
    limits,
)
from flowfabric.errors import ChildrenNotEnded
from flowfabric.model.journal import EntryKind
from tests.sdk.journal.bench import attempts, journal, keys, worked
from tests.sdk.workshop import until


def test_rounds_without_end_have_a_bounded_journal(url: str, monkeypatch: Any) -> None:
    """7.1.23, its second half; `bin/soak` makes 100,000 rounds by the real limits."""
    rounds = int(os.environ.get("FF_CHAPTER_ROUNDS", "0"))
    if rounds:
        monkeypatch.setattr("tests.sdk.workshop.WAIT_S", 1_800)
    else:
        monkeypatch.setattr("flowfabric.limits.JOURNAL_ENTRIES_MAX", 60)
        monkeypatch.setattr("flowfabric.limits.JOURNAL_ENTRIES_WARN", 50)
        rounds = 2_000 if url.startswith("memory") else 300
    most = limits.JOURNAL_ENTRIES_WARN
    ff, ran = Fabric(url), []

    @ff.step(effects=False)
    async def work(n: int) -> int:
        ran.append(n)
        return n

    @ff.task
    async def handle(ctx: Context, at: int = 0, total: int = 0) -> int:
        while at < rounds:
            if ctx.should_continue:
                await ctx.continue_as_new(at, total=total)
            total += await work(at)
            at += 1
        return total

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == sum(range(rounds))
        assert ran == list(range(rounds))
        info = await run.info()
        last = math.ceil((rounds - most) / (most - 1))  # all but the first begin with an entry
        assert (info.chapter_index, info.retry_count) == (last, 0)
        read = partial((await ff.start()).read_journal, execution_id=run.id)
        for at in range(last + 1):
            assert bool((await read(chapter_index=at)).entries) is (at >= last - 1)
            assert (await read(chapter_index=at, after=most - 1)).entries == ()

    worked(ff, main)


def test_a_long_chapter_is_told_at_the_same_place_in_every_run(url: str, monkeypatch: Any) -> None:
    """A run that is answered from a long journal is not told so before the first run was."""
    monkeypatch.setattr("flowfabric.limits.JOURNAL_ENTRIES_WARN", 5)
    ff, told = Fabric(url), []
    crashes: list[int] = []

    @ff.task(retries=2, backoff="1ms")
    async def handle(ctx: Context, done: int = 0) -> int:
        for n in range(done, 12):
            told.append((n, ctx.should_continue))
            if ctx.should_continue:
                if not crashes:
                    crashes.append(n)
                    await ctx.flush()
                    raise ValueError("just before it continues")
                await ctx.continue_as_new(n)
            await ctx.step("work", abs, n)
        return n

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == 11
        first = [(n, n == 5) for n in range(6)]
        assert told[:12] == [*first, *first]

    worked(ff, main)


def test_the_run_stays_and_its_counts_begin_anew(url: str) -> None:
    ff, keys_of_steps, failed = Fabric(url), [], []

    @ff.task(retries=1, backoff="1ms")
    async def handle(ctx: Context, chapter: int = 0) -> str:
        await ctx.step.options(compare="name")("note", note)
        if chapter not in failed:
            failed.append(chapter)
            raise ValueError("once in each chapter")
        if chapter < 2:
            await ctx.continue_as_new(chapter + 1)
        return f"{chapter} {ctx.execution_id}"

    def note() -> str:
        keys_of_steps.append(current_step().idempotency_key)
        return "noted"

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle, key="mine", tags={"a.b": "c"})
        assert await run.result() == f"2 {run.id}"
        assert len(keys_of_steps) == len(set(keys_of_steps)) == 3  # 7.1.20: another of a chapter
        assert len(await attempts(ff, run)) == 6
        again = await ff.submit(handle, key="mine", tags={"a.b": "c"})
        assert again.id == run.id
        first, *_ = await journal(ff, run)
        assert (first.kind, first.key) == (EntryKind.CHAPTER, "chapter")

    worked(ff, main)


def test_a_sync_handler_continues_too(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def handle(ctx: SyncContext, left: int, *, words: list[str]) -> list[str]:
        word = ctx.step("say", lambda: f"{left}")
        if left:
            ctx.continue_as_new(left - 1, words=[*words, word])
        return [*words, word]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle, 3, words=[])
        assert await run.result() == ["3", "2", "1", "0"]
        assert await keys(ff, run) == ["chapter", "say"]

    worked(ff, main)


def test_a_step_may_be_called_chapter(url: str) -> None:
    ff = Fabric(url)

    @ff.task(retries=1, backoff="1ms")
    async def handle(ctx: Context, left: int = 1) -> int:
        found = await ctx.step("chapter", lambda: left)
        if left:
            await ctx.continue_as_new(left - 1)
        if (await ctx.step.options(retries=0)("try", lambda: ctx.attempt)) < 1:
            raise ValueError("again")
        return found

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == 0

    worked(ff, main)


def test_children_of_each_chapter_are_its_own(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def child(n: int) -> int:
        return n

    @ff.task
    async def parent(ctx: Context, left: int = 2, got: list[int] | None = None) -> list[int]:
        got = [*(got or []), await ctx.call(child, left)]
        if left:
            await ctx.continue_as_new(left - 1, got)
        return got

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(parent)).result() == [2, 1, 0]

    worked(ff, main)


def test_open_children_keep_it_from_continuing(url: str) -> None:
    ff, gate = Fabric(url), asyncio.Event()
    refused: list[bool] = []

    @ff.task
    async def child() -> None:
        await gate.wait()

    @ff.task
    async def handle(ctx: Context, word: str = "old") -> str:
        if word == "old":
            spawned = await ctx.spawn(child)
            if not refused:
                with pytest.raises(ChildrenNotEnded) as caught:
                    await ctx.continue_as_new("new")
                refused.append(caught.value.fields["children"] == [spawned.id])
                gate.set()
            await ctx.gather(spawned)
            await ctx.continue_as_new("new")
        return word

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == "new"
        assert refused == [True]

    worked(ff, main)


def test_open_branches_keep_it_from_continuing() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def handle(ctx: Context, word: str = "old") -> str:
        if word == "old":
            gate = asyncio.Event()

            async def side() -> None:
                async with ctx.branch("left"):
                    with pytest.raises(OpenBranches):  # by the branch itself
                        await ctx.continue_as_new("new")
                    await gate.wait()

            running = asyncio.create_task(side())
            await asyncio.sleep(0)
            with pytest.raises(OpenBranches):
                await ctx.continue_as_new("new")
            gate.set()
            await running
            await ctx.continue_as_new("new")
        return word

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == "new"

    worked(ff, main)


@pytest.mark.parametrize("args", [(), ("text",), (1, 2, 3)])
def test_arguments_that_do_not_fit_are_refused_at_the_call(args: tuple[Any, ...]) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def handle(ctx: Context, n: int) -> None:
        with pytest.raises(InvalidInput):
            await ctx.continue_as_new(*args)
        raise RuntimeError("as it should")

    async def main(ff: Fabric) -> None:
        with pytest.raises(RunFailed, match="as it should"):
            await (await ff.submit(handle, 1)).result()

    worked(ff, main)


def test_what_was_recorded_last_comes_with_the_chapter(url: str) -> None:
    """Nothing of it is lost, and the next chapter is answered from its own journal alone."""
    ff, ran = Fabric(url), []

    @ff.step
    async def work(n: int) -> int:
        ran.append(n)
        return n

    @ff.task
    async def handle(ctx: Context, n: int = 0) -> int:
        first = await work(n)
        if n == 0:
            await ctx.continue_as_new(1)
        await ctx.sleep("1.2s")
        return first

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)

        async def sleeps() -> bool:
            return (await run.state()).value == "suspended"

        await until(sleeps)
        engine = await ff.start()
        page = await engine.read_journal(execution_id=run.id, chapter_index=0)
        assert [each.key for each in page.entries] == ["work"]
        assert await run.result() == 1
        assert ran == [0, 1]

    worked(ff, main)
