"""Waits in the middle of a handler: what came before them is not run again."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric import (
    Approval,
    Context,
    EntryKind,
    EntryState,
    Fabric,
    InvalidInput,
    InvalidPayload,
    PublicState,
    Run,
    RunFailed,
    SyncContext,
    UnrecordedTimeout,
    WaitTimedOut,
    all_of,
)
from tests.sdk.journal.bench import attempts, journal, keys, worked
from tests.sdk.workshop import until, within, working


@dataclasses.dataclass
class Reply:
    text: str


async def waits(run: Run[Any]) -> None:
    """Return when it is suspended."""

    async def is_suspended() -> bool:
        return await run.state() is PublicState.SUSPENDED

    await until(is_suspended)


async def resumed_early(ff: Fabric, run: Run[Any]) -> None:
    """An operator ends its wait."""
    await waits(run)
    engine = await ff.start()
    await engine.resume_execution(execution_id=run.id)


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_sleep_holds_no_worker_and_repeats_nothing(url: str, is_sync: bool) -> None:
    ff, ran = Fabric(url), []

    @ff.step
    def work(name: str) -> str:
        ran.append(name)
        return name

    @ff.task
    async def nap(ctx: Context) -> list[Any]:
        before = await ctx.step("before", work.function, "before")
        await ctx.sleep("30d")
        return [before, await ctx.step("after", work.function, "after"), ctx.attempt]

    @ff.task
    def nap_in_a_thread(ctx: SyncContext) -> list[Any]:
        before = work("before")
        ctx.sleep("30d")
        return [before, work("after"), ctx.attempt]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(nap_in_a_thread if is_sync else nap)
        await waits(run)
        info = await run.info()
        assert info.current_lease is None
        assert 29 * 86_400_000 < (info.blocked_until or 0) - info.created_at <= 31 * 86_400_000
        assert (await journal(ff, run))[-1].state is EntryState.OPEN
        await resumed_early(ff, run)
        assert await run.result() == ["before", "after", 1]
        assert {each.state for each in await journal(ff, run)} == {EntryState.OK}
        assert ran == ["before", "after"]

    worked(ff, main)


def test_a_sleep_ends_by_itself_after_a_restart_of_everything(durable_url: str) -> None:
    """7.1.31, its second half."""
    tops: list[int] = []

    def app() -> Fabric:
        ff = Fabric(durable_url)

        @ff.task
        async def nap(ctx: Context) -> str:
            tops.append(1)
            await ctx.sleep("1100ms")
            return "awake"

        return ff

    async def first() -> str:
        ff = app()
        async with ff, working(ff):
            run = await ff.submit(ff.tasks["nap"])
            await within(waits(run))
            return run.id

    async def second(execution_id: str) -> None:
        ff = app()
        async with ff, working(ff):
            assert await within(ff.run(execution_id).result()) == "awake"

    asyncio.run(second(asyncio.run(first())))
    assert len(tops) == 2


def test_a_short_sleep_keeps_the_worker(url: str) -> None:
    ff, tops = Fabric(url), []

    @ff.task(retries=1, backoff="1ms")
    async def nap(ctx: Context) -> int:
        tops.append(1)
        await ctx.sleep("1ms")
        if ctx.attempt == 1:
            raise ValueError("again")
        return ctx.attempt

    async def main(ff: Fabric) -> None:
        run = await ff.submit(nap)
        assert await run.result() == 2
        assert len(tops) == 2
        assert [each.kind for each in await journal(ff, run)] == [EntryKind.WAIT]

    worked(ff, main)


def test_wait_for_gives_the_typed_payload(url: str) -> None:
    """7.1.34: a wrong payload is refused when it is sent, and the wait goes on."""
    ff, tops = Fabric(url), []

    @ff.task(retries=1, backoff="1ms")
    async def ask(ctx: Context) -> str:
        tops.append(ctx.attempt)
        reply = await ctx.wait_for("reply", Reply)
        if ctx.attempt == 1:
            raise ValueError("again")
        return reply.text

    async def main(ff: Fabric) -> None:
        run = await ff.submit(ask)
        await waits(run)
        with pytest.raises(InvalidPayload):
            await ff.signal(run, "reply", payload={"text": 5})
        await ff.signal(run, "reply", payload={"text": "yes"})
        assert await run.result() == "yes"  # of the second attempt: it does not wait again
        assert tops == [1, 1, 2]

    worked(ff, main)


def test_an_early_signal_is_answered_without_suspending(url: str) -> None:
    ff, tops, made = Fabric(url), [], asyncio.Event()
    sent = asyncio.Event()

    @ff.task
    async def ask(ctx: Context) -> str:
        tops.append(1)
        place = await ctx.waitpoint("reply", expires="1h", expect=str)
        made.set()
        await sent.wait()
        return await ctx.wait_for(place, str)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(ask)
        await made.wait()
        await ff.signal(run, "reply", payload="early")
        sent.set()
        assert await run.result() == "early"
        assert len(tops) == 1
        assert await keys(ff, run) == ["waitpoint:reply", "wait:reply"]

    worked(ff, main)


@pytest.mark.parametrize("has_default", [False, True])
def test_a_wait_that_takes_too_long(url: str, has_default: bool) -> None:
    ff = Fabric(url)

    @ff.task
    async def ask(ctx: Context) -> str:
        if has_default:
            return await ctx.wait_for("reply", str, timeout="1ms", default="nothing")
        try:
            return await ctx.wait_for("reply", str, timeout="1ms")
        except WaitTimedOut as error:
            return error.key

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(ask)).result() == ("nothing" if has_default else "wait:reply")

    worked(ff, main)


def test_a_timeout_that_ends_the_attempt_is_waited_for_again(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def ask(ctx: Context) -> str:
        return await ctx.wait_for("reply", str, timeout="1ms" if ctx.attempt == 1 else "1h")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(ask)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert caught.value.category == "WaitTimedOut"
        await run.retry()
        await waits(run)
        await ff.signal(run, "reply", payload="late")
        assert await run.result() == "late"

    worked(ff, main)


def test_people_approve_or_reject(url: str) -> None:
    ff, seen = Fabric(url), list[Approval]()

    @ff.task
    async def publish(ctx: Context) -> bool:
        decided = await ctx.approval("publish", of=2, timeout="2d")
        seen.append(decided)
        return bool(decided)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(publish)
        await waits(run)
        for name in ("ada", "ada", "bob"):
            await ff.approve(run, "publish", by=name)
        assert await run.result() is True
        assert [each.rpartition(":")[2] for each in seen[-1].by] == ["ada", "bob"]
        other = await ff.submit(publish)
        await waits(other)
        await ff.reject(other, "publish", by="ada")
        assert await other.result() is False

    worked(ff, main)


def test_several_waits_one_after_the_other(url: str) -> None:
    """Each keeps its own signals, in every run of the handler."""
    ff, tops = Fabric(url), []

    @ff.task(retries=1, backoff="1ms")
    async def talk(ctx: Context) -> list[Any]:
        tops.append(1)
        heard = [await ctx.wait_for("word", str) for _ in range(3)]
        both = await ctx.wait(all_of("left", "right"))
        if ctx.attempt == 1:
            raise ValueError("again")
        return [heard, sorted(each.key for each in both)]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(talk)
        for word in "abc":
            await waits(run)
            await _sent(lambda word=word: ff.signal(run, "word", payload=word))  # type: ignore[misc]
        await _sent(lambda: ff.signal(run, "left"))
        await _sent(lambda: ff.signal(run, "right"))
        assert await run.result() == [["a", "b", "c"], ["left", "right"]]
        assert len(tops) == 6
        assert len(await attempts(ff, run)) == 2

    worked(ff, main)


async def _sent(send: Callable[[], Awaitable[Any]]) -> None:
    """Send as soon as there is a place for it."""

    async def is_sent() -> bool:
        try:
            await send()
        except Exception:  # noqa: BLE001 - the handler is not there yet
            return False
        return True

    await until(is_sent)


def test_first_of_has_the_same_winner_in_every_run(url: str) -> None:
    """7.1.35."""
    ff, ran = Fabric(url), []

    @ff.step
    async def quick() -> str:
        ran.append("quick")
        return "quick"

    @ff.step
    async def slow() -> str:
        ran.append("slow")
        await asyncio.Event().wait()
        return "slow"

    @ff.task(retries=1, backoff="1ms")
    async def race(ctx: Context) -> list[Any]:
        if ctx.attempt == 1:
            won = await ctx.first_of(slow(), quick(), ctx.sleep("1h"))
            raise ValueError(won)
        return list(await ctx.first_of(slow(), quick(), ctx.sleep("1h")))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(race)
        assert await run.result() == [1, "quick"]
        assert sorted(ran) == ["quick", "slow"]

    worked(ff, main)


def test_a_failure_may_win_unless_a_success_is_wanted(url: str) -> None:
    ff = Fabric(url)

    @ff.step
    async def fail() -> str:
        raise ConnectionError("no")

    async def later(ctx: Context) -> str:
        for _ in range(20):
            await asyncio.sleep(0)
        return "late"

    @ff.task
    async def race(ctx: Context, successes: bool) -> list[Any]:
        return list(await ctx.first_of(fail(), later(ctx), successes=successes))

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(race, True)).result() == [1, "late"]
        with pytest.raises(RunFailed, match="step fail"):
            await (await ff.submit(race, False)).result()

    worked(ff, main)


def test_call_gives_the_result_of_a_child(url: str) -> None:
    ff, ran = Fabric(url), []

    @ff.task
    async def double(n: int) -> int:
        return 2 * n

    @ff.step
    async def note(n: int) -> int:
        ran.append(n)
        return n

    @ff.task
    async def parent(ctx: Context) -> list[int]:
        before = await note(1)
        return [before, await ctx.call(double, 4), await note(2)]

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(parent)).result() == [1, 8, 2]
        assert ran == [1, 2]

    worked(ff, main)


def test_a_race_that_failed_is_run_again_and_a_sleep_in_it_keeps_its_end(url: str) -> None:
    ff, ran = Fabric(url), []

    @ff.step
    async def flaky() -> str:
        ran.append(1)
        if len(ran) == 1:
            raise ConnectionError("no")
        return "late"

    @ff.task(retries=1, backoff="1ms")
    async def race(ctx: Context) -> list[Any]:
        return list(await ctx.first_of(ctx.sleep("1h"), flaky()))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(race)
        assert await run.result() == [1, "late"]
        waits = [each for each in await journal(ff, run) if each.kind is EntryKind.WAIT]
        assert [(each.key, each.state) for each in waits] == [("first_of/0/sleep", EntryState.OPEN)]

    worked(ff, main)


def test_another_may_win_when_a_race_is_run_again(url: str) -> None:
    ff, ran = Fabric(url), []

    @ff.step
    async def second() -> str:
        for _ in range(20):
            await asyncio.sleep(0)
        return "second"

    async def first() -> str:
        ran.append(1)
        if len(ran) == 1:
            raise ValueError("no step, and the first to end")
        await asyncio.Event().wait()
        return "first"

    @ff.task(retries=1, backoff="1ms")
    async def race(ctx: Context) -> list[Any]:
        return list(await ctx.first_of(first(), second()))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(race)
        assert await run.result() == [1, "second"]

    worked(ff, main)


@pytest.mark.parametrize("form", ["sleep", "signal", "branches", "children", "branch"])
def test_a_wait_in_a_timeout_of_asyncio_is_refused_before_it_begins(url: str, form: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def child(ctx: Context) -> None:
        await ctx.sleep("30d")

    async def limited(ctx: Context) -> None:
        async with asyncio.timeout(3600):
            await ctx.sleep("1h")

    @ff.task
    async def wait(ctx: Context) -> str:
        try:
            if form == "branch":
                await ctx.gather(limited(ctx), ctx.sleep("2h"))
            async with asyncio.timeout(3600):
                if form == "sleep":
                    await ctx.sleep("1h")
                elif form == "signal":
                    await ctx.wait_for("reply", str)
                elif form == "children":
                    await ctx.gather(await ctx.spawn(child))
                else:
                    await ctx.gather(ctx.sleep("1h"), ctx.wait_for("reply", str))
        except UnrecordedTimeout:
            return "refused"
        return "not refused"

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(wait)).result("20s") == "refused"

    worked(ff, main)


def test_a_short_wait_that_a_timeout_cuts_off_is_refused_then(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def wait(ctx: Context) -> str:
        async with asyncio.timeout(3600):
            await ctx.sleep("1ms")  # waited in place, in time
        try:
            async with asyncio.timeout(0.01):
                await ctx.sleep("900ms")
        except UnrecordedTimeout:
            return "refused"
        return "not refused"

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(wait)).result("20s") == "refused"

    worked(ff, main)


def test_wrong_numbers_of_people_and_tasks_are_refused_by_name(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def wrong(ctx: Context) -> list[str]:
        said = []
        for call in (
            lambda: ctx.approval("publish", of=0),
            lambda: ctx.call(5),  # type: ignore[arg-type]
            lambda: ctx.undo(None),  # type: ignore[arg-type]
            lambda: ctx.transaction("debit", None, print),
            lambda: ctx.step.options(transaction=None)("debit", print),
        ):
            try:
                await call()
            except InvalidInput as error:
                said.append(error.detail.partition(":")[0])
        return said

    async def main(ff: Fabric) -> None:
        run = await ff.submit(wrong)
        assert await run.result() == ["of", "task", "task", "transaction", "transaction"]

    worked(ff, main)
