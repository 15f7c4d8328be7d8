"""Children: spawn_children and wait_children; a parent goes on when the last of them has ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import (
    BudgetScopeMismatch,
    ExecutionNotActive,
    FlowAlreadyTerminal,
    IdempotencyConflict,
    InvalidInput,
    LaneClosed,
    StaleLease,
)
from flowfabric.ids import new_uuid7s
from flowfabric.limits import CASCADE_MAX
from flowfabric.model.event import LeaseEventType
from flowfabric.model.flow import FlowState
from flowfabric.model.flow_results import ChildrenAwaited
from flowfabric.model.handle import HandleKind
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from tests.support.budgets import held as held_amounts
from tests.support.budgets import make_budget, reserve
from tests.support.flows import Graph, arrows, node, pump, submit, woven
from tests.support.lab import Lab


def child(name: str = "", **fields: Any) -> NewExecution:
    """A child, with a key of its own if named."""
    return NewExecution(execution_kind="child", idempotency_key=name or None, **fields)


async def family(lab: Lab, size: int, claimed: Claimed | None = None, **fields: Any) -> Graph:
    """`p` runs and has spawned `c0` …"""
    parent = claimed or await lab.started()
    children = [child(**fields) for _ in range(size)]
    spawned = await lab.engine.spawn_children(parent.handle, children)
    ids = {f"c{at}": key for at, key in enumerate(spawned.execution_ids)}
    graph = Graph(lab, spawned.flow_id, {"p": parent.execution_id, **ids})
    graph.claimed[parent.execution_id] = parent
    return graph


async def park(graph: Graph, name: str = "p") -> ChildrenAwaited:
    """The parent lets go."""
    return await graph.lab.engine.wait_children(await graph.handle(name))


@woven
async def test_a_parent_without_flow_begins_one_with_its_children(lab: Lab) -> None:
    graph = await family(lab, 3)
    snapshot = await graph.snapshot()
    assert (snapshot.flow_kind, snapshot.node_count, snapshot.edge_count) == ("children", 4, 0)
    members = await lab.engine.list_flow_members(flow_id=graph.flow_id)
    parents = {each.execution_id: each.parent_id for each in members}
    assert parents.pop(graph.ids["p"]) is None
    assert set(parents.values()) == {graph.ids["p"]}
    key = graph.ids["p"]
    assert await lab.engine.resolve_execution_flow_id(execution_id=key) == graph.flow_id


@woven
async def test_children_of_a_member_join_its_flow(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    await graph.start("a")
    spawned = await lab.engine.spawn_children(graph.claimed[graph.ids["a"]].handle, [child()])
    assert spawned.flow_id == graph.flow_id
    graph.ids["c"] = spawned.execution_ids[0]
    await graph.complete("a")
    assert await graph.state("b") == "waiting"
    await graph.complete("b")
    assert await graph.flow_state() is FlowState.RUNNING
    await graph.complete("c")
    assert await graph.events() == ["completed"]


@pytest.mark.parametrize("outcome", ["success", "failed", "cancelled"])
@woven
async def test_the_parent_goes_on_when_the_last_child_has_ended_however(
    lab: Lab, outcome: str
) -> None:
    graph = await family(lab, 3)
    before = graph.claimed[graph.ids["p"]]
    assert await park(graph) == ChildrenAwaited(PublicState.WAITING_CHILDREN, 3)
    assert (await lab.lease_events(graph.ids["p"]))[-1].event_type is LeaseEventType.RELEASED
    await graph.start("c0", "c1", "c2")
    await graph.end("c0", "success")
    await graph.end("c1", outcome)
    assert await graph.state("p") == "waiting_children"
    await graph.end("c2", outcome)
    assert await graph.state("p") == "waiting"
    again = await lab.claim()
    assert (again.execution_id, again.handle.kind) == (graph.ids["p"], HandleKind.RESUMED)
    assert (again.attempt_index, again.handle.attempt_id) == (0, before.handle.attempt_id)
    await lab.engine.complete(again.handle)
    lost = outcome != "success"
    assert await graph.flow_state() is (FlowState.FAILED if lost else FlowState.COMPLETED)


@woven
async def test_d13_without_open_children_the_parent_goes_straight_on(lab: Lab) -> None:
    alone = await lab.started()
    assert await lab.engine.wait_children(alone.handle) == ChildrenAwaited(PublicState.WAITING, 0)
    assert (await lab.claim()).execution_id == alone.execution_id
    graph = await family(lab, 1, await lab.started())
    await graph.complete("c0")
    assert await park(graph) == ChildrenAwaited(PublicState.WAITING, 0)
    assert await graph.state("p") == "waiting"


@woven
async def test_a_repeated_wait_is_answered_again(lab: Lab) -> None:
    graph = await family(lab, 2)
    parent = graph.claimed[graph.ids["p"]]
    first = await lab.engine.wait_children(parent.handle)
    async with lab.unchanged():
        assert await lab.engine.wait_children(parent.handle) == first


@woven
async def test_only_the_owner_spawns_and_waits(lab: Lab) -> None:
    graph = await family(lab, 1)
    parent = graph.claimed[graph.ids["p"]]
    await park(graph)
    async with lab.refuses(ExecutionNotActive):
        await lab.engine.spawn_children(parent.handle, [child()])
    await graph.complete("c0")
    newer = await lab.claim("w2")
    for children in ([child()], [child("new")], [child("new"), child()]):
        async with lab.refuses(StaleLease):
            await lab.engine.spawn_children(parent.handle, children)
    stranger = replace(parent.handle, lease_id="0" * 36)
    async with lab.refuses(StaleLease):
        await lab.engine.wait_children(stranger)
    await lab.engine.complete(newer.handle)
    async with lab.refuses(ExecutionNotActive):
        await lab.engine.spawn_children(newer.handle, [child()])


@woven
async def test_a_child_with_a_key_is_spawned_once(lab: Lab) -> None:
    """The handler is called again after its wait, and asks for the same children."""
    parent = await lab.started()
    first = await lab.engine.spawn_children(parent.handle, [child("x"), child("y")])
    async with lab.unchanged():
        again = await lab.engine.spawn_children(parent.handle, [child("y"), child("x")])
    assert again.execution_ids == first.execution_ids[::-1]
    more = await lab.engine.spawn_children(parent.handle, [child("x"), child("z")])
    assert more.execution_ids[0] == first.execution_ids[0]
    found = await lab.engine.project_flow_summary(flow_id=first.flow_id)
    assert found.total_members == 4
    async with lab.refuses(IdempotencyConflict, "children[1]"):
        other = child("x", input_payload=b"other")
        await lab.engine.spawn_children(parent.handle, [child("y"), other])


@woven
async def test_spawns_at_once_begin_one_flow(lab: Lab) -> None:
    parent = await lab.started()
    calls = (lab.engine.spawn_children(parent.handle, [child(), child()]) for _ in range(6))
    replies = await asyncio.gather(*calls)
    assert len({each.flow_id for each in replies}) == 1
    assert len({key for each in replies for key in each.execution_ids}) == 12
    found = await lab.engine.project_flow_summary(flow_id=replies[0].flow_id)
    assert found.total_members == 13


@woven
async def test_a_budget_of_the_flow_binds_children_too(lab: Lab) -> None:
    flow_id = new_uuid7s(1)[0]
    await make_budget(lab, scope_type="flow", scope_id=flow_id, hard={"tokens": 5})
    graph = await submit(lab, "a", flow_id=flow_id)
    await graph.start("a")
    spawned = await lab.engine.spawn_children(graph.claimed[graph.ids["a"]].handle, [child()])
    assert (await lab.record(spawned.execution_ids[0])).bounds.budget_ids == ("b",)


@pytest.mark.parametrize("is_member", [True, False])
@woven
async def test_children_may_name_a_budget_of_their_flow_and_of_no_other(
    lab: Lab, is_member: bool
) -> None:
    """Also of the flow that a parent without one begins."""
    if is_member:
        graph = await submit(lab, "a")
        parent = (await lab.claim(), graph.flow_id)
    else:
        claimed = await lab.started()
        parent = (claimed, claimed.execution_id[-36:])
    for name, scope_id in (("mine", parent[1]), ("other", new_uuid7s(1)[0])):
        await make_budget(lab, name, {"tokens": 5}, scope_type="flow", scope_id=scope_id)
    spawn = lab.engine.spawn_children
    async with lab.refuses(BudgetScopeMismatch, "budget_ids: other is for flow"):
        both = [child(budget_ids=("mine",)), child(budget_ids=("other",))]
        await spawn(parent[0].handle, both)
    spawned = await spawn(parent[0].handle, [child(budget_ids=("mine",)), child()])
    assert spawned.flow_id == parent[1]
    for key in spawned.execution_ids:
        assert (await lab.record(key)).bounds.budget_ids == ("mine",)


@woven
async def test_a_key_belongs_to_its_parent(lab: Lab) -> None:
    """Another parent, or a plain submit, may use the same word."""
    one, two = await lab.started("w1"), await lab.started("w2")
    plain = await lab.create("child", idempotency_key="x")
    first = await lab.engine.spawn_children(one.handle, [child("x")])
    second = await lab.engine.spawn_children(two.handle, [child("x")])
    assert len({plain, *first.execution_ids, *second.execution_ids}) == 3


@woven
async def test_a_malformed_spawn_changes_nothing(lab: Lab) -> None:
    parent = await lab.started()
    await lab.create("child", lane_id="shut")
    await lab.create("child")
    await lab.engine.drain_lane(lane_id="shut")
    spawn = lab.engine.spawn_children
    for children, name in (
        ([], "children"),
        (None, "children"),
        (5, "children"),
        (["x"], "children[0]"),
        ([child(), child(input_payload=5)], "children[1]"),
        ([child("k"), child("k")], "children[1].idempotency_key"),
        ([child()] * 10_001, "children"),
    ):
        async with lab.refuses(InvalidInput, name):
            await spawn(parent.handle, children)  # type: ignore[arg-type]
    async with lab.refuses(LaneClosed, "children[1]"):
        await spawn(parent.handle, [child(), child(lane_id="shut")])
    with pytest.raises(InvalidInput, match="handle"):
        await spawn(None, [child()])  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["cancelled", "failed", "expired"])
@woven
async def test_a_parent_that_is_lost_takes_its_children_with_it(lab: Lab, how: str) -> None:
    deadline = {"execution_deadline_at": lab.now + 100} if how == "expired" else {}
    graph = await family(lab, 3, await lab.started(**deadline))  # type: ignore[arg-type]
    await graph.start("c0", "c1", "c2")
    await graph.complete("c0")
    if how == "expired":
        await lab.after(100)
    else:
        await graph.end("p", how)
    await pump(lab)
    assert await graph.states() == {
        "p": how,
        "c0": "completed",
        "c1": "cancelled",
        "c2": "cancelled",
    }
    told = await lab.describe(graph.ids["c1"])
    assert (told.cancellation_reason, told.cancelled_by) == ("parent_ended", "flow_cascade")


@woven
async def test_a_parent_that_succeeds_lets_its_children_run(lab: Lab) -> None:
    graph = await family(lab, 2)
    await graph.complete("p")
    assert await pump(lab) == 0
    await graph.complete("c0", "c1")
    assert await graph.flow_state() is FlowState.COMPLETED


@woven
async def test_grandchildren_go_with_their_grandparent(lab: Lab) -> None:
    graph = await family(lab, 1)
    await graph.start("c0")
    middle = graph.claimed[graph.ids["c0"]]
    spawned = await lab.engine.spawn_children(middle.handle, [child(), child()])
    assert spawned.flow_id == graph.flow_id
    graph.ids.update({"g0": spawned.execution_ids[0], "g1": spawned.execution_ids[1]})
    await lab.engine.wait_children(middle.handle)
    await park(graph)
    assert await graph.states() == {
        "p": "waiting_children",
        "c0": "waiting_children",
        "g0": "waiting",
        "g1": "waiting",
    }
    await graph.complete("g0", "g1")
    assert await graph.state("c0") == "waiting"
    assert await graph.state("p") == "waiting_children"
    again = await lab.claim()
    more = await lab.engine.spawn_children(again.handle, [child()])
    graph.ids["g2"] = more.execution_ids[0]
    await graph.cancel("p")
    await pump(lab)
    assert await graph.state("c0") == await graph.state("g2") == "cancelled"


@woven
async def test_more_children_than_a_transaction_takes_are_all_cancelled(lab: Lab) -> None:
    size = 2 * CASCADE_MAX + 100
    graph = await family(lab, size)
    await graph.cancel("p")
    await pump(lab)
    assert (await graph.row()).cancelled_count == size + 1


@woven
async def test_a_parent_of_many_is_woken_once(lab: Lab) -> None:
    graph = await family(lab, 60)
    await park(graph)
    claimed = await lab.claims(limit=100)
    await asyncio.gather(*(lab.engine.complete(each.handle) for each in claimed))
    assert await graph.state("p") == "waiting"
    assert len([e for e in await lab.claims(limit=5) if e.execution_id == graph.ids["p"]]) == 1


@woven
async def test_a_parked_parent_also_waits_for_edges_that_lead_to_it(lab: Lab) -> None:
    """Whichever comes last sets it free."""
    for order in (("x", "c0"), ("c0", "x")):
        graph = await family(lab, 1)
        await park(graph)
        await graph.add("x")
        await graph.link("x>p")
        await graph.complete(order[0])
        assert await graph.state("p") == "waiting_children"
        await graph.complete(order[1])
        assert await graph.state("p") == "waiting"
        await graph.complete("p")


@woven
async def test_a_parked_parent_gives_its_reservations_back(lab: Lab) -> None:
    await make_budget(lab, hard={"tokens": 10})
    parent = await lab.started(budget_ids=["b"])
    await reserve(lab, parent, {"tokens": 6})
    graph = await family(lab, 1, parent)
    assert await held_amounts(lab) == {"tokens": 6}
    await park(graph)
    assert not any((await held_amounts(lab)).values())


@woven
async def test_a_held_parent_is_not_set_free_by_its_children(lab: Lab) -> None:
    graph = await family(lab, 1)
    await park(graph)
    await lab.engine.hold_execution(execution_id=graph.ids["p"])
    await graph.complete("c0")
    assert await lab.claims() == []
    await lab.engine.release_execution(execution_id=graph.ids["p"])
    assert (await lab.claim()).execution_id == graph.ids["p"]


@woven
async def test_a_child_that_is_replayed_is_waited_for_again(lab: Lab) -> None:
    graph = await family(lab, 2)
    await graph.start("c0", "c1")
    await graph.fail("c0")
    await lab.engine.replay_execution(execution_id=graph.ids["c0"])
    await graph.complete("c1")
    assert await park(graph) == ChildrenAwaited(PublicState.WAITING_CHILDREN, 1)
    await graph.complete("c0")
    assert await graph.state("p") == "waiting"


@woven
async def test_a_cancelled_flow_takes_no_children(lab: Lab) -> None:
    graph = await submit(lab, [node("a")])
    await graph.start("a")
    await lab.engine.cancel_flow(flow_id=graph.flow_id, policy="cancel_flow_only")
    async with lab.refuses(FlowAlreadyTerminal):
        await lab.engine.spawn_children(graph.claimed[graph.ids["a"]].handle, [child()])
