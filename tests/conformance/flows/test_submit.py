"""submit_flow: a whole graph in one call and one transaction, or nothing and the culprit named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.errors import (
    BudgetScopeMismatch,
    CycleDetected,
    FlowConflict,
    FlowFabricError,
    IdempotencyConflict,
    InvalidInput,
    InvalidTagKey,
    LaneClosed,
    NotFound,
    PayloadTooLarge,
    SelfReferencingEdge,
)
from flowfabric.ids import new_uuid7s
from flowfabric.limits import FLOW_EDGES_MAX, FLOW_NODES_MAX
from flowfabric.model.flow import AllSucceeded, AnySucceeded, FlowState, OnSatisfied, Quorum
from flowfabric.model.flow_results import FlowDuplicate, FlowSubmitted
from flowfabric.model.state import PublicState
from tests.support.budgets import BUDGET, make_budget, report, usage
from tests.support.flows import Graph, arrows, edge, empty, node, submit, woven
from tests.support.lab import Lab

CANCEL = OnSatisfied.CANCEL_REMAINING
ABC = [node("a"), node("b"), node("c")]

# What is wrong, the error, and what it names.
REFUSALS: dict[str, tuple[list[FlowNode], list[FlowEdge], type[FlowFabricError], str]] = {
    "no node": ([], [], InvalidInput, "nodes"),
    "two of one name": ([*ABC, node("b")], [], InvalidInput, "nodes[3].name"),
    "a name of nothing": ([node("")], [], InvalidInput, "nodes[0].name"),
    "a name too long": ([node("x" * 257)], [], InvalidInput, "nodes[0].name"),
    "an unknown upstream": (ABC, arrows("a>b", "x>c"), InvalidInput, "edges[1].upstream"),
    "an unknown downstream": (ABC, arrows("a>x"), InvalidInput, "edges[0].downstream"),
    "a self edge": (ABC, arrows("a>b", "c>c"), SelfReferencingEdge, "edges[1]"),
    "an edge twice": (ABC, arrows("a>b", "b>c", "a>b"), InvalidInput, "edges[2]"),
    "a cycle": (ABC, arrows("a>b>c>a"), CycleDetected, "edges: "),
    "a cycle behind others": (
        [*ABC, node("d"), node("e")],
        arrows("a>b>c>d>e", "e>c"),
        CycleDetected,
        "edges: ",
    ),
    "k over n": (
        [*ABC[:2], node("c", Quorum(3, CANCEL))],
        arrows("a>c", "b>c"),
        InvalidInput,
        "nodes[c].join",
    ),
    "a join of nothing": (
        [node("a", AllSucceeded()), node("b")],
        [],
        InvalidInput,
        "nodes[a].join",
    ),
    "a join that is none": (
        [node("a"), node("b", "all_of")],  # type: ignore[arg-type]
        arrows("a>b"),
        InvalidInput,
        "nodes[b].join",
    ),
    "an input name without a result": (
        ABC,
        [edge("a", "b", input_name="left")],
        InvalidInput,
        "edges[0].input_name",
    ),
    "a bad kind": ([node("a", kind="")], [], InvalidInput, "nodes[a]"),
    "a bad lane": ([node("a", lane_id="")], [], InvalidInput, "nodes[a]"),
    "a bad tag": ([node("a", tags={"X": "y"})], [], InvalidTagKey, "nodes[a]"),
    "a payload too large": (
        [node("a", input_payload=b"x" * (1024 * 1024 + 1))],
        [],
        PayloadTooLarge,
        "nodes[a]",
    ),
    "a key of a node": ([node("a", idempotency_key="k")], [], InvalidInput, "idempotency_key"),
    "a place of a node": (
        [node("a", colocate_with="01890000-0000-7000-8000-000000000001")],
        [],
        InvalidInput,
        "colocate_with",
    ),
    "another namespace": ([node("a", namespace="other")], [], InvalidInput, "namespace"),
    "no execution": ([FlowNode(name="a", execution=None)], [], InvalidInput, "nodes[a].execution"),  # type: ignore[arg-type]
    "an unknown budget": ([node("a"), node("b", budget_ids=("x",))], [], NotFound, "budget_ids"),
    "an unknown quota": ([node("a", quota_policy_id="x")], [], NotFound, "quota_policy_id"),
    "a key without quota": ([node("a", concurrency_key="x")], [], InvalidInput, "nodes[a]"),
}
MISTYPED = ("a join that is none", "no execution")


@pytest.mark.parametrize("what", REFUSALS)
@woven
async def test_a_graph_with_a_mistake_is_refused_whole_and_the_culprit_named(
    lab: Lab, what: str
) -> None:
    nodes, edges, error, name = REFUSALS[what]
    await submit(lab, ["first"])  # the lane and the kind are known
    engine = lab.direct if what in MISTYPED else lab.engine  # a wire says the number of the node
    async with lab.refuses(error, name):
        await engine.submit_flow(nodes=nodes, edges=edges)


@woven
async def test_the_way_round_a_cycle_is_told(lab: Lab) -> None:
    with pytest.raises(CycleDetected) as caught:
        await submit(lab, "abcdef", arrows("a>b>c>d>e>f", "e>c"))
    around = caught.value.fields["nodes"]
    assert around[0] == around[-1]
    assert sorted(around[1:]) == ["c", "d", "e"]
    assert " → ".join(around) in caught.value.detail


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"nodes": None}, "nodes"),
        ({"nodes": 5}, "nodes"),
        ({"nodes": "ab"}, "nodes"),
        ({"nodes": ["a"]}, "nodes[0]"),
        ({"edges": None}, "edges"),
        ({"edges": ["a>b"]}, "edges[0]"),
        ({"edges": [("a", "b")]}, "edges[0]"),
        ({"edges": [edge(["a"], "b")]}, "edges[0].upstream"),  # type: ignore[arg-type]
        ({"edges": [edge("a", None)]}, "edges[0].downstream"),  # type: ignore[arg-type]
        ({"flow_kind": ""}, "flow_kind"),
        ({"flow_kind": None}, "flow_kind"),
        ({"namespace": ""}, "namespace"),
        ({"flow_id": "x"}, "flow_id"),
        ({"flow_id": "01890000-0000-7000-8000-00000000000A"}, "flow_id"),
        ({"retention_ms": -1}, "retention_ms"),
        ({"retention_ms": 1.5}, "retention_ms"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "x" * 513}, "idempotency_key"),
        ({"dedup_window_ms": 0}, "dedup_window_ms"),
        ({"tags": {"": ""}}, "tags"),
        ({"tags": [1]}, "tags"),
    ],
)
@woven
async def test_every_other_argument_is_named_too(
    lab: Lab, fields: dict[str, Any], name: str
) -> None:
    given = {"nodes": [node("a"), node("b")], **fields}
    async with lab.unchanged():
        with pytest.raises((InvalidInput, InvalidTagKey), match=name.replace("[", r"\[")):
            await lab.engine.submit_flow(**given)


@woven
async def test_too_many_nodes_or_edges_are_refused(lab: Lab) -> None:
    one = node("a")
    async with lab.refuses(InvalidInput, "nodes"):
        await lab.engine.submit_flow(nodes=[one] * (FLOW_NODES_MAX + 1))
    async with lab.refuses(InvalidInput, "edges"):
        await lab.engine.submit_flow(nodes=[one], edges=arrows("a>b") * (FLOW_EDGES_MAX + 1))


@woven
async def test_a_closed_lane_refuses_the_graph_and_names_the_node(lab: Lab) -> None:
    await submit(lab, ["a", node("b", lane_id="shut")])
    await lab.engine.drain_lane(lane_id="shut")
    async with lab.refuses(LaneClosed, "nodes[b]"):
        await submit(lab, ["a", node("b", lane_id="shut"), "c"], arrows("a>b>c"))


@woven
async def test_a_budget_for_something_else_refuses_the_graph(lab: Lab) -> None:
    await make_budget(lab, scope_type="lane", scope_id="other", hard={"tokens": 1})
    async with lab.refuses(BudgetScopeMismatch, BUDGET):
        await submit(lab, ["a", node("b", budget_ids=(BUDGET,))])


@woven
async def test_a_flow_id_is_used_once(lab: Lab) -> None:
    """Also one that was built step by step."""
    first, second = await submit(lab, "a"), await empty(lab)
    for graph in (first, second):
        async with lab.refuses(FlowConflict, "flow_id"):
            await submit(lab, "ab", arrows("a>b"), flow_id=graph.flow_id)
    chosen = new_uuid7s(1)[0]
    graph = await submit(lab, "ab", arrows("a>b"), flow_id=chosen)
    assert graph.flow_id == chosen


# --- what is recorded --------------------------------------------------------------------------


@woven
async def test_everything_is_recorded_at_once(lab: Lab) -> None:
    """There is no moment in which a child could be claimed before its edges count."""
    graph = await submit(
        lab,
        ["a", "b", node("c", AnySucceeded(CANCEL))],
        arrows("a>c", "b>c"),
        flow_kind="race",
        namespace="tenant",
        tags={"team.name": "x"},
    )
    snapshot = await graph.snapshot()
    assert (snapshot.flow_kind, snapshot.namespace) == ("race", "tenant")
    assert snapshot.tags == {"team.name": "x"}
    assert (snapshot.node_count, snapshot.edge_count, snapshot.graph_revision) == (3, 2, 3)
    assert snapshot.public_flow_state is FlowState.BLOCKED
    assert (await graph.group("c")).policy == AnySucceeded(CANCEL)
    assert await graph.edge_states() == {"a>c": "applied", "b>c": "applied"}
    for name in "abc":
        assert (await lab.describe(graph.ids[name])).namespace == "tenant"
        assert (await graph.member(name)).node_name == name


@woven
async def test_nobody_sees_members_of_a_graph_that_was_not_recorded(lab: Lab) -> None:
    """A refusal in the middle of a batch leaves its neighbours alone and nothing behind."""
    await lab.engine.drain_lane(lane_id="shut")
    replies = await asyncio.gather(
        submit(lab, "ab", arrows("a>b")),
        submit(lab, ["x", node("y", lane_id="shut")]),
        submit(lab, "cd", arrows("c>d")),
        return_exceptions=True,
    )
    assert isinstance(replies[0], Graph)
    assert isinstance(replies[1], LaneClosed)
    assert isinstance(replies[2], Graph)
    claimed = {each.execution_id for each in await lab.claims(limit=10)}
    assert claimed == {replies[0].ids["a"], replies[2].ids["c"]}


@woven
async def test_a_delayed_node_with_dependencies_waits_for_both(lab: Lab) -> None:
    graph = await submit(lab, ["a", node("b", delay_until=lab.now + 100)], arrows("a>b"))
    assert await graph.state("b") == "waiting_children"
    await lab.after(200)
    assert await graph.state("b") == "waiting_children"
    await graph.complete("a")
    assert await graph.state("b") == "waiting"


@woven
async def test_ten_thousand_nodes_in_one_call(lab: Lab) -> None:
    """1 → 9,998 → 1 under one transaction, with ranks, counts and an invisible middle."""
    middle = [f"m{at}" for at in range(FLOW_NODES_MAX - 2)]
    nodes = [node("first"), *map(node, middle), node("last")]
    edges = [edge("first", each) for each in middle] + [edge(each, "last") for each in middle]
    reply = await lab.engine.submit_flow(nodes=nodes, edges=edges)
    assert isinstance(reply, FlowSubmitted)
    snapshot = await lab.engine.describe_flow(flow_id=reply.flow_id)
    assert snapshot is not None
    assert (snapshot.node_count, snapshot.edge_count) == (10_000, 2 * 9_998)
    assert snapshot.members == {
        PublicState.WAITING: 1,
        PublicState.WAITING_CHILDREN: 9_999,
    }
    assert (await lab.claim(limit=5)).execution_id == reply.execution_ids["first"]


# --- the same again ----------------------------------------------------------------------------


@woven
async def test_the_same_graph_under_one_key_is_recorded_once(lab: Lab) -> None:
    first = await submit(lab, "ab", arrows("a>b"), idempotency_key="k")
    async with lab.unchanged():
        again = await lab.engine.submit_flow(
            nodes=[node("a"), node("b")], edges=arrows("a>b"), idempotency_key="k"
        )
    assert again == FlowDuplicate(first.flow_id)


@pytest.mark.parametrize(
    "fields",
    [
        {"nodes": [node("a")]},
        {"nodes": [node("a"), node("b", input_payload=b"1")]},
        {"nodes": [node("a"), node("b", priority=5)]},
        {"nodes": [node("a"), node("b", AnySucceeded(CANCEL))]},
        {"edges": arrows("b>a")},
        {"edges": arrows("a>b", passes_result=True)},
        {"flow_kind": "other"},
        {"tags": {"a.b": "c"}},
    ],
)
@woven
async def test_another_graph_under_the_same_key_is_a_conflict(
    lab: Lab, fields: dict[str, Any]
) -> None:
    await submit(lab, "ab", arrows("a>b"), idempotency_key="k")
    given = {"nodes": [node("a"), node("b")], "edges": arrows("a>b"), **fields}
    if len(given["nodes"]) == 1:
        given["edges"] = []
    async with lab.refuses(IdempotencyConflict, "idempotency_key"):
        await lab.engine.submit_flow(idempotency_key="k", **given)


@woven
async def test_a_key_is_free_after_its_window_and_in_another_namespace(lab: Lab) -> None:
    first = await submit(lab, "a", idempotency_key="k", dedup_window_ms=100)
    other = await submit(lab, "a", idempotency_key="k", namespace="other")
    lab.clock.advance(100)
    again = await submit(lab, "a", idempotency_key="k")
    assert len({first.flow_id, other.flow_id, again.flow_id}) == 3


@woven
async def test_keys_of_flows_and_of_executions_never_meet(lab: Lab) -> None:
    for key in ("k", "flow:k", "flow"):
        await lab.create(idempotency_key=key)
        await submit(lab, "a", idempotency_key=key)


@woven
async def test_rivals_with_one_key_record_one_graph(lab: Lab) -> None:
    async def one() -> str:
        reply = await lab.engine.submit_flow(nodes=[node("a")], idempotency_key="k")
        return reply.flow_id

    found = await asyncio.gather(*(one() for _ in range(10)))
    assert len(set(found)) == 1
    assert len((await lab.dump())["ff_flow_core"]) == 1


# --- budgets of a flow -------------------------------------------------------------------------


@woven
async def test_a_budget_of_the_flow_binds_its_members(lab: Lab) -> None:
    flow_id = new_uuid7s(1)[0]
    await make_budget(lab, scope_type="flow", scope_id=flow_id, hard={"tokens": 5})
    graph = await submit(lab, ["a", "b"], arrows("a>b"), flow_id=flow_id)
    other = await submit(lab, [node("x", lane_id="other")])
    assert (await lab.record(graph.ids["b"])).bounds.budget_ids == (BUDGET,)
    assert (await lab.record(other.ids["x"])).bounds.budget_ids == ()
    await graph.complete("a")
    await report(lab, {"tokens": 5})
    assert await lab.claims() == []
    assert await graph.state("b") == "rate_limited"
    assert await usage(lab) == {"tokens": 5}


@woven
async def test_a_budget_of_another_flow_is_refused(lab: Lab) -> None:
    await make_budget(lab, scope_type="flow", scope_id=new_uuid7s(1)[0], hard={"tokens": 5})
    async with lab.refuses(BudgetScopeMismatch, BUDGET):
        await submit(lab, [node("a", budget_ids=(BUDGET,))])
