"""What handlers show while they run, and the readers that follow it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import (
    Context,
    Fabric,
    Fatal,
    Frame,
    InvalidInput,
    PublicState,
    Retry,
    SyncContext,
    signal,
)
from flowfabric.api.backend import EngineBackend
from flowfabric.errors import OutcomeUnknown, RetentionLimitExceeded, StoreUnavailable
from flowfabric.model.stream import FrameKind
from flowfabric.model.words import StreamMode
from tests.sdk.workshop import until, within, working


async def read(run: Any, **options: Any) -> list[Frame]:
    """Every frame until the run has ended."""
    return [frame async for frame in run.stream(**options)]


def test_a_reader_gets_what_the_handler_shows(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk(ctx: Context, words: int) -> str:
        await ctx.emit("hello", "greeting", correlation_id="c")
        await ctx.emit(b"\xff\x00", kind="blob")
        await ctx.emit({"n": 1})
        for number in range(words):
            await ctx.emit(f"{number} ", "token")
        return "done"

    async def check() -> None:
        async with ff, working(ff):
            run = await talk.submit(1_200)
            frames = await within(read(run))
            assert await within(run.result()) == "done"
        first, second, third, *tokens = frames
        assert (first.value, first.frame_type, first.correlation_id) == ("hello", "greeting", "c")
        assert (second.value, second.kind) == (b"\xff\x00", FrameKind.BLOB)
        assert third.value == {"n": 1}
        assert [each.text for each in tokens] == [f"{number} " for number in range(1_200)]

    asyncio.run(check())


def test_a_sync_handler_and_a_sync_reader(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def talk(ctx: SyncContext) -> int:
        ctx.emit("a")
        version = ctx.summary({"step": 1})
        ctx.emit("b")
        return version

    async def check() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            assert [each.value for each in await within(read(run))] == ["a", {"step": 1}, "b"]
            assert await within(run.result()) == 1
            assert await run.summary() == {"step": 1}

    asyncio.run(check())


def test_a_reader_without_asyncio(durable_url: str) -> None:
    ff = Fabric(durable_url)

    @ff.task
    async def talk(ctx: Context) -> None:
        await ctx.emit("a")
        await ctx.emit("b")
        await ctx.summary({"n": 2})

    async def work() -> str:
        async with ff, working(ff):
            run = await talk.submit()
            await within(run.result())
            return run.id

    run = ff.sync.run(asyncio.run(work()))
    try:
        assert [each.text for each in run.stream()] == ["a", "b", '{"n":2}']
        assert run.summary() == {"n": 2}
    finally:
        ff.sync.close()


def test_frames_of_a_failed_attempt_and_of_the_next_one(url: str) -> None:
    """Those right before the failure too."""
    ff = Fabric(url)

    @ff.task(retries=2)
    async def talk(ctx: Context) -> None:
        await ctx.emit(f"attempt {ctx.attempt}")
        if ctx.attempt < 3:
            raise Retry(after="1ms")

    async def check() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            frames = await within(read(run))
        assert [(each.text, each.attempt_index) for each in frames] == [
            ("attempt 1", 0),
            ("attempt 2", 1),
            ("attempt 3", 2),
        ]

    asyncio.run(check())


def test_frames_before_a_suspension_and_after_it(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk(ctx: Context) -> None:
        if not ctx.resumed:
            await ctx.emit("before")
            await ctx.suspend(signal("go"))
        await ctx.emit("after")

    async def check() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            seen: list[str] = []
            async for frame in run.stream():
                seen.append(frame.text)
                if frame.text == "before":
                    await within(_waits(run))
                    await ff.signal(run, "go")
            assert seen == ["before", "after"]

    asyncio.run(check())


async def _waits(run: Any) -> None:
    async def is_suspended() -> bool:
        return await run.state() is PublicState.SUSPENDED

    await until(is_suspended)


def test_a_reader_goes_on_after_the_last_frame_it_saw(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk(ctx: Context) -> None:
        for number in range(10):
            await ctx.emit(str(number))

    async def check() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            seen: list[Frame] = []
            async for frame in run.stream():
                seen.append(frame)
                if len(seen) == 4:
                    break
            seen += await within(read(run, after=seen[-1].cursor))
        assert [each.text for each in seen] == [str(number) for number in range(10)]

    asyncio.run(check())


def test_best_effort_frames_are_for_readers_that_want_them(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk(ctx: Context) -> None:
        await ctx.emit("live", ttl="1m")
        await ctx.emit("kept")

    async def check() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            await within(run.result())
            live, kept = await within(read(run))
            assert (live.mode, kept.mode) == (StreamMode.BEST_EFFORT, StreamMode.DURABLE)
            assert [each.text for each in await read(run, best_effort=False)] == ["kept"]

    asyncio.run(check())


def test_a_summary_merges_and_grows(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk(ctx: Context) -> list[int]:
        return [
            await ctx.summary({"step": "read", "draft": "x"}),
            await ctx.summary({"draft": None}),
            await ctx.summary(append={"answer": "Hel", "m/tools": [1]}),
            await ctx.summary(append={"answer": "lo"}),
        ]

    async def check() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            assert await within(run.result()) == [1, 2, 3, 4]
            assert await run.summary() == {"step": "read", "answer": "Hello", "m": {"tools": [1]}}

    asyncio.run(check())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda ctx: ctx.emit("x" * 65_537), RetentionLimitExceeded),
        (lambda ctx: ctx.emit(object()), InvalidInput),
        (lambda ctx: ctx.emit("x", mode="summary"), InvalidInput),
        (lambda ctx: ctx.emit("x", mode="for ever"), InvalidInput),
        (lambda ctx: ctx.emit("x", kind="song"), InvalidInput),
        (lambda ctx: ctx.summary(), InvalidInput),
        (lambda ctx: ctx.summary({}, append={}), InvalidInput),
        (lambda ctx: ctx.summary(append={"n": 1}), InvalidInput),
    ],
)
def test_what_cannot_be_shown_is_refused_in_the_handler(call: Any, error: type[Exception]) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def talk(ctx: Context) -> str:
        await ctx.emit("before")
        try:
            await call(ctx)
        except error:
            await ctx.emit("after")
            return "refused"
        raise Fatal("accepted")

    async def check() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            assert await within(run.result()) == "refused"
            assert [each.text for each in await within(read(run))] == ["before", "after"]

    asyncio.run(check())


@pytest.mark.parametrize("lost", [StoreUnavailable, OutcomeUnknown])
def test_a_lost_reply_loses_no_frame_and_doubles_none(
    durable_url: str, lost: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other append loses its reply, after it was written or before."""
    ff = Fabric(durable_url)
    calls = 0

    @ff.task
    async def talk(ctx: Context) -> None:
        for number in range(50):
            await ctx.emit(str(number))
            await asyncio.sleep(0)

    async def check() -> None:
        nonlocal calls
        engine: EngineBackend = await ff.start()
        plain = engine.append_frames

        async def faulty(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls % 2:
                if lost is OutcomeUnknown:
                    await plain(*args, **kwargs)
                raise lost("the reply was lost")
            return await plain(*args, **kwargs)

        monkeypatch.setattr(engine, "append_frames", faulty)
        async with ff, working(ff):
            run = await talk.submit()
            await within(run.result())
            texts = [each.text for each in await within(read(run))]
        assert calls
        assert texts == [str(number) for number in range(50)]

    asyncio.run(check())


def test_a_drained_handler_keeps_what_it_showed(durable_url: str) -> None:
    """The execution is given back; the frames stay."""
    ff = Fabric(durable_url)
    began = asyncio.Event()

    @ff.task
    async def talk(ctx: Context) -> None:
        await ctx.emit("shown")
        began.set()
        await asyncio.sleep(3_600)

    async def check() -> None:
        async with ff:
            run = await talk.submit()
            async with working(ff, drain_timeout="10ms"):
                await within(began.wait())
            page = await (await ff.start()).read_execution_stream(execution_id=run.id)
            assert [each.text for each in page.frames] == ["shown"]

    asyncio.run(check())
