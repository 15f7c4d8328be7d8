"""Replay of members, and of members skipped because of them.

An edge remembers which life of its upstream decided it, so each life counts once: a skipped member
that is replayed alone waits for the next life of what it lacked.
"""

from __future__ import annotations

import asyncio

import pytest

from flowfabric import limits
from flowfabric.errors import ExecutionNotTerminal, MaxReplaysExhausted, NotFound
from flowfabric.ids import new_uuid7s
from flowfabric.model.event import OperatorEventType
from flowfabric.model.flow import AllDone, AnySucceeded, FlowState, GroupState, OnSatisfied, Quorum
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.state import AttemptState, BlockingReason, EligibilityState, PublicState
from tests.support.flows import Graph, arrows, fan_in, node, pump, submit, woven
from tests.support.lab import Lab

CANCEL, LET_RUN = OnSatisfied.CANCEL_REMAINING, OnSatisfied.LET_RUN


async def replay(graph: Graph, name: str, **fields: object) -> str:
    """Replay a member; what becomes of it at once. Every answer is what is stored."""
    reply = await graph.lab.engine.replay_execution(execution_id=graph.ids[name], **fields)  # type: ignore[arg-type]
    assert reply.public_state.value == await graph.state(name)
    return reply.public_state.value


@woven
async def test_a_normal_replay_runs_at_once_and_opens_the_flow_again(lab: Lab) -> None:
    """Satisfied edges stay, downstreams stay, the flow counts on."""
    graph = await submit(lab, "abc", arrows("a>b>c"))
    await graph.complete("a")
    await graph.fail("b")
    assert await graph.flow_state() is FlowState.FAILED
    assert await replay(graph, "b") == "waiting"
    record = await lab.record(graph.ids["b"])
    assert record.state.attempt_state is AttemptState.PENDING_REPLAY_ATTEMPT
    assert await graph.states() == {"a": "completed", "b": "waiting", "c": "skipped"}
    assert await graph.edge_states() == {"a>b": "satisfied", "b>c": "impossible"}
    assert (await graph.snapshot()).finished_at is None
    await graph.complete("b")
    assert await graph.state("c") == "skipped"
    assert await graph.events() == ["failed", "reopened", "completed"]
    kinds = [event.event_type for event in await lab.operator_events(graph.ids["b"])]
    assert kinds == [OperatorEventType.REPLAYED]


@woven
async def test_scenario_18_a_skipped_member_waits_again(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>c", "b>c"))
    await graph.start()
    await graph.complete("a")
    await graph.fail("b")
    assert await replay(graph, "c") == "waiting_children"
    state = (await lab.record(graph.ids["c"])).state
    assert state.eligibility_state is EligibilityState.BLOCKED_BY_DEPENDENCIES
    assert state.blocking_reason is BlockingReason.WAITING_FOR_CHILDREN
    assert await graph.edge_states() == {"a>c": "satisfied", "b>c": "applied"}
    group = await graph.group("c")
    assert group.group_state is GroupState.PENDING
    assert (group.satisfied_count, group.failed_count, group.satisfied_at) == (1, 0, None)
    assert (await graph.member("c")).generation == 1
    assert await lab.claims() == []
    assert await replay(graph, "b") == "waiting"
    await graph.complete("b")
    assert await graph.state("c") == "waiting"
    await graph.complete("c")
    assert await graph.events() == ["failed", "reopened", "completed"]


@woven
async def test_d08_the_life_that_decided_an_edge_is_not_counted_again(lab: Lab) -> None:
    """Neither by the loop nor by hand; it does not skip the child once more."""
    graph = await submit(lab, "ab", arrows("a>b"))
    await graph.fail("a")
    await replay(graph, "b")
    await lab.after(60_000)
    await lab.engine.cascade_completion(execution_id=graph.ids["a"])
    row = (await graph.edges())["a>b"]
    again = await lab.engine.resolve_dependency(edge_id=row.edge_id, **graph.ends("a>b"))
    assert again.outcome == "already_resolved"
    assert await graph.state("b") == "waiting_children"
    await replay(graph, "a")
    await graph.fail("a")
    assert await graph.state("b") == "skipped"
    assert (await graph.edges())["a>b"].resolved_generation == 1


@woven
async def test_a_skipped_member_whose_upstream_already_had_a_better_life_goes_on(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b", passes_result=True))
    await graph.fail("a")
    await replay(graph, "a")
    await graph.complete("a", result=b"second")
    assert await graph.state("b") == "skipped"
    await replay(graph, "b")
    assert await graph.state("b") == "waiting"
    assert await graph.payload("b") == b"second"
    assert await graph.edge_states() == {"a>b": "satisfied"}


@woven
async def test_a_skipped_member_whose_upstream_failed_again_is_skipped_again(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    await graph.fail("a")
    await replay(graph, "a")
    await graph.fail("a")
    await replay(graph, "b")
    assert await graph.state("b") == "skipped"
    assert len(await lab.completions(graph.ids["b"])) == 2


@woven
async def test_replay_with_cascade_takes_the_skipped_along_all_the_way(lab: Lab) -> None:
    """Transitively, on request; what was not skipped is left alone."""
    graph = await submit(lab, "abcdex", arrows("a>b>c>d", "b>e", "a>x"))
    await graph.start()
    await graph.fail("a")
    assert (await graph.row()).skipped_count == 5
    assert await replay(graph, "a", cascade=True) == "waiting"
    assert await graph.states() == {
        "a": "waiting",
        **dict.fromkeys("bcdex", "waiting_children"),
    }
    assert await graph.run() == 6
    assert await graph.events() == ["failed", "reopened", "completed"]
    reasons = [event.details["requested_by"] for event in await lab.operator_events(graph.ids["d"])]
    assert reasons == ["flow"]


@woven
async def test_a_cascade_leaves_who_was_not_skipped(lab: Lab) -> None:
    graph = await submit(lab, ["a", "b", node("d", AllDone()), "c"], arrows("a>d", "a>c", "b>c"))
    await graph.start()
    await graph.complete("b")
    await graph.fail("a")
    await graph.complete("d")
    await replay(graph, "a", cascade=True)
    assert await graph.states() == {
        "a": "waiting",
        "b": "completed",
        "c": "waiting_children",
        "d": "completed",
    }
    await graph.complete("a")
    assert await graph.state("c") == "waiting"
    assert await graph.state("d") == "completed"


@woven
async def test_a_cascade_over_two_failed_upstreams_waits_for_both(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>c", "b>c"))
    await graph.start()
    await graph.fail("a", "b")
    await replay(graph, "a", cascade=True)
    await graph.complete("a")
    assert await graph.state("c") == "waiting_children"
    await replay(graph, "b")
    await graph.complete("b")
    assert await graph.state("c") == "waiting"


@pytest.mark.parametrize("how", [CANCEL, LET_RUN])
@woven
async def test_an_any_of_child_is_replayed_with_a_fresh_group(lab: Lab, how: OnSatisfied) -> None:
    """Other systems leave the group impossible and count past n."""
    graph = await fan_in(lab, 3, AnySucceeded(how))
    await graph.start()
    await graph.fail("s0", "s1", "s2")
    assert await graph.state("d") == "skipped"
    assert await replay(graph, "d") == "waiting_children"
    assert await graph.counts("d") == (3, 0, 0, 0)
    await replay(graph, "s1")
    await graph.complete("s1")
    assert await graph.state("d") == "waiting"
    await pump(lab)
    assert await graph.state("d") == "waiting"
    assert await graph.counts("d") == (3, 1, 0, 0)


@woven
async def test_a_quorum_child_keeps_its_successes(lab: Lab) -> None:
    """Satisfied edges count on, lost ones are counted anew."""
    graph = await fan_in(lab, 4, Quorum(3, LET_RUN))
    await graph.start()
    await graph.complete("s0")
    await graph.fail("s1", "s2")
    assert await graph.state("d") == "skipped"
    await graph.complete("s3")
    await replay(graph, "d")
    assert await graph.counts("d") == (4, 2, 0, 0)
    assert await graph.state("d") == "waiting_children"
    await replay(graph, "s1")
    await graph.fail("s1")
    assert await graph.state("d") == "waiting_children"
    await replay(graph, "s2")
    await graph.complete("s2")
    assert await graph.state("d") == "waiting"
    assert await graph.counts("d") == (4, 3, 1, 0)


@woven
async def test_d13_a_group_that_late_successes_have_met_frees_its_child_at_once(lab: Lab) -> None:
    graph = await fan_in(lab, 3, Quorum(2, LET_RUN))
    await graph.start()
    await graph.fail("s0")
    await graph.cancel("d")
    await graph.complete("s1", "s2")
    assert await replay(graph, "d") == "waiting"
    assert await graph.state("d") == "waiting"
    lost = await fan_in(lab, 2, AnySucceeded(LET_RUN))
    await lost.fail("s0", "s1")
    await replay(lost, "s0")
    await lost.complete("s0")
    await replay(lost, "d")
    assert await lost.state("d") == "waiting"


@woven
async def test_who_ended_before_its_group_was_decided_waits_when_replayed(lab: Lab) -> None:
    """A choice of ours: a replay does not run ahead of its dependencies."""
    graph = await submit(lab, "ab", arrows("a>b", passes_result=True))
    await graph.cancel("b")
    assert await replay(graph, "b") == "waiting_children"
    await graph.complete("a", result=b"1")
    assert await graph.state("b") == "waiting"
    assert await graph.payload("b") == b"1"


@woven
async def test_replays_in_one_batch_are_each_told_what_becomes_of_them(lab: Lab) -> None:
    """As one by one: a later command in the batch does not change an earlier answer."""
    graph = await submit(lab, "abcd", arrows("a>b", "c>d"))
    await graph.start("a", "c")
    await graph.fail("c")
    await graph.cancel("b", "a")
    engine, ids = lab.engine, graph.ids
    answers = await asyncio.gather(
        engine.replay_execution(execution_id=ids["b"]),
        engine.replay_execution(execution_id=ids["d"]),
        engine.replay_execution(execution_id=ids["c"]),
        engine.replay_execution(execution_id=ids["a"]),
        lab.cancel(ids["b"]),
    )
    assert [each.public_state.value for each in answers] == [
        "waiting_children",
        "waiting_children",
        "waiting",
        "waiting",
        "cancelled",
    ]
    assert await graph.states() == {
        "a": "waiting",
        "b": "cancelled",
        "c": "waiting",
        "d": "waiting_children",
    }


@woven
async def test_a_success_replayed_leaves_its_children_alone(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b", "a>c"))
    await graph.complete("a")
    await graph.start("b")
    await replay(graph, "a")
    assert await graph.state("b") == await graph.state("c") == "active"
    await graph.fail("a")
    assert await graph.state("b") == await graph.state("c") == "active"
    assert await graph.edge_states() == {"a>b": "satisfied", "a>c": "satisfied"}
    await graph.complete("b", "c")
    assert await graph.flow_state() is FlowState.FAILED


@woven
async def test_a_replay_is_refused_as_for_anybody(lab: Lab) -> None:
    rules = ExecutionPolicy(max_replay_count=1)
    graph = await submit(lab, ["a", node("b", policy=rules)], arrows("a>b"))
    async with lab.refuses(ExecutionNotTerminal):
        await replay(graph, "b")
    await graph.fail("a")
    await replay(graph, "a", cascade=True)
    await graph.fail("a")
    assert await graph.state("b") == "skipped"
    async with lab.refuses(MaxReplaysExhausted):
        await replay(graph, "b")
    await replay(graph, "a", cascade=True)  # who has no life left stays where it is
    assert await graph.state("b") == "skipped"
    await graph.complete("a")
    assert await graph.flow_state() is FlowState.COMPLETED


@woven
async def test_a_wide_skip_is_replayed_whole(lab: Lab) -> None:
    leaves = [f"l{at}" for at in range(300)]
    graph = await submit(lab, ["a", *leaves], arrows(*[f"a>{leaf}" for leaf in leaves]))
    await graph.fail("a")
    await replay(graph, "a", cascade=True)
    assert (await graph.row()).skipped_count == 0
    assert (await graph.snapshot()).members == {
        PublicState.WAITING: 1,
        PublicState.WAITING_CHILDREN: 300,
    }
    await graph.complete("a")
    assert (await graph.snapshot()).members[PublicState.WAITING] == 300


# --- a whole flow --------------------------------------------------------------------------------


@woven
async def test_a_retry_runs_again_what_was_lost_and_what_that_skipped(lab: Lab) -> None:
    graph = await submit(lab, "abcde", arrows("a>b>c", "a>d"))
    await graph.complete("a", "d")
    await graph.fail("b", "e")
    reply = await lab.engine.retry_flow(flow_id=graph.flow_id, reason="the disk is back")
    assert {each.node_name for each in reply.replayed} == {"b", "e"}
    assert (reply.flow_id, reply.left) == (graph.flow_id, 0)
    assert await graph.states() == {
        "a": "completed",
        "b": "waiting",
        "c": "waiting_children",
        "d": "completed",
        "e": "waiting",
    }
    again = await lab.engine.retry_flow(flow_id=graph.flow_id)
    assert (again.replayed, again.left) == ((), 0)


@woven
async def test_a_retry_leaves_alone_what_a_join_did_without(lab: Lab) -> None:
    graph = await fan_in(lab, 3, Quorum(1, OnSatisfied.CANCEL_REMAINING))
    await graph.complete("s0")
    await pump(lab)
    assert await graph.state("s1") == "cancelled"
    await graph.complete("d")
    assert (await lab.engine.retry_flow(flow_id=graph.flow_id)).replayed == ()


@woven
async def test_a_retry_of_many_is_bounded_and_tells_how_many_are_left(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RETRIED_AT_ONCE", 2)
    graph = await submit(lab, "abc")
    await graph.fail("a", "b", "c")
    reply = await lab.engine.retry_flow(flow_id=graph.flow_id)
    assert (len(reply.replayed), reply.left) == (2, 1)
    assert (await lab.engine.retry_flow(flow_id=graph.flow_id)).left == 0
    assert {*(await graph.states()).values()} == {"waiting"}


@woven
async def test_a_retry_is_refused_as_a_whole_with_the_name_of_the_node(lab: Lab) -> None:
    policy = ExecutionPolicy(max_replay_count=0)
    graph = await submit(lab, [node("a"), node("b", policy=policy)])
    await graph.fail("a", "b")
    with pytest.raises(MaxReplaysExhausted, match="b: "):
        await lab.engine.retry_flow(flow_id=graph.flow_id)
    assert await graph.state("a") == "failed"
    with pytest.raises(NotFound):
        await lab.engine.retry_flow(flow_id=new_uuid7s(1)[0])
