"""A relative delay counts from the moment work could begin.

For a single execution and a node without upstreams that is the submit. For a member that waits for
others it is the moment its join is met, so that "a day after the report" can be said.
"""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidInput
from flowfabric.model.attempt import FailureClass
from flowfabric.model.flow import AllDone, AnySucceeded, EdgePolicy, OnSatisfied, Quorum
from flowfabric.model.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.model.state import PublicState
from tests.support.flows import arrows, empty, node, submit, woven
from tests.support.lab import Lab

LET_RUN = OnSatisfied.LET_RUN
DAY_MS = 86_400_000


@woven
async def test_a_relative_delay_of_a_single_execution_counts_from_its_submit(lab: Lab) -> None:
    key = await lab.create(delay_ms=1_000)
    assert await lab.state(key) is PublicState.DELAYED
    assert (await lab.record(key)).eligible_at == lab.now + 1_000
    await lab.after(999)
    assert await lab.claims() == []
    await lab.after(1)
    assert (await lab.claim()).execution_id == key


@woven
@pytest.mark.parametrize("passes", [False, True])
async def test_the_delay_of_a_member_begins_when_its_join_is_met(lab: Lab, passes: bool) -> None:
    graph = await submit(
        lab,
        ["report", node("remind", delay_ms=DAY_MS)],
        arrows("report>remind", passes_result=passes),
    )
    await lab.after(3 * DAY_MS)
    assert await graph.state("remind") == "waiting_children"
    await graph.complete("report", result=b'"done"')
    assert await graph.state("remind") == "delayed"
    assert (await lab.record(graph.ids["remind"])).eligible_at == lab.now + DAY_MS
    await lab.after(DAY_MS - 1)
    assert await lab.claims() == []
    await lab.after(1)
    await graph.start("remind")
    if passes:
        assert await graph.payload("remind") == b'"done"'


@woven
async def test_a_member_without_upstreams_is_delayed_from_the_submit(lab: Lab) -> None:
    graph = await submit(lab, [node("a", delay_ms=1_000), "b"], arrows("a>b"))
    assert await graph.state("a") == "delayed"
    await lab.after(1_000)
    await graph.complete("a")
    assert await graph.state("b") == "waiting"


@woven
@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        (None, ("success", "success")),
        (AllDone(), ("failed", "success")),
        (AnySucceeded(LET_RUN), ("failed", "success")),
        (Quorum(1, LET_RUN), ("failed", "success")),
    ],
)
async def test_every_join_begins_the_delay_when_it_is_met(
    lab: Lab, policy: EdgePolicy | None, ends: tuple[str, str]
) -> None:
    graph = await submit(lab, ["a", "b", node("c", policy, delay_ms=1_000)], arrows("a>c", "b>c"))
    await graph.start("a", "b")
    await graph.end("a", ends[0])
    await lab.after(500)
    await graph.end("b", ends[1])
    assert (await lab.record(graph.ids["c"])).eligible_at == lab.now + 1_000
    await lab.after(1_000)
    await graph.start("c")


@woven
async def test_an_instant_is_an_instant_for_members_too(lab: Lab) -> None:
    graph = await submit(lab, ["a", node("b", delay_until=lab.now + 1_000)], arrows("a>b"))
    await lab.after(400)
    await graph.complete("a")
    assert await graph.state("b") == "delayed"
    await lab.after(600)
    await graph.start("b")


@woven
async def test_what_is_skipped_is_not_delayed_first(lab: Lab) -> None:
    graph = await submit(lab, ["a", node("b", delay_ms=1_000), "c"], arrows("a>b>c"))
    await graph.fail("a")
    assert await graph.states() == {"a": "failed", "b": "skipped", "c": "skipped"}


@woven
async def test_a_hold_lies_above_a_delay_that_began_meanwhile(lab: Lab) -> None:
    graph = await submit(lab, ["a", node("b", delay_ms=1_000)], arrows("a>b"))
    await lab.engine.hold_execution(execution_id=graph.ids["b"])
    await graph.complete("a")
    await lab.after(400)
    await lab.engine.release_execution(execution_id=graph.ids["b"])
    assert await graph.state("b") == "delayed"
    await lab.after(600)
    await graph.start("b")


@woven
async def test_a_member_that_gets_its_edges_later_is_delayed_from_its_join(lab: Lab) -> None:
    graph = await empty(lab, "a")
    await graph.add("b", delay_ms=1_000)
    await graph.link("a>b")
    await lab.after(5_000)
    assert await graph.state("b") == "waiting_children"
    await graph.complete("a")
    assert (await lab.record(graph.ids["b"])).eligible_at == lab.now + 1_000


@woven
async def test_a_retry_waits_for_its_backoff_alone(lab: Lab) -> None:
    rules = ExecutionPolicy(retry_policy=RetryPolicy(backoff=FixedBackoff(delay_ms=10)))
    graph = await submit(lab, ["a", node("b", delay_ms=1_000, policy=rules)], arrows("a>b"))
    await graph.complete("a")
    await lab.after(1_000)
    await lab.engine.fail(await graph.handle("b"), reason="x", failure_class=FailureClass.TRANSIENT)
    assert (await lab.record(graph.ids["b"])).eligible_at == lab.now + 10


@woven
async def test_a_replay_starts_at_once_what_had_its_join_met(lab: Lab) -> None:
    """As the replay of any delayed execution does: whoever asks for it wants it now."""
    graph = await submit(lab, ["a", node("b", delay_ms=1_000)], arrows("a>b"))
    await graph.complete("a")
    await lab.after(1_000)
    await graph.fail("b")
    await lab.engine.replay_execution(execution_id=graph.ids["b"])
    await graph.start("b")
    await graph.cancel("b")
    await lab.engine.replay_execution(execution_id=graph.ids["b"])
    assert await graph.state("b") == "waiting"


@woven
async def test_what_never_ran_is_delayed_when_its_join_is_met_in_another_life(lab: Lab) -> None:
    """A day after the report is a day after the report that succeeded."""
    graph = await submit(lab, ["a", node("b", delay_ms=1_000)], arrows("a>b"))
    await graph.fail("a")
    await lab.engine.replay_execution(execution_id=graph.ids["a"], cascade=True)
    await lab.after(5_000)
    await graph.complete("a")
    assert await graph.state("b") == "delayed"
    assert (await lab.record(graph.ids["b"])).eligible_at == lab.now + 1_000


@woven
async def test_a_parent_that_waited_for_its_children_is_not_delayed_again(lab: Lab) -> None:
    graph = await submit(lab, ["a", node("b", delay_ms=1_000)], arrows("a>b"))
    await graph.complete("a")
    await lab.after(1_000)
    handle = await graph.handle("b")
    child = NewExecution(execution_kind="child", delay_ms=500)
    spawned = await lab.engine.spawn_children(handle, [child])
    await lab.engine.wait_children(handle)
    graph.ids["child"] = spawned.execution_ids[0]
    assert await graph.state("child") == "delayed"
    await lab.after(500)
    await graph.complete("child")
    assert await graph.state("b") == "waiting"


@woven
async def test_ff_why_tells_when_a_delay_begins_and_when_it_began(lab: Lab) -> None:
    graph = await submit(lab, [node("a", delay_ms=10), node("b", delay_ms=1_000)], arrows("a>b"))
    first = await lab.engine.explain(execution_id=graph.ids["a"])
    assert "join" not in first.summary
    waits = await lab.engine.explain(execution_id=graph.ids["b"])
    assert waits.summary.endswith("; its delay begins when its join is met")
    await lab.after(10)
    await graph.complete("a")
    told = await lab.engine.explain(execution_id=graph.ids["b"])
    assert told.summary == (
        f"waiting for delay until {lab.now + 1_000}; its delay began when its join was met"
    )
    assert told.due_at == lab.now + 1_000


@woven
async def test_a_delay_is_relative_or_an_instant_and_not_both(lab: Lab) -> None:
    instant = lab.now + 5_000
    async with lab.refuses(InvalidInput, "delay_ms"):
        await lab.create(delay_ms=1, delay_until=instant)
    async with lab.refuses(InvalidInput, "policy.delay_ms"):
        await lab.create(policy={"delay_ms": 1, "delay_until": instant})
    for wrong in (-1, "1s", 10**30, True, 1.5):
        async with lab.refuses(InvalidInput, "delay_ms"):
            await lab.create(delay_ms=wrong)
        async with lab.refuses(InvalidInput, "delay_ms"):
            await lab.create(policy={"delay_ms": wrong})


@woven
async def test_what_a_call_says_of_its_delay_counts_before_the_policy(lab: Lab) -> None:
    relative, absolute = {"delay_ms": 700}, {"delay_until": lab.now + 900}
    cases: list[tuple[dict[str, Any], dict[str, Any], int]] = [
        (relative, {}, 700),
        (relative, {"delay_ms": 50}, 50),
        (relative, absolute, 900),
        (absolute, {"delay_ms": 50}, 50),
    ]
    for policy, fields, until in cases:
        key = await lab.create(policy=policy, **fields)
        assert (await lab.record(key)).eligible_at == lab.now + until


@woven
async def test_the_same_key_with_another_delay_is_the_same_request(lab: Lab) -> None:
    """As with an instant: when work may begin is no part of what it is."""
    first = await lab.create(idempotency_key="k", delay_ms=10)
    again = await lab.engine.create_execution(
        execution_kind="work", idempotency_key="k", delay_ms=20
    )
    assert again.execution_id == first
