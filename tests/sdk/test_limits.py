"""Budgets, quotas and lanes through the fabric, and what tasks and submits attach."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import Fabric, HardBreach, InvalidInput, InvalidTask, NotFound, Ok, PublicState
from flowfabric.errors import BudgetScopeMismatch, InvalidQuotaSpec, LimitConflict
from flowfabric.model.bounds import Bounds
from flowfabric.model.budget import HardAction, ScopeType, SoftAction
from tests.sdk.workshop import until, working


def test_a_budget_is_created_read_raised_and_reset(url: str) -> None:
    ff = Fabric(url)

    async def main() -> None:
        async with ff:
            made = await ff.create_budget(
                "gpt",
                hard={"tokens": 1000, "cost_micros": 0},
                soft={"tokens": 800},
                on_hard="deny",
                on_soft="ignore",
                reset_every="1d",
            )
            assert made.policy is not None
            assert made.policy.hard_limits == {"cost_micros": 0, "tokens": 1000}
            assert made.policy.soft_limits == {"cost_micros": 0, "tokens": 800}
            assert made.policy.on_hard_limit is HardAction.DENY
            assert made.policy.on_soft_limit is SoftAction.IGNORE
            assert made.policy.reset_interval_ms == 86_400_000
            assert made.next_reset_at is not None
            assert await ff.report_usage("gpt", tokens=900, dedup_key="one") is not None
            breach = await ff.report_usage("gpt", tokens=200)
            assert breach == HardBreach("tokens", 900, 1000)
            raised = await ff.raise_budget("gpt", tokens=2000)
            assert raised.policy is not None
            assert raised.policy.hard_limits["tokens"] == 2000
            assert raised.usage["tokens"] == 900
            changed = await ff.update_budget("gpt", hard={"tokens": 950}, on_soft="warn")
            assert changed.policy is not None
            assert changed.policy.on_soft_limit is SoftAction.WARN
            assert (await ff.reset_budget("gpt")).usage["tokens"] == 0
            assert (await ff.budget("gpt")).breach_count == 1
            await ff.create_budget("abc")
            assert [each.budget_id for each in await ff.budgets()] == ["abc", "gpt"]

    asyncio.run(main())


def test_a_budget_created_again_is_the_same_and_another_under_its_name_is_refused(
    url: str,
) -> None:
    ff = Fabric(url)

    async def main() -> None:
        async with ff:
            first = await ff.create_budget("gpt", hard={"tokens": 10})
            assert await ff.create_budget("gpt", hard={"tokens": 10}) == first
            with pytest.raises(LimitConflict, match="gpt"):
                await ff.create_budget("gpt", hard={"tokens": 11})

    asyncio.run(main())


def test_a_scope_is_written_as_one_word_and_its_target() -> None:
    ff = Fabric("memory://")

    async def main() -> None:
        async with ff:
            made = await ff.create_budget("gpu", hard={"ms": 10}, scope="lane:gpu")
            assert made.policy is not None
            assert (made.policy.scope_type, made.policy.scope_id) == (ScopeType.LANE, "gpu")
            for scope in ("gpu", "lane:", "planet:mars", "free:x", 3):
                with pytest.raises(InvalidInput, match="lane:…"):
                    await ff.create_budget("bad", scope=scope)  # type: ignore[arg-type]

    asyncio.run(main())


def test_bad_budgets_are_refused_by_name_and_change_nothing() -> None:
    ff = Fabric("memory://")

    async def main() -> None:
        async with ff:
            await ff.create_budget("gpt", hard={"tokens": 100})
            for wrong, field in (
                (ff.create_budget("b", hard={"tokens": -1}), "hard.tokens"),
                (ff.create_budget("b", hard={"tokens": 1.5}), "hard.tokens"),  # type: ignore[dict-item]
                (ff.create_budget("b", hard=[1]), "hard"),  # type: ignore[arg-type]
                (ff.create_budget("b", on_hard="explode"), "on_hard_limit"),
                (ff.create_budget("b", on_soft="explode"), "on_soft_limit"),
                (ff.create_budget("b", mode="loose"), "enforcement_mode"),
                (ff.create_budget("b", reset_every="10ms"), "reset_interval_ms"),
                (ff.raise_budget("gpt"), "hard"),
                (ff.raise_budget("gpt", tokens=99), "hard.tokens"),
                (ff.raise_budget("gpt", cost=99), "hard.cost"),
                (ff.report_usage("gpt", tokens=-1), "amounts.tokens"),
            ):
                with pytest.raises(InvalidInput) as caught:
                    await wrong
                assert caught.value.fields["field"] == field
            for missing in (ff.budget("b"), ff.reset_budget("b"), ff.update_budget("b")):
                with pytest.raises(NotFound, match="budget b"):
                    await missing
            assert len(await ff.budgets()) == 1

    asyncio.run(main())


def test_a_quota_is_created_read_and_changed(url: str) -> None:
    ff = Fabric(url)

    async def main() -> None:
        async with ff:
            made = await ff.create_quota("crawl", per="10s", starts=3, at_once=2, jitter="250ms")
            policy = made.policy
            assert (policy.requests_per_window_seconds, policy.jitter_ms) == (10, 250)
            assert (policy.max_requests_per_window, policy.active_concurrency_cap) == (3, 2)
            assert await ff.create_quota("crawl", per=10, starts=3, at_once=2, jitter=0.25) == made
            with pytest.raises(LimitConflict):
                await ff.create_quota("crawl", per=10, starts=4)
            changed = await ff.update_quota("crawl", at_once=7)
            assert changed.policy.active_concurrency_cap == 7
            assert changed.policy.max_requests_per_window == 3
            assert (await ff.quota("crawl")).policy == changed.policy
            assert [each.quota_policy_id for each in await ff.quotas()] == ["crawl"]
            with pytest.raises(InvalidQuotaSpec):
                await ff.create_quota("none", per=0)
            with pytest.raises(InvalidInput, match="whole seconds"):
                await ff.create_quota("half", per="1500ms")
            with pytest.raises(NotFound, match="none"):
                await ff.quota("none")

    asyncio.run(main())


def test_a_task_and_a_submit_say_what_bounds_an_execution(url: str) -> None:
    ff = Fabric(url)

    @ff.task(budgets=["gpt"], quota="crawl", concurrency_key="one")
    async def read(page: str) -> str:
        return page

    async def bounds(*args: Any, **options: Any) -> Bounds:
        return (await (await ff.submit(*args, **options)).info()).bounds

    async def main() -> None:
        async with ff:
            for name in ("gpt", "other"):
                await ff.create_budget(name, hard={"tokens": 10})
            for name in ("crawl", "slow"):
                await ff.create_quota(name, at_once=1)
            own = Bounds(budget_ids=("gpt",), quota_policy_id="crawl", concurrency_key="one")
            assert await bounds(read, "a") == own
            assert await bounds("read", {"page": "a"}) == own
            assert await bounds(
                read, "a", budgets=["other"], quota="slow", concurrency_key="two"
            ) == Bounds(budget_ids=("other",), quota_policy_id="slow", concurrency_key="two")
            assert (await bounds(read, "a", budgets=[])).budget_ids == ()
            both = read.options(budgets=iter(["gpt", "other"]))
            for run in (await both.submit("a"), await both.submit("b")):
                assert (await run.info()).bounds.budget_ids == ("gpt", "other")
            many = await ff.submit_many(read, ["a", "b"])
            assert [(await each.info()).bounds for each in many] == [own, own]

    asyncio.run(main())


def test_a_concurrency_key_may_be_computed_from_the_arguments() -> None:
    ff = Fabric("memory://")

    @ff.task(quota="one", concurrency_key=lambda customer: customer)
    async def crawl(url: str, customer: str = "nobody", *, depth: int = 3) -> None: ...

    @ff.task(quota="one", concurrency_key=lambda **arguments: len(arguments))
    def count(first: int, second: int = 2) -> None: ...

    @ff.task(
        quota="one",
        concurrency_key=lambda number: None if number else 1.5,  # type: ignore[arg-type]
    )
    def odd(number: int) -> None: ...

    async def key(*args: Any, **options: Any) -> str | None:
        return (await (await ff.submit(*args, **options)).info()).bounds.concurrency_key

    async def main() -> None:
        async with ff:
            await ff.create_quota("one", at_once=1)
            assert await key(crawl, "x", "ada") == "ada"
            assert await key(crawl, "x", depth=2) == "nobody"
            assert await key("crawl", {"url": "x", "customer": "bob"}) == "bob"
            assert await key(crawl, "x", "ada", concurrency_key="other") == "other"
            assert await key(count, 1) == "2"
            assert await key(odd, 1) is None
            with pytest.raises(InvalidInput, match=r"odd: concurrency_key gave 1.5"):
                await ff.submit(odd, 0)

    asyncio.run(main())


def test_a_key_function_of_unknown_arguments_is_refused_where_the_task_is_written() -> None:
    ff = Fabric("memory://")
    for function in (lambda tenant: tenant, lambda url, /: url):
        with pytest.raises(InvalidTask, match="crawl: concurrency_key"):

            @ff.task(concurrency_key=function)
            async def crawl(url: str) -> None: ...

    with pytest.raises(InvalidInput, match=r"budgets: write \['gpt'\]"):

        @ff.task(budgets="gpt")
        async def read() -> None: ...

    with pytest.raises(InvalidTask, match="'quota' is also a submit option"):

        @ff.task
        async def write(quota: str) -> None: ...


def test_attaching_what_does_not_exist_names_it_and_submits_nothing(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def read() -> None: ...

    async def main() -> None:
        async with ff:
            await ff.create_budget("gpu", hard={"ms": 10}, scope="lane:gpu")
            with pytest.raises(NotFound, match="'nothing'"):
                await ff.submit(read, budgets=["nothing"])
            with pytest.raises(NotFound, match="'nowhere'"):
                await ff.submit(read, quota="nowhere")
            with pytest.raises(InvalidInput, match=r"write \['gpt'\]"):
                await ff.submit(read, budgets="gpt")
            with pytest.raises(BudgetScopeMismatch, match="gpu"):
                await ff.submit(read, budgets=["gpu"])
            engine = await ff.start()
            assert not (await engine.list_executions()).items

    asyncio.run(main())


def test_work_waits_for_a_full_budget_and_goes_on_when_it_is_raised(url: str) -> None:
    ff = Fabric(url)

    @ff.task(budgets=["gpt"])
    async def ask() -> str:
        return "answer"

    async def main() -> None:
        async with ff, working(ff):
            await ff.create_budget("gpt", hard={"tokens": 100})
            assert await ff.report_usage("gpt", tokens=100) == Ok()
            run = await ff.submit(ask)

            async def is_blocked() -> bool:
                return await run.state() is PublicState.RATE_LIMITED

            await until(is_blocked)
            why = await run.explain()
            (limit,) = why.limits
            assert (limit.kind, limit.limit_id, limit.keeps_back) == ("budget", "gpt", True)
            assert "tokens 100/100" in limit.usage
            await ff.raise_budget("gpt", tokens=200)
            assert await run.result("60s") == "answer"

    asyncio.run(main())


def test_a_quota_bounds_what_runs_at_once_for_each_key(url: str) -> None:
    ff = Fabric(url)
    running: dict[str, int] = {}
    most: dict[str, int] = {}

    @ff.task(quota="places", concurrency_key=lambda customer: customer)
    async def crawl(customer: str) -> None:
        running[customer] = running.get(customer, 0) + 1
        most[customer] = max(most.get(customer, 0), running[customer])
        await asyncio.sleep(0.01)
        running[customer] -= 1

    async def main() -> None:
        async with ff, working(ff, concurrency=10):
            await ff.create_quota("places", at_once=2)
            runs = await ff.submit_many(crawl, ["ada", "bob"] * 5)
            for run in runs:
                await run.result("60s")
            assert most == {"ada": 2, "bob": 2}

    asyncio.run(main())


def test_a_lane_gets_its_weight_its_aging_and_its_bounds(url: str) -> None:
    ff = Fabric(url)

    @ff.task(lane="gpu")
    async def render() -> None: ...

    async def main() -> None:
        async with ff:
            await ff.create_budget("gpt", hard={"tokens": 10})
            await ff.create_quota("slow", at_once=1)
            lane = await ff.configure_lane(
                "gpu", weight=3, aging="1m", budgets=["gpt"], quota="slow"
            )
            assert (lane.weight, lane.aging_ms) == (3, 60_000)
            info = await (await ff.submit(render)).info()
            assert info.bounds == Bounds(budget_ids=("gpt",), quota_policy_id="slow")
            cleared = await ff.configure_lane("gpu", budgets=[], quota="")
            assert (cleared.weight, cleared.bounds) == (3, Bounds())
            with pytest.raises(NotFound, match="missing"):
                await ff.configure_lane("gpu", budgets=["missing"])

    asyncio.run(main())


def test_the_blocking_fabric_handles_limits_too(durable_url: str) -> None:
    with Fabric(durable_url).sync as ff:
        assert ff.create_budget("gpt", hard={"tokens": 10}).usage == {}
        assert ff.report_usage("gpt", tokens=4, dedup_key="a") == Ok()
        assert ff.report_usage("gpt", tokens=4, dedup_key="a") == Ok()
        assert ff.budget("gpt").usage == {"tokens": 4}
        assert ff.update_budget("gpt", soft={"tokens": 5}).policy is not None
        assert ff.raise_budget("gpt", tokens=20).usage == {"tokens": 4}
        assert ff.reset_budget("gpt").usage == {"tokens": 0}
        assert len(ff.budgets()) == 1
        assert ff.create_quota("crawl", at_once=1).gates == ()
        assert ff.update_quota("crawl", at_once=2).policy.active_concurrency_cap == 2
        assert ff.quota("crawl").policy == ff.quotas()[0]
        assert ff.configure_lane("gpu", weight=2).weight == 2
