"""A replay opens a cancelled flow again, and every call agrees about that.

The cancel was the flow's end; who gives a member another life takes the end back. What was
cancelled with it stays so until it is replayed itself.
"""

from __future__ import annotations

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import FlowAlreadyTerminal, NotFound
from flowfabric.model.flow import CancellationPolicy, FlowState, TaskKind
from flowfabric.model.flow_results import FlowCancelled
from flowfabric.model.state import PublicState
from tests.support.flows import Graph, arrows, empty, pump, submit, woven
from tests.support.lab import Lab

ALL, PENDING, ONLY = CancellationPolicy
DAY_MS = 24 * 3_600_000


async def replay(graph: Graph, name: str) -> None:
    """Give a member another life."""
    await graph.lab.engine.replay_execution(execution_id=graph.ids[name])


async def cancel(graph: Graph, policy: CancellationPolicy = ALL, reason: str = "stop") -> object:
    """Cancel the flow."""
    return await graph.lab.engine.cancel_flow(flow_id=graph.flow_id, policy=policy, reason=reason)


@woven
async def test_a_replay_opens_a_cancelled_flow_again(lab: Lab) -> None:
    """Every reader says so; what was cancelled with the flow stays cancelled."""
    graph = await submit(lab, "abc", arrows("a>b"))
    await cancel(graph)
    await replay(graph, "a")
    snapshot = await graph.snapshot()
    assert snapshot.public_flow_state is FlowState.OPEN
    assert (snapshot.finished_at, snapshot.cancelled_at) == (None, None)
    assert (snapshot.cancel_reason, snapshot.cancellation_policy) == (None, None)
    assert await graph.states() == {"a": "waiting", "b": "cancelled", "c": "cancelled"}
    active = await lab.engine.list_flows(status="active")
    assert [each.flow_id for each in active.items] == [graph.flow_id]
    assert (await lab.engine.list_flows(status="cancelled")).items == ()
    assert await graph.events() == ["cancelled", "reopened"]
    await graph.start("a")
    assert await graph.flow_state() is FlowState.RUNNING


@woven
async def test_a_second_cancel_takes_what_lives_again(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b"))
    first = await cancel(graph)
    for _ in range(3):
        await replay(graph, "a")
        assert await cancel(graph, reason="again") == first
        assert await graph.states() == dict.fromkeys("abc", "cancelled")
        assert await lab.claims() == []
    assert await graph.events() == ["cancelled", *["reopened", "cancelled"] * 3]
    assert (await graph.snapshot()).cancel_reason == "again"
    async with lab.unchanged():
        assert await cancel(graph) == first


@woven
async def test_a_second_header_owes_what_lives_again(lab: Lab) -> None:
    graph = await submit(lab, "ab")
    await cancel(graph)
    await replay(graph, "b")
    reply = await lab.engine.cancel_flow_header(flow_id=graph.flow_id, grace_ms=1_000)
    assert reply == FlowCancelled(ALL, tuple(sorted(graph.ids.values())))
    (owed,) = await graph.tasks()
    assert (owed.kind, owed.execution_id) == (TaskKind.CANCEL_MEMBER, graph.ids["b"])
    await lab.after(1_000)
    await pump(lab)
    assert await graph.state("b") == "cancelled"


@woven
async def test_a_member_that_lives_again_may_spawn(lab: Lab) -> None:
    graph = await submit(lab, "ab")
    await cancel(graph)
    await replay(graph, "a")
    handle = await graph.handle("a")
    child = NewExecution(execution_kind="child")
    spawned = await lab.engine.spawn_children(handle, [child])
    await cancel(graph)
    assert await lab.state(spawned.execution_ids[0]) is PublicState.CANCELLED


@woven
async def test_a_graph_that_is_open_again_can_grow(lab: Lab) -> None:
    graph = await empty(lab, "a", "b")
    await cancel(graph)
    async with lab.refuses(FlowAlreadyTerminal):
        await graph.link("a>b")
    await replay(graph, "a")
    await replay(graph, "b")
    await graph.link("a>b")
    await graph.add("c")
    await graph.run()
    assert await graph.flow_state() is FlowState.COMPLETED


@woven
@pytest.mark.parametrize("policy", [PENDING, ONLY])
async def test_a_replay_opens_a_flow_that_still_drains(
    lab: Lab, policy: CancellationPolicy
) -> None:
    graph = await submit(lab, "ab")
    await graph.start("a", "b")
    await graph.complete("a")
    await cancel(graph, policy)
    await replay(graph, "a")
    assert await graph.flow_state() is FlowState.RUNNING
    await cancel(graph)
    assert await graph.states() == {"a": "cancelled", "b": "cancelled"}


@woven
async def test_a_replay_takes_the_cancel_back_that_was_owed_to_its_member(lab: Lab) -> None:
    """It was for the life before; those who were not replayed are cancelled as promised."""
    graph = await submit(lab, "ab")
    await lab.engine.cancel_flow_header(flow_id=graph.flow_id, grace_ms=1_000)
    await graph.cancel("a")
    await replay(graph, "a")
    assert [each.execution_id for each in await graph.tasks()] == [graph.ids["b"]]
    await lab.after(1_000)
    await pump(lab)
    assert await graph.states() == {"a": "waiting", "b": "cancelled"}
    assert await graph.flow_state() is FlowState.OPEN


@woven
@pytest.mark.parametrize("outcome", ["success", "failed", "cancelled"])
async def test_any_flow_that_is_over_opens_by_a_replay_and_can_be_cancelled(
    lab: Lab, outcome: str
) -> None:
    graph = await submit(lab, "ab")
    await graph.start("a", "b")
    await graph.complete("b")
    await graph.end("a", outcome)
    over = await graph.flow_state()
    assert over.is_terminal
    async with lab.refuses(FlowAlreadyTerminal):
        await cancel(graph)
    await replay(graph, "a")
    assert await cancel(graph) == FlowCancelled(ALL, tuple(sorted(graph.ids.values())))
    assert await graph.states() == {"a": "cancelled", "b": "completed"}
    assert await graph.events() == [over.value, "reopened", "cancelled"]


@woven
async def test_what_ends_after_a_reopened_cancel_ends_as_its_members_did(lab: Lab) -> None:
    """A flow is judged by its members again: one that stays cancelled is a loss."""
    graph = await submit(lab, "ab")
    await cancel(graph)
    await replay(graph, "a")
    await graph.complete("a")
    assert await graph.flow_state() is FlowState.FAILED
    async with lab.refuses(FlowAlreadyTerminal):
        await cancel(graph)
    await replay(graph, "b")
    await graph.complete("b")
    assert await graph.flow_state() is FlowState.COMPLETED


@woven
async def test_a_flow_that_is_open_again_is_kept_until_it_ends(lab: Lab) -> None:
    graph = await submit(lab, "ab", retention_ms=DAY_MS)
    await cancel(graph)
    lab.clock.advance(DAY_MS - 1)
    await replay(graph, "a")
    assert (await graph.row()).due_at is None
    await lab.after(2 * DAY_MS)
    assert await graph.states() == {"a": "waiting", "b": "cancelled"}
    await cancel(graph)
    assert (await graph.row()).due_at == lab.now + DAY_MS
    await lab.after(DAY_MS)
    assert await lab.engine.describe_flow(flow_id=graph.flow_id) is None


@woven
async def test_a_member_whose_flow_is_gone_is_not_replayed(lab: Lab) -> None:
    """Its rows go a moment after its flow's; a new life would have no flow to end in."""
    graph = await submit(lab, "a", retention_ms=0)
    await graph.complete("a")
    await lab.engine.move_due()
    assert await lab.engine.describe_flow(flow_id=graph.flow_id) is None
    async with lab.refuses(NotFound):
        await replay(graph, "a")


@woven
async def test_children_of_a_new_life_outlive_the_cancel_of_those_before(lab: Lab) -> None:
    """A parent that ends takes its children with it, by a task of the loop; a replay that comes
    before the loop does must not hand its own children over to that task."""
    graph = await submit(lab, ["a", "other"])
    child = NewExecution(execution_kind="child")
    first = await lab.engine.spawn_children(await graph.handle("a"), [child, child])
    await graph.cancel("a")
    await replay(graph, "a")
    second = await lab.engine.spawn_children(await graph.handle("a"), [child])
    await pump(lab)
    for key in first.execution_ids:
        ended = await lab.describe(key)
        assert ended.public_state is PublicState.CANCELLED
        assert ended.cancellation_reason == "parent_ended"
        assert (await lab.record(key)).cancelled_by == "flow_cascade"
    assert await lab.state(second.execution_ids[0]) is PublicState.WAITING
    assert await graph.tasks() == []
