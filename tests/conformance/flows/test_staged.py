"""An edge that is staged is announced: its group is not whole without it.

By itself it keeps nobody back, as the seeds have it. As soon as another edge of the group is in
force, the member waits for it too, until it is applied and its upstream ends, or it is withdrawn.
"""

from __future__ import annotations

import pytest

from flowfabric.errors import (
    EdgeInForce,
    FlowAlreadyTerminal,
    InvalidDependency,
)
from flowfabric.ids import new_uuid7s
from flowfabric.kernel.flow.graph import StageEdge, WithdrawEdge
from flowfabric.model.flow import (
    AllDone,
    AnySucceeded,
    EdgePolicy,
    GroupState,
    OnSatisfied,
    Quorum,
)
from flowfabric.model.flow_results import AlreadyWithdrawn, Applied, Withdrawn
from tests.support.flows import Graph, arrows, empty, submit, woven
from tests.support.lab import Lab

LET_RUN = OnSatisfied.LET_RUN
HOUR_MS = 3_600_000


async def announced(lab: Lab, policy: EdgePolicy | None = None) -> tuple[Graph, str]:
    """`a` and `b` lead to `c`: the first edge is in force, the second is staged; its id."""
    graph = await empty(lab, "a", "b", "c")
    if policy is not None:
        await graph.join("c", policy)
    first, second = await graph.stage("a>c"), await graph.stage("b>c")
    assert await graph.apply("a>c", first) == Applied(2)
    return graph, second


@woven
async def test_a_staged_edge_is_not_lost_when_another_upstream_ends_first(lab: Lab) -> None:
    graph, second = await announced(lab)
    await graph.complete("a")
    assert await graph.state("c") == "waiting_children"
    assert (await graph.group("c")).group_state is GroupState.PENDING
    assert await graph.apply("b>c", second) == Applied(1)
    await graph.complete("b")
    assert await graph.state("c") == "waiting"
    assert await graph.counts("c") == (2, 2, 0, 0)


@woven
async def test_an_upstream_that_ended_before_its_edge_was_applied_counts_then(lab: Lab) -> None:
    graph, second = await announced(lab)
    await graph.complete("a", "b")
    assert await graph.state("c") == "waiting_children"
    assert await graph.apply("b>c", second) == Applied(0)
    assert await graph.state("c") == "waiting"


@woven
@pytest.mark.parametrize(
    ("policy", "ends", "then"),
    [
        (None, "success", "waiting_children"),
        (None, "failed", "skipped"),
        (AllDone(), "success", "waiting_children"),
        (AllDone(), "failed", "waiting_children"),
        (AnySucceeded(LET_RUN), "success", "waiting"),
        (AnySucceeded(LET_RUN), "failed", "waiting_children"),
        (Quorum(1, LET_RUN), "failed", "waiting_children"),
        (Quorum(2, LET_RUN), "success", "waiting_children"),
        (Quorum(2, LET_RUN), "failed", "skipped"),
    ],
)
async def test_every_join_waits_for_what_was_announced(
    lab: Lab, policy: EdgePolicy | None, ends: str, then: str
) -> None:
    graph, _ = await announced(lab, policy)
    await graph.end("a", ends)
    assert await graph.state("c") == then


@woven
async def test_the_only_edge_of_a_member_does_not_speak_for_one_that_was_announced(
    lab: Lab,
) -> None:
    """A group of one is its edge; with the second edge it is a group of two."""
    graph = await submit(lab, "abc", arrows("a>c"))
    second = await graph.stage("b>c")
    await graph.complete("a")
    assert await graph.state("c") == "waiting_children"
    assert await graph.counts("c") == (2, 1, 0, 0)
    await graph.apply("b>c", second)
    await graph.complete("b")
    assert await graph.state("c") == "waiting"


@woven
async def test_what_waits_for_a_staged_edge_says_so(lab: Lab) -> None:
    """I9: nothing waits without a cause that has a name, and what to do about it."""
    graph, second = await announced(lab)
    await graph.complete("a")
    told = await lab.engine.explain(execution_id=graph.ids["c"])
    assert told.summary == (
        "waits for 1 of 2 upstreams, all must succeed: b (active, its edge is only staged)"
    )
    assert told.hints == (f"apply or withdraw edge {second}",)
    (upstream,) = told.upstreams
    assert (upstream.execution_id, upstream.staged_edge_id) == (graph.ids["b"], second)
    assert (await graph.group("c")).staged_count == 1
    assert (await lab.engine.doctor()).problems == ()
    lab.clock.advance(HOUR_MS)
    (found,) = [each for each in (await lab.engine.doctor()).problems if each.code == "flows"]
    assert f"edge {second}" in found.detail
    assert "apply or withdraw it" in found.detail
    await lab.engine.tick()  # b's lease has lapsed too
    await graph.withdraw("b>c", second)


# --- withdrawing -------------------------------------------------------------------------------


@woven
async def test_a_withdrawn_edge_is_waited_for_no_more(lab: Lab) -> None:
    graph, second = await announced(lab)
    await graph.complete("a")
    revision = (await graph.snapshot()).graph_revision
    reply = await graph.withdraw("b>c", second)
    assert reply == Withdrawn(second, revision + 1, GroupState.SATISFIED)
    assert await graph.state("c") == "waiting"
    assert await graph.counts("c") == (1, 1, 0, 0)
    assert (await graph.snapshot()).edge_count == 1
    async with lab.unchanged():
        assert await graph.withdraw("b>c", second) == AlreadyWithdrawn()
    await graph.start("c")


@woven
async def test_a_group_of_which_nothing_has_ended_is_left_open_by_a_withdrawal(lab: Lab) -> None:
    """Another edge may be on its way; only ends decide."""
    graph, second = await announced(lab, Quorum(2, LET_RUN))
    assert (await graph.withdraw("b>c", second)).group_state is GroupState.PENDING
    assert await graph.state("c") == "waiting_children"
    await graph.link("b>c")
    await graph.complete("a", "b")
    assert await graph.state("c") == "waiting"


@woven
async def test_a_withdrawal_may_be_what_makes_a_group_impossible(lab: Lab) -> None:
    graph, second = await announced(lab, AnySucceeded(LET_RUN))
    await graph.fail("a")
    assert (await graph.withdraw("b>c", second)).group_state is GroupState.IMPOSSIBLE
    assert await graph.state("c") == "skipped"


@woven
async def test_a_withdrawn_edge_neither_hands_on_nor_stands_in_the_way(lab: Lab) -> None:
    graph = await empty(lab, "a", "b", "c")
    back = await graph.stage("c>a", data_passing_ref="result")
    await graph.withdraw("c>a", back)
    await graph.link("a>c", data_passing_ref="result")  # no cycle any more
    staged = await graph.stage("b>c", data_passing_ref="result")
    await graph.withdraw("b>c", staged)
    await graph.complete("a", result=b"one")
    assert await graph.payload("c") == b"one"


@woven
async def test_an_edge_can_be_staged_and_withdrawn_in_one_commit(lab: Lab) -> None:
    """A batch means what its commands mean one by one."""
    graph = await submit(lab, "abc", arrows("a>c"))
    edge_id = new_uuid7s(1)[0]
    edge = {
        "flow_id": graph.flow_id,
        "edge_id": edge_id,
        "upstream_execution_id": graph.ids["b"],
        "downstream_execution_id": graph.ids["c"],
    }
    withdraw = WithdrawEdge(**edge)
    stage = StageEdge(**edge, dependency_kind="success_only", expected_graph_revision=None)
    await lab.engine.execute_together([stage, withdraw])
    await lab.engine.execute_together([stage, withdraw, stage, withdraw])
    again = await lab.engine.execute_together([withdraw, withdraw])
    assert again == [AlreadyWithdrawn(), AlreadyWithdrawn()]
    await lab.engine.execute_together([stage])
    first, second = await lab.engine.execute_together([withdraw, withdraw])
    assert (type(first), type(second)) == (Withdrawn, AlreadyWithdrawn)
    await graph.complete("a")
    assert await graph.state("c") == "waiting"


@woven
async def test_only_a_staged_edge_can_be_withdrawn(lab: Lab) -> None:
    graph = await empty(lab, "a", "b", "c")
    edge_id = await graph.stage("a>c")
    async with lab.refuses(InvalidDependency, "edge_id"):
        await graph.withdraw("b>c", edge_id)
    await graph.apply("a>c", edge_id)
    async with lab.refuses(EdgeInForce, "applied"):
        await graph.withdraw("a>c", edge_id)
    await graph.complete("a")
    async with lab.refuses(EdgeInForce, "applied"):
        await graph.withdraw("a>c", edge_id)
    staged = await graph.stage("a>b")
    await lab.engine.cancel_flow(flow_id=graph.flow_id)
    async with lab.refuses(FlowAlreadyTerminal):
        await graph.withdraw("a>b", staged)


# --- ends around it ----------------------------------------------------------------------------


@woven
async def test_a_cancelled_flow_takes_what_waits_for_a_staged_edge(lab: Lab) -> None:
    graph, _ = await announced(lab)
    await graph.complete("a")
    await lab.engine.cancel_flow(flow_id=graph.flow_id)
    assert await graph.state("c") == "cancelled"


@woven
async def test_a_member_that_lives_again_waits_for_what_is_announced(lab: Lab) -> None:
    graph, second = await announced(lab)
    await graph.complete("a")
    await graph.cancel("c")
    await lab.engine.replay_execution(execution_id=graph.ids["c"])
    assert await graph.state("c") == "waiting_children"
    await graph.apply("b>c", second)
    await graph.complete("b")
    assert await graph.state("c") == "waiting"
