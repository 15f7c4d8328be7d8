from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowfabric import (
    Context,
    Fabric,
    Fatal,
    InvalidInput,
    PublicState,
    Retry,
    RunCancelled,
    RunExpired,
    RunFailed,
    SyncContext,
    Worker,
)
from flowfabric.errors import ValidationError
from tests.sdk.workshop import until, within, working


class HTTPError(Exception):
    pass


class NotReachable(HTTPError):
    pass


def test_a_retried_execution_sees_its_attempts_and_one_idempotency_key(url: str) -> None:
    ff = Fabric(url)
    seen: list[tuple[int, int, str, str]] = []

    @ff.task(retries=2)
    async def flaky(ctx: Context) -> str:
        seen.append((ctx.attempt, ctx.attempt_index, ctx.idempotency_key, ctx.attempt_key))
        if ctx.attempt < 3:
            raise Retry(after=0, reason="not yet")
        return "done"

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(flaky)
            assert await run.result("60s") == "done"
            assert [each[:2] for each in seen] == [(1, 0), (2, 1), (3, 2)]
            assert {each[2] for each in seen} == {run.id}
            assert len({each[3] for each in seen}) == 3

    asyncio.run(main())


def test_a_fatal_error_is_not_retried(url: str) -> None:
    ff = Fabric(url)

    @ff.task(retries=5, backoff=0)
    def closed() -> None:
        raise Fatal("the account is closed")

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(closed)
            with pytest.raises(RunFailed, match="closed: the account is closed") as caught:
                await run.result("60s")
            assert caught.value.reason == "the account is closed"
            assert (caught.value.category, caught.value.execution_id) == ("Fatal", run.id)
            assert (await run.info()).total_attempt_count == 1

    asyncio.run(main())


def test_a_failure_tells_what_and_where_without_the_workers_frames(url: str) -> None:
    ff = Fabric(url)

    def divide(number: int) -> float:
        return 1 / number

    @ff.task(retries=1, backoff=0)
    async def compute(number: int) -> float:
        return divide(number)

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(compute, 0)
            with pytest.raises(RunFailed) as caught:
                await run.result("60s")
            lines = caught.value.reason.splitlines()
            assert lines[0] == "ZeroDivisionError: division by zero"
            assert "in compute" in lines[1]
            assert "in divide" in caught.value.reason
            assert "handlers.py" not in caught.value.reason
            assert caught.value.category == "ZeroDivisionError"
            assert (await run.info()).total_attempt_count == 2

    asyncio.run(main())


def test_retry_on_names_exceptions_and_covers_their_subclasses(url: str) -> None:
    ff = Fabric(url)

    @ff.task(retries=2, retry_on=(HTTPError, "KeyError"), backoff=0)
    async def fetch(kind: str) -> None:
        raise {"sub": NotReachable, "named": KeyError, "other": ValueError, "wish": Retry}[kind]()

    async def main() -> None:
        async with ff, working(ff):
            for kind, attempts, category in (
                ("sub", 3, "HTTPError"),
                ("named", 3, "KeyError"),
                ("other", 1, "ValueError"),
                ("wish", 3, "Retry"),
            ):
                run = await ff.submit(fetch, kind)
                with pytest.raises(RunFailed) as caught:
                    await run.result("60s")
                info = await run.info()
                assert (info.total_attempt_count, caught.value.category) == (attempts, category)

    asyncio.run(main())


def test_arguments_that_no_longer_fit_fail_for_good(url: str) -> None:
    ff = Fabric(url)

    @ff.task(retries=5, backoff=0)
    def paint(count: int) -> None: ...

    async def main() -> None:
        async with ff, working(ff):
            engine = await ff.start()
            for payload, encoding in ((b'{"count":"two"}', "json"), (b"{", "json"), (b"", "yaml")):
                created = await engine.create_execution(
                    execution_kind="paint",
                    input_payload=payload,
                    payload_encoding=encoding,
                    policy=paint.policy,
                )
                run = ff.run(created.execution_id, paint)
                with pytest.raises(RunFailed) as caught:
                    await run.result("60s")
                assert caught.value.category == "Fatal"
                assert (await run.info()).total_attempt_count == 1

    asyncio.run(main())


def test_a_result_that_cannot_be_kept_fails_the_run(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def give(kind: str) -> Any:
        return object() if kind == "object" else "x" * 2_000_000

    async def main() -> None:
        async with ff, working(ff):
            with pytest.raises(RunFailed, match="cannot be written as JSON"):
                await (await ff.submit(give, "object")).result("60s")
            with pytest.raises(RunFailed, match="the result was refused") as caught:
                await (await ff.submit(give, "large")).result("60s")
            assert caught.value.category == "PayloadTooLarge"

    asyncio.run(main())


def test_a_handler_that_exits_or_cancels_itself_fails_and_the_worker_goes_on(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def leave(how: str) -> str:
        if how == "exit":
            raise SystemExit(3)
        if how == "cancel":
            raise asyncio.CancelledError
        return how

    async def main() -> None:
        async with ff, working(ff):
            for how, category in (("exit", "SystemExit"), ("cancel", "CancelledError")):
                with pytest.raises(RunFailed) as caught:
                    await (await ff.submit(leave, how)).result("60s")
                assert caught.value.category == category
            assert await (await ff.submit(leave, "well")).result("60s") == "well"

    asyncio.run(main())


def test_a_parked_handler_runs_again_from_the_top_in_the_same_attempt(url: str) -> None:
    ff = Fabric(url)
    visits: list[tuple[bool, int]] = []
    instant = datetime.now(UTC)

    @ff.task
    async def wait(ctx: Context) -> str:
        visits.append((ctx.is_resumed, ctx.attempt))
        if not ctx.is_resumed:
            await ctx.delay("50ms")
        return "later"

    @ff.task
    def wait_in_a_thread(ctx: SyncContext) -> str:
        nonlocal instant
        visits.append((ctx.is_resumed, ctx.attempt))
        while not ctx.is_resumed:  # again, if the machine was so slow that it had passed already
            instant = datetime.now(UTC) + timedelta(milliseconds=100)
            ctx.delay(instant)
        ctx.delay(instant)  # has passed: returns
        return "later"

    async def main() -> None:
        async with ff, working(ff):
            for task in (wait, wait_in_a_thread):
                visits.clear()
                run = await ff.submit(task)
                assert await run.result("60s") == "later"
                assert visits == [(False, 1), (True, 1)]
                assert (await run.info()).total_attempt_count == 1

    asyncio.run(main())


def test_a_failure_may_have_an_exception_for_its_reason(url: str) -> None:
    """What is no text was refused by the worker itself, which then ran the handler again."""
    ff = Fabric(url)

    @ff.task(retries=1)
    async def close() -> None:
        try:
            raise ValueError("the account is closed")
        except ValueError as error:
            failure = Fatal(error)
        raise failure

    async def main() -> None:
        async with ff, working(ff):
            with pytest.raises(RunFailed) as failed:
                await (await ff.submit(close)).result("60s")
            assert failed.value.reason == "ValueError: the account is closed"
            assert failed.value.fields["attempts"] == 1

    asyncio.run(main())


def test_progress_is_visible_while_the_handler_runs(url: str) -> None:
    ff = Fabric(url)
    go_on = threading.Event()

    @ff.task
    async def read(ctx: Context) -> None:
        await ctx.progress(10, "reading")
        await asyncio.to_thread(go_on.wait, 60)

    @ff.task
    def write(ctx: SyncContext) -> None:
        ctx.progress(10, "reading")
        ctx.progress(20)
        go_on.wait(60)

    async def main() -> None:
        async with ff, working(ff):
            for task, percent in ((read, 10), (write, 20)):
                go_on.clear()
                run = await ff.submit(task)

                async def shown(run: Any = run, percent: int = percent) -> bool:
                    info = await run.info()
                    return (info.progress_pct, info.progress_message) == (percent, "reading")

                await until(shown)
                go_on.set()
                await run.result("60s")

    asyncio.run(main())


def test_cancelling_a_run_interrupts_its_handler(url: str) -> None:
    ff = Fabric(url)
    started, ended = asyncio.Event(), asyncio.Event()
    flags: list[bool] = []

    @ff.task
    async def endless(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            flags.append(ctx.cancelled)
            ended.set()

    async def main() -> None:
        async with ff, working(ff, lease_ttl="10m"):  # only the hint can be this quick
            run = await ff.submit(endless)
            await within(started.wait())
            await run.cancel("no longer needed")
            await within(ended.wait())
            assert flags == [True]
            with pytest.raises(RunCancelled, match="no longer needed") as caught:
                await run.result("60s")
            assert caught.value.reason == "no longer needed"
            await run.cancel("again")

    asyncio.run(main())


def test_cancelling_from_another_process_interrupts_the_handler(durable_url: str) -> None:
    ff, elsewhere = Fabric(durable_url), Fabric(durable_url)
    started, ended = asyncio.Event(), asyncio.Event()

    @ff.task
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def main() -> None:
        async with ff, elsewhere, working(ff, lease_ttl="2s"):
            run = await ff.submit(endless)
            await within(started.wait())
            await elsewhere.run(run.id).cancel()
            await within(ended.wait())
            assert await run.state() is PublicState.CANCELLED

    asyncio.run(main())


def test_cancelling_a_run_sets_the_flag_of_its_thread(url: str) -> None:
    ff = Fabric(url)
    started, ended = threading.Event(), threading.Event()

    @ff.task
    def endless(ctx: SyncContext) -> None:
        started.set()
        assert ctx.wait_cancelled(60)
        ended.set()
        ctx.raise_if_cancelled()

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(endless)
            await within(asyncio.to_thread(started.wait))
            await run.cancel()
            await within(asyncio.to_thread(ended.wait))
            assert await run.state() is PublicState.CANCELLED

    asyncio.run(main())


def test_sync_tasks_run_beside_each_other_and_beside_the_loop(url: str) -> None:
    ff = Fabric(url)
    meeting = threading.Barrier(3)

    @ff.task
    def meet() -> str:
        meeting.wait(60)
        return threading.current_thread().name

    @ff.task
    async def hello() -> str:
        return "hello"

    async def main() -> None:
        async with ff, working(ff, concurrency=3):
            runs = await ff.submit_many([meet.call(), meet.call()])
            assert await (await ff.submit(hello)).result("60s") == "hello"
            await asyncio.to_thread(meeting.wait, 60)
            names = {await run.result("60s") for run in runs}
            assert len(names) == 2

    asyncio.run(main())


def test_no_more_handlers_run_at_once_than_allowed(url: str) -> None:
    ff = Fabric(url)
    running: list[int] = []
    most = 0

    @ff.task
    async def count(number: int) -> None:
        nonlocal most
        running.append(number)
        most = max(most, len(running))
        await asyncio.sleep(0.005)
        running.remove(number)

    async def main() -> None:
        async with ff:
            runs = await ff.submit_many(count, range(30))
            async with working(ff, concurrency=4):
                for run in runs:
                    await run.result("60s")
            assert most == 4

    asyncio.run(main())


def test_a_lease_is_renewed_while_a_thread_blocks(url: str) -> None:
    ff = Fabric(url)
    go_on = threading.Event()

    @ff.task
    def block() -> str:
        go_on.wait(60)
        return "kept"

    async def main() -> None:
        async with ff, working(ff, lease_ttl="6s"):  # renewed after two
            run = await ff.submit(block)

            async def is_active() -> bool:
                return await run.state() is PublicState.ACTIVE

            await until(is_active)
            lease = (await run.info()).current_lease
            assert lease is not None
            first_expiry = lease.expires_at

            async def is_renewed() -> bool:
                current = (await run.info()).current_lease
                assert current is not None, "the lease was lost"
                return current.expires_at > first_expiry

            await until(is_renewed)
            go_on.set()
            assert await run.result("60s") == "kept"
            assert (await run.info()).total_attempt_count == 1

    asyncio.run(main())


def test_a_lost_lease_stops_the_handler_and_its_result_does_not_count(url: str) -> None:
    ff = Fabric(url)
    started, stopped = asyncio.Event(), asyncio.Event()

    @ff.task
    async def stubborn(ctx: Context) -> str:
        if ctx.attempt > 1:
            return "second"
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
        return "late"

    async def main() -> None:
        async with ff, working(ff, lease_ttl="6s"):
            engine = await ff.start()
            run = await ff.submit(stubborn)
            await within(started.wait())
            await engine.revoke_lease(execution_id=run.id, reason="test")
            assert await run.result("60s") == "second"
            await within(stopped.wait())
            attempts = (await engine.list_attempts(execution_id=run.id)).items
            assert [attempt.outcome for attempt in attempts] == [
                "interrupted_reclaimed",
                "ended_success",
            ]

    asyncio.run(main())


def test_progress_on_a_lost_lease_ends_the_handler(url: str) -> None:
    ff = Fabric(url)
    started, go_on, beyond = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @ff.task
    async def report(ctx: Context) -> str:
        if ctx.attempt > 1:
            return "second"
        started.set()
        await go_on.wait()
        await ctx.progress(50)
        beyond.set()
        return "late"

    async def main() -> None:
        async with ff, working(ff, lease_ttl="10m"):  # renewal cannot notice in time
            engine = await ff.start()
            run = await ff.submit(report)
            await within(started.wait())
            await engine.revoke_lease(execution_id=run.id, reason="test")
            go_on.set()
            assert await run.result("60s") == "second"
            assert not beyond.is_set()

    asyncio.run(main())


def test_an_attempt_that_runs_out_of_time_is_interrupted(url: str) -> None:
    ff = Fabric(url)
    ended = asyncio.Event()

    @ff.task(timeout="200ms")
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(endless)
            with pytest.raises(RunExpired):
                await run.result("60s")
            await within(ended.wait())

    asyncio.run(main())


def test_work_goes_only_to_a_worker_that_can_do_it(url: str) -> None:
    ff = Fabric(url)

    @ff.task(needs={"gpu"}, lane="heavy")
    async def train() -> str:
        return "trained"

    @ff.task
    async def plain() -> str:
        return "plain"

    async def main() -> None:
        async with ff:
            run = await ff.submit(train)
            async with working(ff) as worker:
                assert worker.settings.lanes == ("default", "heavy")
                assert await (await ff.submit(plain)).result("60s") == "plain"
                assert await run.state() is PublicState.WAITING
                assert (await run.explain()).missing_capabilities == ("gpu",)
            async with working(ff, capabilities=["gpu"], lanes=["heavy"]):
                assert await run.result("60s") == "trained"

    asyncio.run(main())


def test_log_lines_carry_the_execution(caplog: pytest.LogCaptureFixture) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def talk(ctx: Context) -> None:
        ctx.log.warning("hello %s", "world", extra={"mine": 1})

    async def main() -> str:
        async with ff, working(ff):
            run = await ff.submit(talk, tags={"team.name": "a"})
            await run.result("60s")
            return run.id

    with caplog.at_level(logging.WARNING, "flowfabric.task"):
        execution_id = asyncio.run(main())
    (record,) = [each for each in caplog.records if each.name == "flowfabric.task"]
    assert record.getMessage() == f"[{execution_id} #1] hello world"
    assert vars(record)["execution_id"] == execution_id
    assert vars(record)["mine"] == 1


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"lanes": "default"}, "lanes"),
        ({"lanes": []}, "lanes"),
        ({"lease_ttl": "10ms"}, "lease_ttl"),
        ({"capabilities": ["a,b"]}, "capabilities"),
        ({"poll_interval": "often"}, "poll_interval"),
    ],
)
def test_a_wrong_setting_is_refused_where_the_worker_is_made(
    settings: dict[str, Any], field: str
) -> None:
    ff = Fabric("memory://")
    with pytest.raises(InvalidInput, match="no task"):
        Worker(ff)

    @ff.task
    def paint() -> None: ...

    with pytest.raises(ValidationError) as caught:
        Worker(ff, **settings)
    assert caught.value.fields["field"] == field


def test_a_worker_with_sync_tasks_has_fewer_slots_by_default() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def paint() -> None: ...

    assert Worker(ff).settings.concurrency == 200

    @ff.task
    def carve() -> None: ...

    assert Worker(ff).settings.concurrency == 100
    assert Worker(ff, concurrency=7).settings.concurrency == 7


def test_a_finished_handler_is_freed_without_the_collector() -> None:
    """A cycle for each execution would cost a busy worker a twentieth of its time."""
    ff = Fabric("memory://")
    seen: list[weakref.ref[Any]] = []

    @ff.task
    async def work() -> None:
        seen.append(weakref.ref(asyncio.current_task()))

    async def main() -> None:
        async with ff, working(ff):
            runs = await ff.submit_many(work, [()] * 5)
            for run in runs:
                await run.result("60s")
        assert len(seen) == 5
        assert [each() for each in seen] == [None] * 5

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
