from __future__ import annotations

import asyncio
from dataclasses import fields
from datetime import timedelta
from typing import Any, assert_type

import pytest

import flowfabric
from flowfabric import (
    Context,
    ExponentialBackoff,
    Fabric,
    FixedBackoff,
    InvalidInput,
    InvalidTask,
    RetryPolicy,
    Run,
    SyncContext,
)
from flowfabric.sdk.durations import to_ms
from flowfabric.sdk.options import SubmitKeywords, SubmitOptions, TaskKeywords, TaskOptions


def test_a_task_is_still_the_function_it_was() -> None:
    ff = Fabric("memory://")

    @ff.task
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    @ff.task(name="math.triple")
    async def triple(number: int) -> int:
        return 3 * number

    assert double(4) == 8
    assert asyncio.run(triple(4)) == 12
    assert (double.name, double.__doc__) == ("double", "Twice as much.")
    assert set(ff.tasks) == {"double", "math.triple"}


def test_type_checkers_see_arguments_and_results() -> None:
    ff = Fabric("memory://")

    @ff.task
    def double(number: int) -> int:
        return 2 * number

    @ff.task(lane="slow")
    async def shout(ctx: Context, text: str) -> str:
        return text.upper()

    async def main() -> None:
        async with ff:
            assert_type(double(4), int)
            assert_type(await ff.submit(double, 4), Run[int])
            assert_type(await double.submit(4), Run[int])
            assert_type(await ff.submit_many(shout, ["a"]), list[Run[str]])
            assert_type(await shout.options(key="k").submit("a"), Run[str])
            assert_type(ff.run("id", shout), Run[str])
            with pytest.raises(InvalidInput, match="shout: text"):
                await shout.submit(4)  # type: ignore[arg-type]

    asyncio.run(main())


def test_options_become_the_policy() -> None:
    ff = Fabric("memory://")

    @ff.task(
        lane="research",
        needs={"llm", "gpu"},
        retries=3,
        retry_on=(TimeoutError, "HTTPError"),
        backoff="2s",
        timeout="10m",
        deadline=timedelta(hours=1),
        recoveries=5,
        retention="7d",
    )
    def brief() -> None: ...

    policy = brief.policy
    assert policy.retry_policy == RetryPolicy(
        max_retries=3,
        backoff=FixedBackoff(delay_ms=2000),
        retryable_categories=("HTTPError", "Retry", "TimeoutError", "timeout"),
    )
    assert policy.timeout_policy.attempt_timeout_ms == 600_000
    assert policy.timeout_policy.execution_deadline_ms == 3_600_000
    assert policy.routing_requirements.required_capabilities == ("gpu", "llm")
    assert (policy.max_reclaim_count, policy.retention_ttl_ms) == (5, 7 * 86_400_000)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"lain": "x"}, "lain"),
        ({"lane": ""}, "lane"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": "0s"}, "timeout_policy.attempt_timeout_ms"),
        ({"retries": -1}, "retry_policy.max_retries"),
        ({"needs": "llm"}, "needs"),
        ({"needs": ["a,b"]}, "needs"),
        ({"retries": RetryPolicy(), "backoff": ExponentialBackoff()}, "retries"),
        ({"retries": 3, "retry_on": "ValueError"}, "retry_on"),
        ({"retries": 3, "retry_on": ValueError}, "retry_on"),
        ({"retries": 3, "retry_on": [5]}, "retry_on"),
        ({"retries": 3, "retry_on": [int]}, "retry_on"),
        ({"retry_on": 5}, "retry_on"),
    ],
)
def test_a_wrong_option_is_refused_where_the_task_is_written(
    options: dict[str, Any], field: str
) -> None:
    ff = Fabric("memory://")
    with pytest.raises(flowfabric.errors.ValidationError) as caught:

        @ff.task(**options)
        def brief() -> None: ...

    assert caught.value.fields["field"] == field
    assert not ff.tasks


def test_a_call_without_options_asks_for_what_its_task_says() -> None:
    ff = Fabric("memory://")

    @ff.task(lane="slow", priority=3, retries=2, budgets=["b"], quota="q", concurrency_key="k")
    def double(number: int) -> int:
        return 2 * number

    @ff.task(quota="q", concurrency_key=lambda number: f"n{number}")
    def triple(number: int) -> int:
        return 3 * number

    for call in (double.call(4), double.call(5), triple.call(4), triple.call(5)):
        assert call.request() == call.own_request()
    asked = double.call(4).request()
    assert (asked.lane_id, asked.priority, asked.budget_ids) == ("slow", 3, ("b",))
    assert (asked.quota_policy_id, asked.concurrency_key) == ("q", "k")
    assert asked.input_payload == b'{"number":4}'
    assert triple.call(5).request().concurrency_key == "n5"


def test_an_argument_named_like_a_submit_option_is_refused() -> None:
    ff = Fabric("memory://")
    with pytest.raises(InvalidTask, match="fetch: the argument 'key' is also a submit option"):

        @ff.task
        def fetch(key: str) -> None: ...


def test_variadic_and_unreadable_arguments_are_refused() -> None:
    ff = Fabric("memory://")
    with pytest.raises(InvalidTask, match=r"\*rest: the arguments of a task have names"):

        @ff.task
        def gather(*rest: int) -> None: ...

    with pytest.raises(InvalidTask, match=r"fetch\.source: Fabric cannot be read from JSON"):

        @ff.task
        def fetch(source: Fabric) -> None: ...

    with pytest.raises(InvalidTask, match="result of give"):

        @ff.task
        def give() -> list[Fabric]:
            return []


def test_the_context_must_fit_the_function() -> None:
    ff = Fabric("memory://")
    with pytest.raises(InvalidTask, match="is not async: annotate ctx: SyncContext"):

        @ff.task
        def blocking(ctx: Context) -> None: ...

    with pytest.raises(InvalidTask, match="is async: annotate context: Context"):

        @ff.task
        async def waiting(context: SyncContext) -> None: ...


def test_two_tasks_cannot_share_a_name() -> None:
    ff = Fabric("memory://")

    @ff.task
    def brief() -> None: ...

    with pytest.raises(InvalidTask, match="the name is taken"):

        @ff.task(name="brief")
        def other() -> None: ...


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
        (2, 2_000),
        (0.25, 250),
        (timedelta(minutes=1), 60_000),
    ],
)
def test_durations_are_read_as_people_write_them(text: Any, milliseconds: int) -> None:
    assert to_ms(text, field="timeout") == milliseconds


@pytest.mark.parametrize("text", ["", "10", "10 parsecs", "-5s", -1, True, None, float("nan")])
def test_an_invalid_duration_is_refused_with_examples(text: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^invalid_input: timeout: ") as caught:
        to_ms(text, field="timeout")
    assert caught.value.fields == {"field": "timeout"}


def test_the_public_names_are_sorted_and_exist() -> None:
    names = flowfabric.__all__
    assert names == sorted(names)
    assert all(hasattr(flowfabric, name) for name in names)


def test_the_keywords_type_checkers_see_are_the_options_there_are() -> None:
    for keywords, options in ((TaskKeywords, TaskOptions), (SubmitKeywords, SubmitOptions)):
        assert list(keywords.__annotations__) == [field.name for field in fields(options)]
