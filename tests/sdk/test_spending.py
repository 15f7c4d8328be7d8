"""Reserve, settle, release and report from inside a handler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from flowfabric import (
    BudgetExceeded,
    BudgetStatus,
    Context,
    Fabric,
    HardBreach,
    InvalidInput,
    Ok,
    PublicState,
    RunError,
    RunFailed,
    SoftBreach,
    SyncContext,
)
from flowfabric.api.backend import EngineBackend
from flowfabric.errors import NotFound, OutcomeUnknown, StoreUnavailable
from tests.sdk.workshop import until, within, working


def budget_after(
    url: str | Fabric, work: Callable[[Context], Any], *, hard: int = 1000, **policy: Any
) -> tuple[Any, BudgetStatus]:
    """What one handler returned or raised, and the budget then."""
    ff = url if isinstance(url, Fabric) else Fabric(url)

    @ff.task(retries=2, backoff=0)
    async def handler(ctx: Context) -> Any:
        return await work(ctx)

    async def main() -> tuple[Any, BudgetStatus]:
        async with ff, working(ff):
            await ff.create_budget("gpt", hard={"tokens": hard}, **policy)
            run = await ff.submit(handler)
            try:
                value = await run.result("60s")
            except RunError as error:
                value = error
            return value, await ff.budget("gpt")

    return asyncio.run(main())


def test_leaving_the_block_charges_what_was_really_used(url: str) -> None:
    async def work(ctx: Context) -> dict[str, int]:
        async with ctx.spend("gpt", tokens=1000, cost_micros=500) as spend:
            spend.actual(tokens=700)
            spend.actual(tokens=812, cache_hits=3)
        return dict(spend.reserved)

    reserved, budget = budget_after(url, work)
    assert reserved == {"cost_micros": 500, "tokens": 1000}
    assert budget.usage == {"cache_hits": 3, "cost_micros": 500, "tokens": 812}
    assert not budget.held


def test_without_an_actual_what_was_reserved_is_charged(url: str) -> None:
    async def work(ctx: Context) -> None:
        async with ctx.spend("gpt", tokens=40):
            pass

    _, budget = budget_after(url, work)
    assert (budget.usage, dict(budget.held)) == ({"tokens": 40}, {})


def test_an_exception_gives_the_hold_back(url: str) -> None:
    async def work(ctx: Context) -> str:
        try:
            async with ctx.spend("gpt", tokens=40):
                raise KeyError("mine")
        except KeyError as error:
            return str(error)

    value, budget = budget_after(url, work)
    assert value == "'mine'"
    assert (budget.usage, dict(budget.held)) == ({"tokens": 0}, {})


def test_an_exception_after_actual_charges_that(url: str) -> None:
    async def work(ctx: Context) -> None:
        try:
            async with ctx.spend("gpt", tokens=40) as spend:
                spend.actual(tokens=9)
                raise KeyError
        except KeyError:
            return

    _, budget = budget_after(url, work)
    assert (budget.usage, dict(budget.held)) == ({"tokens": 9}, {})


def test_spends_may_be_nested_and_stand_side_by_side(url: str) -> None:
    async def one(ctx: Context, amount: int) -> None:
        async with ctx.spend("gpt", tokens=100) as spend:
            spend.actual(tokens=amount)

    async def work(ctx: Context) -> None:
        async with ctx.spend("gpt", tokens=500) as outer:
            async with ctx.spend("gpt", tokens=100) as inner:
                inner.actual(tokens=10)
            await asyncio.gather(*(one(ctx, amount) for amount in (1, 2, 3)))
            outer.actual(tokens=100)

    _, budget = budget_after(url, work)
    assert (budget.usage, dict(budget.held)) == ({"tokens": 116}, {})


def test_without_room_the_run_fails_at_once_as_budget_exceeded(url: str) -> None:
    async def work(ctx: Context) -> None:
        async with ctx.spend("gpt", tokens=60):
            pass
        async with ctx.spend("gpt", tokens=60):
            raise AssertionError("not reached")

    error, budget = budget_after(url, work, hard=100)
    assert isinstance(error, RunFailed)
    assert error.category == "budget_exceeded"
    assert error.fields["attempts"] == 1
    assert error.reason == "gpt: tokens 60 of 100 is used or reserved, 60 more were asked for"
    assert (budget.usage, dict(budget.held), budget.breach_count) == ({"tokens": 60}, {}, 1)


def test_a_handler_may_catch_the_refusal_and_do_with_less(url: str) -> None:
    async def work(ctx: Context) -> dict[str, Any]:
        try:
            async with ctx.spend("gpt", tokens=101):
                raise AssertionError("not reached")
        except BudgetExceeded as error:
            async with ctx.spend("gpt", tokens=error.hard_limit - error.current_usage):
                return {"budget": error.budget, "dimension": error.dimension}

    value, budget = budget_after(url, work, hard=100)
    assert value == {"budget": "gpt", "dimension": "tokens"}
    assert budget.usage == {"tokens": 100}


def test_a_budget_with_the_fail_action_ends_the_run_that_breaches_it(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(ctx: Context) -> None:
        async with ctx.spend("gpt", tokens=101):
            raise AssertionError("not reached")

    error, _ = budget_after(url, work, hard=100, on_hard="fail")
    assert isinstance(error, RunFailed)
    assert error.category == "budget_exceeded"
    assert "refused" not in caplog.text


def test_a_refusal_is_retried_where_retry_on_names_it(url: str) -> None:
    ff = Fabric(url)

    @ff.task(retries=1, retry_on=[BudgetExceeded], backoff=0)
    async def ask(ctx: Context) -> int:
        if ctx.attempt == 2:
            await ff.raise_budget("gpt", tokens=100)
        async with ctx.spend("gpt", tokens=60):
            return ctx.attempt

    async def main() -> None:
        async with ff, working(ff):
            await ff.create_budget("gpt", hard={"tokens": 50})
            assert await (await ff.submit(ask)).result("60s") == 2

    asyncio.run(main())


def test_usage_beyond_reservation_and_limit_is_reported_and_not_counted(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(ctx: Context) -> bool:
        async with ctx.spend("gpt", tokens=60) as spend:
            spend.actual(tokens=150)
        return spend.outcome == HardBreach("tokens", 0, 100)

    told, budget = budget_after(url, work, hard=100)
    assert told
    assert budget.usage == {"tokens": 60}
    assert "beyond what was reserved and allowed" in caplog.text


def test_bad_amounts_are_refused_where_they_are_written() -> None:
    async def work(ctx: Context) -> list[str]:
        told = []
        for wrong in (
            lambda: ctx.spend("gpt"),
            lambda: ctx.spend("gpt", tokens=-1),
            lambda: ctx.spend("gpt", tokens=0.5),  # type: ignore[arg-type]
            lambda: ctx.spend("", tokens=1),
            lambda: ctx.spend("gpt", tokens=1).actual(tokens=-1),
            lambda: ctx.spend("gpt", tokens=1, hold_for="soon"),
        ):
            with pytest.raises(InvalidInput) as caught:
                wrong()
            told.append(caught.value.fields["field"])
        with pytest.raises(InvalidInput, match="output_tokens"):
            await ctx.report_usage("gpt", output_tokens=-1)
        spend = ctx.spend("gpt", tokens=1)
        async with spend:
            pass
        with pytest.raises(InvalidInput, match="already used"):
            async with spend:
                pass
        return told

    told, budget = budget_after("memory://", work)
    assert told == ["spend", "spend.tokens", "spend.tokens", "budget", "actual.tokens", "hold_for"]
    assert budget.usage == {"tokens": 1}


def test_a_report_counts_every_part_and_answers_how_it_stands(url: str) -> None:
    async def work(ctx: Context) -> list[bool]:
        key = f"{ctx.attempt_key}:turn-1"
        first = await ctx.report_usage(
            "gpt", input_tokens=30, output_tokens=50, wall_ms=7, dedup_key=key, tokens=80
        )
        again = await ctx.report_usage("gpt", tokens=80, dedup_key=key)
        soft = await ctx.report_usage("gpt", tokens=15)
        hard = await ctx.report_usage("gpt", tokens=15)
        return [
            first == again == Ok(),
            soft == SoftBreach("tokens", 95, 90),
            hard == HardBreach("tokens", 95, 100),
        ]

    told, budget = budget_after(url, work, hard=100, soft={"tokens": 90})
    assert told == [True, True, True]
    assert budget.usage == {"input_tokens": 30, "output_tokens": 50, "tokens": 95, "wall_ms": 7}


def test_sync_tasks_spend_and_report_from_their_threads(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def ask(ctx: SyncContext, room: int) -> str:
        with ctx.spend("gpt", tokens=50) as spend:
            spend.actual(tokens=30)
        try:
            with ctx.spend("gpt", tokens=50):
                raise KeyError
        except KeyError:
            pass
        ctx.report_usage("gpt", tokens=10)
        with ctx.spend("gpt", tokens=room):
            return threading.current_thread().name

    async def main() -> None:
        async with ff, working(ff):
            await ff.create_budget("gpt", hard={"tokens": 100})
            assert "flowfabric-task" in await (await ff.submit(ask, 5)).result("60s")
            assert (await ff.budget("gpt")).usage == {"tokens": 45}
            with pytest.raises(RunFailed) as caught:
                await (await ff.submit(ask, 50)).result("60s")
            assert caught.value.category == "budget_exceeded"
            assert not (await ff.budget("gpt")).held

    asyncio.run(main())


def test_a_cancelled_run_gives_its_hold_back(url: str) -> None:
    ff = Fabric(url)
    inside = asyncio.Event()

    @ff.task
    async def ask(ctx: Context) -> None:
        async with ctx.spend("gpt", tokens=50):
            inside.set()
            await asyncio.Event().wait()

    async def main() -> None:
        async with ff, working(ff):
            await ff.create_budget("gpt", hard={"tokens": 100})
            run = await ff.submit(ask)
            await within(inside.wait())
            assert (await ff.budget("gpt")).held == {"tokens": 50}
            await run.cancel()

            async def is_back() -> bool:
                return not (await ff.budget("gpt")).held

            await until(is_back)
            assert (await ff.budget("gpt")).usage == {"tokens": 0}

    asyncio.run(main())


def test_a_parked_handler_gives_its_hold_back_and_spends_when_it_goes_on(url: str) -> None:
    ff = Fabric(url)

    async def work(ctx: Context) -> bool:
        async with ctx.spend("gpt", tokens=50):
            if not ctx.is_resumed:
                await ctx.delay("10ms")
        return ctx.is_resumed

    resumed, budget = budget_after(ff, work)
    assert resumed
    assert (budget.usage, dict(budget.held)) == ({"tokens": 50}, {})


def test_waiting_for_a_full_budget_inside_a_handler(url: str) -> None:
    """The refusal parks the run; the full budget keeps it back until somebody raises it."""
    ff = Fabric(url)

    @ff.task(budgets=["gpt"])
    async def ask(ctx: Context) -> int:
        try:
            async with ctx.spend("gpt", tokens=60):
                return ctx.attempt
        except BudgetExceeded:
            await ctx.delay(0)
            raise

    async def main() -> None:
        async with ff, working(ff):
            await ff.create_budget("gpt", hard={"tokens": 100})
            await ff.report_usage("gpt", tokens=99)
            run = await ff.submit(ask)

            async def was_refused() -> bool:
                return (await ff.budget("gpt")).breach_count > 0

            await until(was_refused)
            await ff.report_usage("gpt", tokens=1)

            async def is_blocked() -> bool:
                return await run.state() is PublicState.RATE_LIMITED

            await until(is_blocked)
            await ff.raise_budget("gpt", tokens=200)
            assert await run.result("60s") == 1

    asyncio.run(main())


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_lease_lost_inside_ends_the_handler_and_charges_nothing(url: str, is_sync: bool) -> None:
    """The first owner is revoked inside its block; only the second one's spend counts."""
    ff = Fabric(url)
    passed: list[int] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def revoke(execution_id: str) -> None:
        await (await ff.start()).revoke_lease(execution_id=execution_id, reason="test")

    async def ask_async(ctx: Context) -> None:
        async with ctx.spend("gpt", tokens=50) as spend:
            spend.actual(tokens=30)
            if ctx.attempt == 1:
                await revoke(ctx.execution_id)
        passed.append(ctx.attempt)

    def ask_sync(ctx: SyncContext) -> None:
        with ctx.spend("gpt", tokens=50) as spend:
            spend.actual(tokens=30)
            if ctx.attempt == 1:
                asyncio.run_coroutine_threadsafe(revoke(ctx.execution_id), loops[0]).result()
        passed.append(ctx.attempt)

    if is_sync:
        ff.task(name="ask")(ask_sync)
    else:
        ff.task(name="ask")(ask_async)

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        async with ff, working(ff):
            await ff.create_budget("gpt", hard={"tokens": 100})
            run = await ff.submit("ask")
            await run.result("60s")
            budget = await ff.budget("gpt")
            assert (budget.usage, dict(budget.held)) == ({"tokens": 30}, {})
            assert passed == [2]

    asyncio.run(main())


def test_a_drained_handler_settles_what_it_knows(url: str) -> None:
    ff = Fabric(url)
    inside = asyncio.Event()

    @ff.task
    async def ask(ctx: Context) -> None:
        async with ctx.spend("gpt", tokens=50) as spend:
            spend.actual(tokens=20)
            inside.set()
            await asyncio.Event().wait()

    async def main() -> None:
        async with ff:
            await ff.create_budget("gpt", hard={"tokens": 100})
            async with working(ff, drain_timeout=0):
                await ff.submit(ask)
                await within(inside.wait())
            budget = await ff.budget("gpt")
            assert (budget.usage, dict(budget.held)) == ({"tokens": 20}, {})

    asyncio.run(main())


def test_a_hold_that_lapsed_is_charged_as_usage(url: str) -> None:
    ff = Fabric(url)

    async def work(ctx: Context) -> str:
        async with ctx.spend("gpt", tokens=50, hold_for="1ms") as spend:

            async def is_back() -> bool:
                return not (await ff.budget("gpt")).held

            await until(is_back)
        return type(spend.outcome).__name__

    told, budget = budget_after(ff, work)
    assert told == "Ok"
    assert (budget.usage, dict(budget.held)) == ({"tokens": 50}, {})


def test_a_reservation_that_is_interrupted_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reserve = EngineBackend.reserve_budget

    async def without_an_end(self: EngineBackend, *args: Any, **kwargs: Any) -> None:
        await reserve(self, *args, **kwargs)
        await asyncio.Event().wait()

    monkeypatch.setattr(EngineBackend, "reserve_budget", without_an_end)

    async def work(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.02), ctx.spend("gpt", tokens=50):
                return "not reached"
        except TimeoutError:
            return "too late"

    told, budget = budget_after("memory://", work)
    assert told == "too late"
    assert (budget.usage, dict(budget.held)) == ({"tokens": 0}, {})


def test_an_outage_and_a_lost_answer_cost_time_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ff = Fabric("memory://")

    def flaky(name: str) -> None:
        """The first call does not arrive, the answer of the second is lost."""
        original, calls = getattr(EngineBackend, name), iter(range(10))

        async def call(self: EngineBackend, *args: Any, **kwargs: Any) -> Any:
            number = next(calls)
            if number == 0:
                raise StoreUnavailable("down")
            answer = await original(self, *args, **kwargs)
            if number == 1:
                raise OutcomeUnknown("broken")
            return answer

        monkeypatch.setattr(EngineBackend, name, call)

    for name in ("reserve_budget", "settle_budget", "release_hold", "report_usage"):
        flaky(name)

    @ff.task
    async def ask(ctx: Context) -> str:
        async with ctx.spend("gpt", tokens=50) as spend:
            pass
        try:
            async with ctx.spend("gpt", tokens=50):
                raise KeyError
        except KeyError:
            pass
        await ctx.report_usage("gpt", tokens=5)
        return type(spend.outcome).__name__

    async def main() -> None:
        async with ff, working(ff):
            await ff.create_budget("gpt", hard={"tokens": 100})
            assert await (await ff.submit(ask)).result("60s") == Ok.__name__
            budget = await ff.budget("gpt")
            assert (budget.usage, dict(budget.held)) == ({"tokens": 55}, {})

    asyncio.run(main())


async def spends(ctx: Context) -> None:
    async with ctx.spend("gtp", tokens=1):
        raise AssertionError("nothing was reserved")


async def reports(ctx: Context) -> None:
    await ctx.report_usage("gtp", tokens=1)


async def reports_by_key(ctx: Context) -> None:
    await ctx.report_usage("gtp", dedup_key="once", tokens=1)


def spends_in_a_thread(ctx: SyncContext) -> None:
    with ctx.spend("gtp", tokens=1):
        raise AssertionError("nothing was reserved")


def reports_in_a_thread(ctx: SyncContext) -> None:
    ctx.report_usage("gtp", tokens=1)


@pytest.mark.parametrize(
    "work", [spends, reports, reports_by_key, spends_in_a_thread, reports_in_a_thread]
)
def test_a_handler_cannot_spend_from_a_misspelt_budget(url: str, work: Any) -> None:
    """Issue 10 A13: a wrong letter must not mean that there is no limit."""
    ff = Fabric(url)
    handler = ff.task(work)

    async def main() -> None:
        async with ff, working(ff):
            await ff.create_budget("gpt", hard={"tokens": 1000})
            run = await ff.submit(handler)
            with pytest.raises(RunFailed, match="budget gtp"):
                await run.result("60s")
            assert [each.budget_id for each in await ff.budgets()] == ["gpt"]

    asyncio.run(main())


def test_a_fabric_refuses_a_misspelt_budget_wherever_one_is_named(url: str) -> None:
    """Issue 10 A13."""
    ff = Fabric(url)

    @ff.task(budgets=["gtp"])
    async def attached() -> None:
        pass

    @ff.task
    async def plain() -> None:
        pass

    async def main() -> None:
        async with ff:
            for refused in (
                ff.submit(attached),
                ff.submit(plain, budgets=["gtp"]),
                ff.report_usage("gtp", tokens=1),
                ff.budget("gtp"),
                ff.raise_budget("gtp", tokens=2),
                ff.reset_budget("gtp"),
                ff.configure_lane("default", budgets=["gtp"]),
            ):
                with pytest.raises(NotFound, match="gtp"):
                    await refused
            assert await ff.budgets() == []

    asyncio.run(main())


def test_a_run_and_a_flow_tell_what_they_spent(url: str) -> None:
    """In all attempts; of a flow the sum of its members."""
    ff = Fabric(url)

    @ff.task(retries=1, backoff=0)
    async def costs(ctx: Context, amount: int) -> int:
        await ctx.report_usage("gpt", input_tokens=amount)
        if ctx.attempt == 1:
            raise ValueError("once more")
        async with ctx.spend("gpt", tokens=50) as spend:
            spend.actual(tokens=2)
        return amount

    async def main() -> None:
        async with ff, working(ff):
            await ff.create_budget("gpt")
            run = await ff.submit(costs, 3)
            await run.result("60s")
            assert await run.spend() == {"gpt": {"input_tokens": 6, "tokens": 2}}
            both = ff.flow("both")
            both.add(costs, 5)
            both.add(costs, 7)
            flow = await both.submit()
            await flow.result("60s")
            assert await flow.spend() == {"gpt": {"input_tokens": 24, "tokens": 4}}
            with pytest.raises(NotFound):
                await ff.run("{fp:0}:01890000-0000-7000-8000-000000000001").spend()

    asyncio.run(main())
