"""Trouble of the store never fails user work, nor throws a finished result away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowfabric import (
    Context,
    Fabric,
    OutcomeUnknown,
    RunFailed,
    StoreUnavailable,
    SyncContext,
)
from flowfabric.errors import (
    ConfigurationMismatch,
    InvalidInput,
    KeyringEmpty,
    RetryExhausted,
    SchemaMismatch,
    StaleLease,
    StoreCorrupt,
    StoreError,
    StoreReplaced,
)
from flowfabric.stores.base import StoreConflict
from flowfabric.trouble import Trouble, trouble
from tests.sdk.workshop import until, working
from tests.support.inner import inner

PASSING = [
    StoreUnavailable("the server is starting up"),
    OutcomeUnknown("cut off"),
    RetryExhausted("5 tries"),
    ConnectionResetError("reset"),
]
UNCLEAR = [StoreError("something odd"), ValueError("a driver's own")]


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        (PASSING, Trouble.PASSING),
        (UNCLEAR, Trouble.UNCLEAR),
        (
            [
                SchemaMismatch("newer"),
                ConfigurationMismatch("partitions"),
                KeyringEmpty(),
                StoreReplaced(),
                StoreCorrupt(),
            ],
            Trouble.LASTING,
        ),
        ([InvalidInput("x"), StaleLease("x")], Trouble.REFUSED),
    ],
)
def test_each_error_has_one_meaning(errors: list[Exception], kind: Trouble) -> None:
    assert {trouble(error) for error in errors} == {kind}


class Troubled:
    """An operation of an engine that fails some times; one whose answer is lost did its work."""

    def __init__(self, engine: object, name: str, error: Exception, *, times: int) -> None:
        self._operation = getattr(engine, name)
        self._error = error
        self._left = self._times = times
        setattr(engine, name, self)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._left <= 0:
            return await self._operation(*args, **kwargs)
        self._left -= 1
        if isinstance(self._error, OutcomeUnknown):
            await self._operation(*args, **kwargs)
        raise self._error

    @property
    def was_met(self) -> bool:
        """Each failure was; of an operation that did its work all the same, the first."""
        is_done = isinstance(self._error, OutcomeUnknown)
        return self._left < self._times if is_done else self._left <= 0


def each(error: Exception) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", PASSING + UNCLEAR, ids=each)
@pytest.mark.parametrize("ends", ["complete_many", "fail_many", "delay"])
def test_an_end_is_reported_in_spite_of_any_trouble(ends: str, error: Exception) -> None:
    ff = Fabric("memory://")
    visits = 0

    @ff.task
    async def work(ctx: Context) -> str:
        nonlocal visits
        visits += 1
        if ends == "fail_many":
            raise ValueError("my own")
        if ends == "delay" and not ctx.is_resumed:
            await ctx.delay("10ms")
        return "done"

    async def main() -> None:
        async with ff:
            troubled = Troubled(await ff.start(), ends, error, times=4)
            async with working(ff):
                run = await ff.submit(work)
                if ends == "fail_many":
                    with pytest.raises(RunFailed, match="my own"):
                        await run.result("60s")
                else:
                    assert await run.result("60s") == "done"
                assert troubled.was_met
                assert visits == (2 if ends == "delay" else 1)
                info = await run.info()
                assert (info.total_attempt_count, info.reclaim_count) == (1, 0)

    asyncio.run(main())


def test_a_report_that_fails_for_good_is_given_up_when_its_lease_has_lapsed(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ff = Fabric(url)

    @ff.task
    async def work() -> str:
        return "done"

    async def main() -> None:
        async with ff:
            engine = await ff.start()
            complete_many = engine.complete_many
            Troubled(engine, "complete_many", StoreError("something odd"), times=1_000_000)
            async with working(ff, lease_ttl="1s"):
                run = await ff.submit(work)

                async def is_given_up() -> bool:
                    return any(
                        "the report was refused" in each.getMessage() for each in caplog.records
                    )

                await until(is_given_up)
                engine.complete_many = complete_many  # type: ignore[method-assign]
                assert await run.result("60s") == "done"
                assert (await run.info()).total_attempt_count > 1

    with caplog.at_level(logging.WARNING, "flowfabric.worker"):
        asyncio.run(main())


def test_a_report_in_trouble_holds_no_other_up() -> None:
    ff = Fabric("memory://")
    spoiled: set[str] = set()

    @ff.task
    async def work(number: int) -> int:
        return number

    async def main() -> None:
        async with ff:
            engine = await ff.start()
            complete_many = engine.complete_many

            async def some_fail(requests: Any) -> Any:
                answers = await complete_many(
                    [each for each in requests if each.handle.execution_id not in spoiled]
                )
                rest = iter(answers)
                error = RetryExhausted("somebody holds the row")
                return [
                    error if each.handle.execution_id in spoiled else next(rest)
                    for each in requests
                ]

            engine.complete_many = some_fail  # type: ignore[method-assign]
            first = await ff.submit(work, 0)
            spoiled.add(first.id)
            async with working(ff):
                for number in range(1, 20):
                    async with asyncio.timeout(4):  # less than the longest pause of an outage
                        assert await (await ff.submit(work, number)).result() == number
                spoiled.clear()
                assert await first.result("60s") == 0
            assert (await first.info()).total_attempt_count == 1

    asyncio.run(main())


async def spends(ctx: Context) -> None:
    async with ctx.spend("gpt", tokens=10) as spend:
        spend.actual(tokens=7)


async def reports(ctx: Context) -> None:
    await ctx.report_usage("gpt", tokens=7)


async def shows(ctx: Context) -> None:
    await ctx.progress(50, "half way")


async def waits_for_an_instant(ctx: Context) -> None:
    await ctx.delay(datetime.now(UTC) - timedelta(seconds=1))


async def suspends(ctx: Context) -> None:
    if not ctx.resumed:
        await ctx.suspend(timeout="10ms")


async def hands_out_a_link(ctx: Context) -> None:
    await ctx.waitpoint("reply")


async def has_children(ctx: Context) -> None:
    await ctx.gather(await ctx.spawn(CHILD[0]))


CHILD: list[Any] = []
CALLS: list[tuple[Callable[[Context], Any], str]] = [
    (spends, "reserve_budget"),
    (spends, "settle_budget"),
    (reports, "report_usage"),
    (shows, "progress"),
    (waits_for_an_instant, "server_time_ms"),
    (suspends, "suspend"),
    (hands_out_a_link, "create_waitpoint"),
    (has_children, "spawn_children"),
    (has_children, "read_outcomes"),
    (has_children, "wait_children"),
]


@pytest.mark.parametrize("error", PASSING + UNCLEAR, ids=each)
@pytest.mark.parametrize(("call", "operation"), CALLS)
def test_no_call_of_a_handler_fails_by_passing_trouble(
    call: Callable[[Context], Any], operation: str, error: Exception
) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def child() -> None: ...

    @ff.task
    async def work(ctx: Context) -> str:
        await call(ctx)
        return "done"

    CHILD[:] = [child]

    async def main() -> None:
        async with ff:
            await ff.create_budget("gpt", hard={"tokens": 10})
            run = await ff.submit(work)
            troubled = Troubled(await ff.start(), operation, error, times=2)
            async with working(ff):
                assert await run.result("60s") == "done"
            assert troubled.was_met or operation == "progress"  # which is skipped, not repeated
            info = await run.info()
            assert (info.total_attempt_count, info.reclaim_count) == (1, 0)
            if operation.endswith(("_budget", "_usage")):
                assert (await ff.budget("gpt")).usage == {"tokens": 7}

    asyncio.run(main())


def test_a_sync_handler_waits_trouble_out_too() -> None:
    ff = Fabric("memory://")

    @ff.task
    def work(ctx: SyncContext) -> str:
        ctx.delay(datetime.now(UTC) - timedelta(seconds=1))
        with ctx.spend("gpt", tokens=10):
            return "done"

    async def main() -> None:
        async with ff:
            await ff.create_budget("gpt", hard={"tokens": 10})
            engine = await ff.start()
            run = await ff.submit(work)
            for name in ("server_time_ms", "reserve_budget", "settle_budget"):
                Troubled(engine, name, StoreUnavailable("down"), times=2)
            async with working(ff):
                assert await run.result("60s") == "done"

    asyncio.run(main())


def test_a_call_that_fails_for_good_fails_the_handler_after_some_tries() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def work(ctx: Context) -> None:
        await ctx.report_usage("gpt", tokens=1)

    async def main() -> None:
        async with ff:
            await ff.create_budget("gpt", hard={"tokens": 10})
            odd = StoreError("something odd")
            Troubled(await ff.start(), "report_usage", odd, times=1_000_000)
            async with working(ff):
                with pytest.raises(RunFailed, match="something odd"):
                    await (await ff.submit(work)).result("60s")

    asyncio.run(main())


@pytest.mark.parametrize("call", ["claim", "register_worker", "renew_many"])
def test_a_fault_of_our_own_is_told_with_its_traceback(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried on and on like an outage, but its text alone helps nobody."""
    ff = Fabric("memory://")
    made: list[Troubled] = []

    async def was_met() -> bool:
        return made[0].was_met

    @ff.task
    async def work() -> None:
        if call == "renew_many":
            await until(was_met)

    async def main() -> None:
        async with ff:
            made.append(Troubled(await ff.start(), call, KeyError("lane"), times=3))
            async with working(ff, lease_ttl="1s"):
                await (await ff.submit(work)).result("60s")
                await until(was_met)

    with caplog.at_level(logging.WARNING, "flowfabric.worker"):
        asyncio.run(main())
    assert any(line.exc_info for line in caplog.records)


def test_a_read_that_collided_is_read_again() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def work() -> None: ...

    async def main() -> None:
        async with ff:
            run = await ff.submit(work)
            store = inner(await ff.start()).store
            Troubled(store, "read", StoreConflict("busy"), times=3)
            await run.info()

    asyncio.run(main())
