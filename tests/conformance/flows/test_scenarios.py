"""Whole flows from submit to end: chains, losses, joins, and the flow's own state."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.errors import (
    EdgeNotInForce,
    ExecutionNotTerminal,
    InvalidDependency,
    WaitTimeout,
)
from flowfabric.model.flow import FlowEvent, FlowState
from flowfabric.model.flow_results import CascadeOutcome, DependencyResolved
from flowfabric.model.state import (
    AttemptState,
    EligibilityState,
    LifecyclePhase,
    OwnershipState,
    PublicState,
    TerminalOutcome,
)
from tests.support.builders import policy
from tests.support.flows import Graph, arrows, edge, empty, node, pump, submit, woven
from tests.support.lab import TTL_MS, Lab
from tests.support.waits import suspended


@woven
async def test_scenario_5_a_chain_runs_link_by_link(lab: Lab) -> None:
    graph = await submit(lab, "abcd", arrows("a>b>c>d"))
    for at, name in enumerate("abcd"):
        for later in "abcd"[at + 1 :]:
            assert await graph.state(later) == "waiting_children"
        await graph.start(name)
        assert len(graph.claimed) == 1
        await graph.complete(name)
    assert set((await graph.states()).values()) == {"completed"}
    assert await graph.events() == ["completed"]


@woven
async def test_scenario_5_a_fan_out_runs_at_once(lab: Lab) -> None:
    leaves = [f"l{at}" for at in range(20)]
    graph = await submit(lab, ["a", *leaves], [edge("a", leaf) for leaf in leaves])
    await graph.start("a")
    assert len(graph.claimed) == 1
    await graph.complete("a")
    await graph.start(*leaves)
    await graph.complete(*leaves)
    assert await graph.flow_state() is FlowState.COMPLETED


@woven
async def test_scenario_5_a_diamond_waits_for_both_sides(lab: Lab) -> None:
    graph = await submit(lab, "abcd", arrows("a>b>d", "a>c>d"))
    await graph.complete("a", "b")
    assert await graph.state("d") == "waiting_children"
    assert await graph.counts("d") == (2, 1, 0, 0)
    await graph.complete("c", "d")
    assert await graph.events() == ["completed"]


@woven
async def test_scenario_6_a_failure_skips_what_follows_and_nothing_else(lab: Lab) -> None:
    """The whole state vector, transitively, in the transaction of the failure."""
    graph = await submit(lab, "abcdefg", arrows("a>b>c>d>e", "a>f>g"))
    await graph.complete("a")
    await graph.fail("b")
    assert await graph.states() == {
        "a": "completed",
        "b": "failed",
        **dict.fromkeys("cde", "skipped"),
        "f": "active",
        "g": "waiting_children",
    }
    snapshot = await lab.describe(graph.ids["d"])
    state = snapshot.state
    assert state.lifecycle_phase is LifecyclePhase.TERMINAL
    assert state.ownership_state is OwnershipState.UNOWNED
    assert state.eligibility_state is EligibilityState.NOT_APPLICABLE
    assert state.terminal_outcome is TerminalOutcome.SKIPPED
    assert state.attempt_state is AttemptState.NONE
    assert snapshot.failure_reason == "dependency_impossible"
    assert snapshot.completed_at == lab.now
    await graph.complete("f", "g")
    assert await graph.events() == ["failed"]
    row = await graph.row()
    counts = (row.completed_count, row.failed_count, row.skipped_count, row.node_count)
    assert counts == (3, 1, 3, 7)


@woven
async def test_d61_skips_have_no_depth_limit(lab: Lab) -> None:
    """Other systems stop at 50 levels."""
    names = [f"n{at}" for at in range(300)]
    graph = await submit(lab, names, arrows(">".join(names)))
    await graph.fail("n0")
    assert (await graph.row()).skipped_count == 299
    assert await graph.events() == ["failed"]


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
@woven
async def test_every_loss_skips(lab: Lab, outcome: str) -> None:
    """Any outcome but success is a loss."""
    graph = await submit(lab, "ab", arrows("a>b"))
    await graph.end("a", outcome)
    assert await graph.state("b") == "skipped"
    assert await graph.counts("b") == (1, 0, 1, 0)


@woven
async def test_scenario_7_an_edge_is_resolved_once(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    row = (await graph.edges())["a>b"]
    ends = graph.ends("a>b")
    async with lab.refuses(ExecutionNotTerminal, "upstream_execution_id"):
        await lab.engine.resolve_dependency(edge_id=row.edge_id, **ends)
    await graph.complete("a")
    async with lab.unchanged():
        again = await lab.engine.resolve_dependency(edge_id=row.edge_id, **ends)
    assert again == DependencyResolved("already_resolved")
    staged = Graph(lab, graph.flow_id, graph.ids)
    await staged.add("c", "d")
    pending = await staged.stage("c>d")
    async with lab.refuses(EdgeNotInForce, "never applied"):
        await lab.engine.resolve_dependency(edge_id=pending, **staged.ends("c>d"))
    async with lab.refuses(InvalidDependency, "edge_id"):
        await lab.engine.resolve_dependency(edge_id=row.edge_id, **staged.ends("c>d"))


@woven
async def test_scenario_15_a_cascade_again_finds_nothing(lab: Lab) -> None:
    """The second dispatch is a no-op; so is one of what has not ended or has no flow."""
    graph = await submit(lab, "abc", arrows("a>b>c"))
    alone = await lab.completed(lane_id="other")
    async with lab.unchanged():
        for key in (graph.ids["a"], alone):
            reply = await lab.engine.cascade_completion(execution_id=key)
            assert reply == CascadeOutcome(0, 0, True)
    await graph.complete("a")
    async with lab.unchanged():
        reply = await lab.engine.cascade_completion(execution_id=graph.ids["a"])
        assert reply == CascadeOutcome(0, 0, True)
    assert await pump(lab) == 0


@pytest.mark.parametrize(
    "how", ["deadline", "attempt timeout", "suspension", "reclaims", "cancel", "fail"]
)
@woven
async def test_scenario_14_every_end_is_told_and_cascades(lab: Lab, how: str) -> None:
    """One routine ends executions, so no end leaves its children waiting."""
    rules: dict[str, Any] = {
        "deadline": {"execution_deadline_at": lab.now + 100},
        "attempt timeout": {"policy": policy(attempt_timeout_ms=100)},
        "reclaims": {"policy": policy(max_reclaim_count=0)},
    }
    graph = await submit(lab, [node("a", **rules.get(how, {})), "b"], arrows("a>b"))
    if how != "deadline":
        await graph.start("a")
    match how:
        case "suspension":
            claimed = graph.claimed[graph.ids["a"]]
            await suspended(lab, claimed=claimed, timeout_at=lab.now + 100)
            await lab.after(100)
        case "reclaims":
            await lab.after(TTL_MS)
        case "cancel" | "fail":
            await graph.end("a", "cancelled" if how == "cancel" else "failed")
        case _:
            await lab.after(100)
    assert (await lab.record(graph.ids["a"])).is_terminal
    assert await graph.state("b") == "skipped"
    for name in "ab":
        (event,) = await lab.completions(graph.ids[name])
        assert event.flow_id == graph.flow_id


@woven
async def test_scenario_14_who_has_no_flow_says_so(lab: Lab) -> None:
    key = await lab.completed()
    (event,) = await lab.completions(key)
    assert event.flow_id is None
    assert (await lab.dump())["flow_events"] == []


@woven
async def test_scenario_19_every_event_tells_its_tenant_and_tags(lab: Lab) -> None:
    """A filter shows all its matches, skips and cancels included."""
    tags = {"team.name": "x"}
    nodes = [node(name, tags=tags) for name in "abc"]
    graph = await submit(lab, nodes, arrows("a>b"), namespace="tenant", tags=tags)
    await graph.cancel("a")
    await lab.engine.cancel_flow(flow_id=graph.flow_id)
    assert await graph.states() == {"a": "cancelled", "b": "skipped", "c": "cancelled"}
    events = (await lab.dump())["completion_events"] + (await lab.dump())["flow_events"]
    assert len(events) == 4
    assert {(each.namespace, tuple(each.tags.items())) for each in events} == {
        ("tenant", tuple(tags.items()))
    }
    assert (await lab.engine.list_flows(namespace="default")).items == ()


# --- the flow's own state ----------------------------------------------------------------------


@woven
async def test_d22_more_than_fifty_members_reach_completed(lab: Lab) -> None:
    """Exact counts, whatever the size."""
    names = [f"n{at}" for at in range(120)]
    graph = await submit(lab, names, tags={"team.name": "a"})
    await graph.start()
    for name in names[:-1]:
        await graph.complete(name)
    assert (await graph.snapshot()).members == {PublicState.COMPLETED: 119, PublicState.ACTIVE: 1}
    assert await graph.flow_state() is FlowState.RUNNING
    assert await graph.events() == []
    await graph.complete(names[-1])
    (event,) = (await lab.dump())["flow_events"]
    assert isinstance(event, FlowEvent)
    assert (event.event_type.value, event.occurred_at) == ("completed", lab.now)
    assert (event.namespace, event.tags) == ("default", {"team.name": "a"})
    assert (await graph.snapshot()).finished_at == lab.now


@woven
async def test_open_running_and_blocked_are_what_the_members_do(lab: Lab) -> None:
    """The derived states."""
    graph = await submit(lab, "ab")
    assert await graph.flow_state() is FlowState.OPEN
    await graph.start()
    assert await graph.flow_state() is FlowState.RUNNING
    claimed = graph.claimed[graph.ids["a"]]
    await suspended(lab, claimed=claimed)
    assert await graph.flow_state() is FlowState.RUNNING
    await graph.complete("b")
    assert await graph.flow_state() is FlowState.BLOCKED
    summary = await lab.engine.project_flow_summary(flow_id=graph.flow_id)
    assert summary.total_members == 2
    assert summary.members == {PublicState.SUSPENDED: 1, PublicState.COMPLETED: 1}
    delayed = await submit(lab, [node("a", delay_until=lab.now + 5)])
    assert await delayed.flow_state() is FlowState.BLOCKED


@woven
async def test_skipped_alone_counts_as_completed_but_a_loss_does_not(lab: Lab) -> None:
    """Failed if any failed, was cancelled or expired."""
    for how in ("fail", "cancel"):
        graph = await submit(lab, "ab", arrows("a>b"))
        await getattr(graph, how)("a")
        assert await graph.flow_state() is FlowState.FAILED
    late = await submit(lab, [node("a", execution_deadline_at=lab.now + 10), "b"])
    await late.complete("b")
    await lab.after(10)
    assert await late.flow_state() is FlowState.FAILED
    assert (await late.row()).expired_count == 1


@woven
async def test_an_empty_flow_is_open(lab: Lab) -> None:
    graph = await empty(lab)
    assert await graph.flow_state() is FlowState.OPEN
    assert (await graph.snapshot()).finished_at is None


@woven
async def test_a_flow_can_be_waited_for(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    with pytest.raises(WaitTimeout, match="2 members left"):
        await lab.engine.wait_for_flow(flow_id=graph.flow_id, wait_ms=1)
    waiter = asyncio.create_task(lab.engine.wait_for_flow(flow_id=graph.flow_id, wait_ms=20_000))
    await asyncio.sleep(0)
    await graph.complete("a", "b")
    done = await waiter
    assert done.public_flow_state is FlowState.COMPLETED
    assert done.members == {PublicState.COMPLETED: 2}


@woven
async def test_members_ended_in_one_batch_are_counted_each(lab: Lab) -> None:
    """A batch gives what its commands give one after the other."""
    names = [f"s{at}" for at in range(30)]
    graph = await submit(lab, [*names, "d"], [edge(name, "d") for name in names])
    await graph.start()
    claims = [graph.claimed.pop(graph.ids[name]) for name in names]
    await asyncio.gather(*(lab.engine.complete(each.handle) for each in claims))
    assert await graph.state("d") == "waiting"
    assert await graph.counts("d") == (30, 30, 0, 0)
