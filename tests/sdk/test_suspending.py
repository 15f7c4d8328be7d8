"""Handlers that suspend: they end there and are called again when the wait has ended."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from flowfabric import (
    Context,
    Fabric,
    InvalidInput,
    PublicState,
    ResumeCause,
    Retry,
    Run,
    RunCancelled,
    RunError,
    RunExpired,
    RunFailed,
    SyncContext,
    TargetNotSignalable,
    Waitpoint,
    Worker,
    all_of,
    any_of,
    approval,
    count,
    signal,
)
from flowfabric.api.backend import EngineBackend
from flowfabric.errors import ExecutionNotSuspended, OutcomeUnknown, SuspendConflict
from flowfabric.model.suspension import (
    AllOf,
    AnyOf,
    Count,
    CountKind,
    OperatorOnly,
    ReasonCode,
    Single,
    TimeoutOnly,
    Token,
)
from flowfabric.model.words import TimeoutBehavior
from flowfabric.sdk.context.conditions import ANYTHING
from flowfabric.sdk.context.suspending import Suspend
from tests.sdk.workshop import until, within, working

WAITPOINT = Waitpoint("0" * 36, "reply", Token("k1:secret"), "{fp:1}:x")


async def suspended(run: Run[Any]) -> None:
    """Return once the run waits."""

    async def waits() -> bool:
        return await run.state() is PublicState.SUSPENDED

    await until(waits)


# --- the handler ----------------------------------------------------------------------------------


def test_a_suspended_handler_is_called_again_with_its_signals(url: str) -> None:
    ff = Fabric(url)
    seen: list[tuple[Any, ...]] = []

    @ff.task
    async def publish(ctx: Context, topic: str) -> str:
        facts = (ctx.resumed, ctx.is_resumed, ctx.attempt, ctx.resume_cause, ctx.resumed_by)
        seen.append((*facts, ctx.continuation, len(ctx.signals)))
        if not ctx.resumed:
            await ctx.suspend("reply", continuation="written", reason="callback")
        (reply,) = ctx.signals
        return f"{topic}: {reply.name} {reply.key} {reply.source} {reply.payload}"

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(publish, "solar")
            await suspended(run)
            assert (await run.info()).blocking_reason.value == "waiting_for_callback"
            answer = await ff.signal(run, "reply", {"rows": 3}, name="done", source="service:crm")
            assert answer.effect.value == "resume_condition_satisfied"
            assert await run.result("60s") == "solar: done reply service:crm {'rows': 3}"
            assert seen == [
                (False, False, 1, None, None, None, 0),
                (True, True, 1, ResumeCause.SIGNAL, "service:crm", "written", 1),
            ]
            assert (await run.info()).total_attempt_count == 1

    asyncio.run(main())


def test_a_sync_handler_suspends_in_the_same_way(url: str) -> None:
    ff = Fabric(url)
    calls: list[bool] = []

    @ff.task
    def publish(ctx: SyncContext) -> list[str]:
        calls.append(ctx.resumed)
        if not ctx.resumed:
            ctx.suspend(approval("publish", of=2), timeout="1h")
        return [each.source for each in ctx.signals]

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(publish)
            await suspended(run)
            await ff.approve(run, "publish", by="ada")
            await ff.approve(run, "publish", by="grace")
            assert await run.result("60s") == ["operator:ada", "operator:grace"]
            assert calls == [False, True]

    asyncio.run(main())


def test_except_exception_does_not_swallow_a_suspension(url: str) -> None:
    ff = Fabric(url)
    swallowed: list[Exception] = []

    @ff.task
    async def careful(ctx: Context) -> str:
        if not ctx.resumed:
            try:
                await ctx.suspend("go")
            except Exception as error:  # noqa: BLE001 - the subject of the test
                swallowed.append(error)
        return "done"

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(careful)
            await suspended(run)
            await ff.signal(run, "go")
            assert await run.result("60s") == "done"
            assert not swallowed

    asyncio.run(main())


def test_nothing_a_handler_does_after_it_suspended_counts(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ff = Fabric(url)
    asked: list[BaseException] = []

    @ff.task
    async def stubborn(ctx: Context) -> str:
        if ctx.resumed:
            return "right"
        try:
            await ctx.suspend("go")
        except BaseException:  # noqa: BLE001 - the subject of the test
            try:
                await ctx.waitpoint("other")
            except BaseException as error:  # noqa: BLE001 - the subject of the test
                asked.append(error)
        assert ctx.cancelled
        return "wrong"

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(stubborn)
            await suspended(run)
            await ff.signal(run, "go")
            assert await run.result("60s") == "right"

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert [type(each).__name__ for each in asked] == ["Stopped"]
    assert [each.message for each in caplog.records if "went on after it suspended" in each.message]


def test_early_signals_are_returned_and_the_handler_goes_on(url: str) -> None:
    ff = Fabric(url)
    calls: list[int] = []

    @ff.task
    async def quick(ctx: Context) -> list[Any]:
        calls.append(ctx.attempt)
        if not ctx.resumed:
            reply = await ctx.waitpoint("reply", expires="1h")
            await ff.signal(reply, "done", 42)
            signals = await ctx.suspend(reply, timeout="1h", continuation="early")
            assert signals == ctx.signals
        assert ctx.resumed
        return [ctx.signals[0].name, ctx.signals[0].payload, ctx.resume_cause, ctx.continuation]

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(quick)
            assert await run.result("60s") == ["done", 42, "signal", "early"]
            assert calls == [1]

    asyncio.run(main())


def test_the_last_wait_is_still_known_after_a_delay(url: str) -> None:
    ff = Fabric(url)
    seen: list[tuple[bool, int]] = []

    @ff.task
    async def slow(ctx: Context) -> str:
        seen.append((ctx.resumed, len(ctx.signals)))
        if not ctx.resumed:
            await ctx.suspend("go")
        if len(seen) < 3:
            await ctx.delay("1ms")
        return ctx.signals[0].name

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(slow)
            await suspended(run)
            await ff.signal(run, "go")
            assert await run.result("60s") == "go"
            assert seen == [(False, 0), (True, 1), (True, 1)]

    asyncio.run(main())


def test_a_retry_is_a_new_attempt_without_signals(url: str) -> None:
    ff = Fabric(url)
    seen: list[tuple[int, bool]] = []

    @ff.task(retries=1, backoff=0)
    async def shaky(ctx: Context) -> str:
        seen.append((ctx.attempt, ctx.resumed))
        if ctx.attempt == 2:
            return "done"
        if not ctx.resumed:
            await ctx.suspend("go")
        raise Retry(after=0)

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(shaky)
            await suspended(run)
            await ff.signal(run, "go")
            assert await run.result("60s") == "done"
            assert seen == [(1, False), (1, True), (2, False)]

    asyncio.run(main())


def test_a_handler_with_two_waits_goes_on_by_its_continuation(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def two(ctx: Context) -> str:
        match ctx.continuation:
            case None:
                await ctx.suspend("draft", continuation="drafted")
            case "drafted":
                await ctx.suspend("final", continuation="finished")
            case _:
                pass
        return ctx.signals[0].key

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(two)
            for key in ("draft", "final"):

                async def waits(key: str = key) -> bool:
                    return [w.lines[0].waitpoint_keys for w in await ff.waits()] == [(key,)]

                await until(waits)
                await ff.signal(run, key)
            assert await run.result("60s") == "final"

    asyncio.run(main())


def test_a_key_of_ones_own_cannot_stand_for_another_wait(url: str) -> None:
    ff = Fabric(url)
    refused: list[Exception] = []

    @ff.task
    async def twice(ctx: Context) -> str:
        if not ctx.resumed:
            await ctx.suspend("one", idempotency_key="the-key")
        try:
            await ctx.suspend("two", idempotency_key="the-key")
        except SuspendConflict as error:
            refused.append(error)
        return "done"

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(twice)
            await suspended(run)
            await ff.signal(run, "one")
            assert await run.result("60s") == "done"
            assert len(refused) == 1

    asyncio.run(main())


def test_a_link_stays_good_when_the_handler_begins_again_before_it_suspends(url: str) -> None:
    ff = Fabric(url)
    made: list[Waitpoint] = []

    @ff.task
    async def interrupted(ctx: Context) -> str:
        if not ctx.resumed:
            made.append(await ctx.waitpoint("reply", expect=int))
            if not ctx.is_resumed:
                await ctx.delay("1ms")
            other = await ctx.waitpoint("reply", expect=str)
            assert other.id != made[0].id
            await ff.signal(made[0].link(), "done", 3)
            await ctx.suspend(made[-1])
        return f"{ctx.signals[0].payload}"

    async def main() -> None:
        async with ff, working(ff):
            assert await (await ff.submit(interrupted)).result("60s") == "3"
            assert made[0] == made[1]

    asyncio.run(main())


# --- timeouts and operators -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "error"),
    [("fail", RunFailed), ("cancel", RunCancelled), ("expire", RunExpired), (None, RunFailed)],
)
def test_a_timeout_ends_the_run(url: str, word: str | None, error: type[RunError]) -> None:
    ff = Fabric(url)

    @ff.task(retries=3)
    async def patient(ctx: Context) -> None:
        await ctx.suspend("never", timeout="10ms", on_timeout=word)

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(patient)
            with pytest.raises(error, match="suspension_timeout"):
                await run.result("60s")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("word", "names"),
    [("resume", []), ("resume_with_signal", ["timeout system:suspension_timeout"])],
)
def test_a_timeout_lets_the_handler_go_on(url: str, word: str, names: list[str]) -> None:
    ff = Fabric(url)

    @ff.task
    async def patient(ctx: Context) -> list[Any]:
        if not ctx.resumed:
            await ctx.suspend("never", timeout="10ms", on_timeout=word)
        return [ctx.resume_cause, ctx.resumed_by, [f"{s.name} {s.source}" for s in ctx.signals]]

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(patient)
            assert await run.result("60s") == ["timeout", "system", names]

    asyncio.run(main())


def test_a_wait_for_nothing_ends_with_its_timeout(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def nap(ctx: Context) -> str:
        if not ctx.resumed:
            await ctx.suspend(timeout="10ms")
        assert ctx.resume_cause is ResumeCause.TIMEOUT
        return "rested"

    async def main() -> None:
        async with ff, working(ff):
            assert await (await ff.submit(nap)).result("60s") == "rested"

    asyncio.run(main())


def test_an_escalated_wait_asks_for_an_operator_who_may_end_it(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def patient(ctx: Context) -> list[Any]:
        if not ctx.resumed:
            await ctx.suspend("never", timeout="10ms", on_timeout="escalate")
        return [ctx.resume_cause, ctx.resumed_by, len(ctx.signals)]

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(patient)

            async def escalated() -> bool:
                return (await run.explain()).waiting_for == "paused_by_operator"

            await until(escalated)
            assert await run.state() is PublicState.SUSPENDED
            await ff.resume(run, by="ops")
            assert await run.result("60s") == ["operator", "ops", 0]
            with pytest.raises(ExecutionNotSuspended):
                await ff.resume(run)

    asyncio.run(main())


def test_a_cancelled_wait_ends_the_run_and_a_late_signal_is_told_so(url: str) -> None:
    ff = Fabric(url)
    links: list[str] = []

    @ff.task
    async def patient(ctx: Context) -> None:
        reply = await ctx.waitpoint("reply")
        links.append(reply.link())
        await ctx.suspend(reply)

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(patient)
            await suspended(run)
            await run.cancel("no longer needed")
            with pytest.raises(RunCancelled, match="no longer needed"):
                await run.result("60s")
            with pytest.raises(TargetNotSignalable):
                await ff.signal(links[0], "done")

    asyncio.run(main())


# --- the worker -----------------------------------------------------------------------------------


def test_a_suspended_execution_takes_no_slot_and_no_lease(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def patient(ctx: Context) -> None:
        if not ctx.resumed:
            await ctx.suspend("go")

    @ff.task
    async def brisk() -> str:
        return "done"

    async def main() -> None:
        async with ff, working(ff, concurrency=1) as worker:
            runs = [await ff.submit(patient) for _ in range(3)]
            for run in runs:
                await suspended(run)
            assert await (await ff.submit(brisk)).result("60s") == "done"
            shift = worker._shift
            assert shift is not None

            async def empty() -> bool:
                return len(shift._leases) == 0

            await until(empty)
            for run in runs:
                await ff.signal(run, "go")
                await run.result("60s")

    asyncio.run(main())


def test_a_signal_that_races_with_the_suspension_is_never_lost(url: str) -> None:
    ff = Fabric(url)
    calls: dict[str, int] = {}
    sending: set[asyncio.Task[Any]] = set()

    @ff.task
    async def racer(ctx: Context, number: int) -> int:
        calls[ctx.execution_id] = calls.get(ctx.execution_id, 0) + 1
        if not ctx.resumed:
            reply = await ctx.waitpoint("reply")
            sending.add(asyncio.create_task(ff.signal(reply, "done", number)))
            await ctx.suspend(reply, timeout="1h")
        (signal,) = ctx.signals
        return int(signal.payload)

    async def main() -> None:
        async with ff, working(ff):
            runs = await ff.submit_many(racer, range(100))
            assert [await run.result("60s") for run in runs] == list(range(100))
            effects = {each.effect.value for each in await asyncio.gather(*sending)}
            assert effects <= {"buffered_for_pending_waitpoint", "resume_condition_satisfied"}
            assert set(calls.values()) <= {1, 2}

    asyncio.run(main())


def test_a_wait_outlives_its_worker(durable_url: str) -> None:
    ff = Fabric(durable_url)

    @ff.task
    async def patient(ctx: Context) -> str:
        if not ctx.resumed:
            await ctx.suspend("go")
        return ctx.signals[0].name

    async def main() -> None:
        async with ff:
            run = await ff.submit(patient)
            async with working(ff):
                await suspended(run)
            await ff.signal(run, "go")
            assert await run.state() is PublicState.WAITING
            async with working(ff):
                assert await run.result("60s") == "go"

    asyncio.run(main())


def test_a_drain_that_meets_a_suspension_in_flight_leaves_it_suspended(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ff = Fabric(url)
    committed = asyncio.Event()
    answered = asyncio.Event()
    really = EngineBackend.suspend

    async def slowly(self: EngineBackend, *args: Any, **more: Any) -> Any:
        answer = await really(self, *args, **more)
        committed.set()
        await answered.wait()
        return answer

    monkeypatch.setattr(EngineBackend, "suspend", slowly)

    @ff.task
    async def patient(ctx: Context) -> None:
        if not ctx.resumed:
            await ctx.suspend("go")

    async def main() -> None:
        async with ff:
            worker = Worker(ff, poll_interval="50ms", drain_timeout=0)
            running = asyncio.create_task(worker.run(handle_signals=False))
            run = await ff.submit(patient)
            await within(committed.wait())
            worker.stop(immediately=True)
            asyncio.get_running_loop().call_later(0.05, answered.set)
            await within(running)
            assert await run.state() is PublicState.SUSPENDED

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert not [each.message for each in caplog.records if "refused" in each.message]


def test_a_renewal_that_finds_the_lease_released_does_not_stop_the_handler(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ff = Fabric(url)
    really = EngineBackend.suspend
    workers: list[Worker] = []
    ends: list[str] = []
    left = asyncio.Event()

    async def renewed_meanwhile(self: EngineBackend, *args: Any, **more: Any) -> Any:
        answer = await really(self, *args, **more)
        shift = workers[0]._shift
        assert shift is not None
        for held in shift._leases:
            held.renew_at = 0.0
        shift._leases.tick()
        renewing = shift._leases._renewing
        assert renewing is not None
        await renewing
        return answer

    monkeypatch.setattr(EngineBackend, "suspend", renewed_meanwhile)

    @ff.task
    async def patient(ctx: Context) -> str:
        if not ctx.resumed:
            try:
                await ctx.suspend("go")
            except BaseException as error:
                ends.append(type(error).__name__)
                left.set()
                raise
        return "done"

    async def main() -> None:
        async with ff, working(ff) as worker:
            workers.append(worker)
            run = await ff.submit(patient)
            await suspended(run)
            await ff.signal(run, "go")
            assert await run.result("60s") == "done"
            await left.wait()  # the first call may still be on its way out
            assert ends == ["Suspension"]

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert not caplog.records


def test_the_next_call_may_begin_while_the_last_one_still_cleans_up(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ff = Fabric(url)
    cleaned = asyncio.Event()
    cleaning: list[str] = []

    @ff.task
    async def tidy(ctx: Context) -> str:
        if ctx.resumed:
            return "done"
        try:
            await ctx.suspend("go")
        finally:
            cleaning.append("begun")
            await cleaned.wait()
            cleaning.append("ended")
        return "wrong"

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(tidy)
            await suspended(run)
            await ff.signal(run, "go")
            assert await run.result("60s") == "done"
            assert cleaning == ["begun"]
            cleaned.set()
        assert cleaning == ["begun", "ended"]

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert not caplog.records


def test_a_suspended_sync_handler_that_outlives_the_drain_reports_nothing(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ff = Fabric(url)
    cleaned = threading.Event()

    @ff.task
    def tidy(ctx: SyncContext) -> str:
        if ctx.resumed:
            return "done"
        try:
            ctx.suspend("go")
        finally:
            cleaned.wait(60)
        return "wrong"

    async def main() -> None:
        async with ff:
            async with working(ff, drain_timeout=0):
                run = await ff.submit(tidy)
                await suspended(run)
            cleaned.set()
            assert await run.state() is PublicState.SUSPENDED
            await ff.signal(run, "go")
            async with working(ff):
                assert await run.result("60s") == "done"

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert not caplog.records


def test_a_lost_answer_begins_one_wait_only(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ff = Fabric(url)
    really = EngineBackend.suspend
    calls: list[None] = []

    async def lossy(self: EngineBackend, *args: Any, **more: Any) -> Any:
        answer = await really(self, *args, **more)
        calls.append(None)
        if len(calls) == 1:
            raise OutcomeUnknown("the connection broke")
        return answer

    monkeypatch.setattr(EngineBackend, "suspend", lossy)

    @ff.task
    async def patient(ctx: Context) -> str:
        if not ctx.resumed:
            await ctx.suspend("go", timeout="1h")
        return "done"

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(patient)

            async def twice() -> bool:
                return len(calls) == 2

            await until(twice)
            await suspended(run)
            engine = await ff.start()
            assert len((await engine.list_suspensions(execution_id=run.id)).items) == 1
            await ff.signal(run, "go")
            assert await run.result("60s") == "done"

    asyncio.run(main())


def test_a_handler_without_a_lease_cannot_suspend(url: str) -> None:
    ff = Fabric(url)
    may_go = asyncio.Event()
    started = asyncio.Event()
    left = asyncio.Event()
    ends: list[str] = []

    @ff.task
    async def patient(ctx: Context) -> str:
        if ctx.attempt > 1:
            return "second"
        started.set()
        await may_go.wait()
        try:
            await ctx.suspend("go")
        except BaseException as error:
            ends.append(type(error).__name__)
            left.set()
            raise
        return "wrong"

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(patient)
            await within(started.wait())
            engine = await ff.start()
            await engine.revoke_lease(execution_id=run.id, reason="test")
            may_go.set()
            assert await run.result("60s") == "second"
            await within(left.wait())
            assert ends in (["Stopped"], ["CancelledError"])
            assert not (await engine.list_suspensions(execution_id=run.id)).items

    asyncio.run(main())


# --- what can be asked for ------------------------------------------------------------------------


def request_of(wait: Any = None, **options: Any) -> Any:
    given = {
        "reason": None,
        "timeout": None,
        "on_timeout": None,
        "expect": ANYTHING,
        "continuation": None,
        "key": None,
        **options,
    }
    return Suspend(wait=wait, **given).request()


def test_conditions_are_short_words_for_the_engines() -> None:
    assert signal("a").condition == Single("a")
    assert signal("a", "yes").condition == Single("a", "yes")
    assert all_of("a", signal("b", "x")).condition == AllOf((Single("a"), Single("b", "x")))
    assert any_of("a", WAITPOINT).condition == AnyOf((Single("a"), Single("reply")))
    assert count(2, "a", "b").condition == Count(2, CountKind.DISTINCT_WAITPOINTS, ("a", "b"))
    kinds = (CountKind.DISTINCT_SOURCES, CountKind.DISTINCT_SIGNALS)
    assert count(2, "a", sources=True, name="x").condition == Count(2, kinds[0], ("a",), "x")
    assert count(2, "a", signals=True).condition == Count(2, kinds[1], ("a",))
    yes = Count(2, kinds[0], ("a",), "approved")
    assert approval("a", of=2).condition == AnyOf((yes, Single("a", "rejected")))


def test_fields_left_out_have_sensible_defaults() -> None:
    asked = request_of("a")
    assert (asked.timeout_behavior, asked.reason_code) == (
        TimeoutBehavior.FAIL,
        ReasonCode.WAITING_FOR_SIGNAL,
    )
    assert request_of(approval("a")).reason_code is ReasonCode.WAITING_FOR_APPROVAL
    assert request_of("a", reason="tool_result").reason_code is ReasonCode.WAITING_FOR_TOOL_RESULT
    nothing = request_of()
    assert nothing.resume_condition == OperatorOnly()
    assert nothing.reason_code is ReasonCode.WAITING_FOR_OPERATOR_REVIEW
    timed = request_of(timeout="1h")
    assert timed.resume_condition == TimeoutOnly()
    assert timed.timeout_behavior is TimeoutBehavior.AUTO_RESUME
    assert request_of("a", key="mine").idempotency_key == "mine"
    assert request_of("a").idempotency_key != request_of("a").idempotency_key


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: request_of(3), "wait"),
        (lambda: request_of(signal(3)), "wait"),  # type: ignore[arg-type]
        (lambda: request_of("a", on_timeout="fail"), "on_timeout"),
        (lambda: request_of("a", on_timeout="explode", timeout="1h"), "on_timeout"),
        (lambda: request_of("a", reason="boredom"), "reason"),
        (lambda: request_of(all_of()), "resume_condition"),
        (lambda: request_of(count(0, "a", signals=True)), "resume_condition"),
        (lambda: request_of(count(2, "a")), "resume_condition"),
        (lambda: request_of(signal("a", "__x")), "resume_condition"),
        (
            lambda: request_of(any_of(any_of(any_of(any_of(any_of("a")))))),
            "resume_condition",
        ),
        (lambda: count(2, "a", sources=True, signals=True), "count"),
        (lambda: signal(WAITPOINT, expect=int), "expect"),
        (lambda: all_of(signal("a", expect=int), signal("a", expect=str)), "wait"),
        (lambda: all_of("reply", WAITPOINT, signal("reply", expect=int)), "wait"),
        (lambda: request_of("a", expect=object), "expect"),
    ],
)
def test_an_invalid_wait_is_refused_by_name(make: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert caught.value.fields["field"] == field
