"""Many ends in one call: they are written before their flows are held, and nobody can tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from flowfabric.api.leases import Complete
from flowfabric.engine.unit.flows.flows import HELD_LATER_FROM
from flowfabric.ids import new_uuid7s
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.complete import Complete as CompleteCommand
from flowfabric.kernel.flow.graph import SetGroupPolicy, StageEdge
from flowfabric.model.flow import SUCCESS_ONLY, AllSucceeded, AnySucceeded, FlowState, OnSatisfied
from flowfabric.model.results import Completed
from flowfabric.stores.base import Transaction
from flowfabric.stores.tables import FLOWS, Table
from tests.support.flows import arrows, edge, node, submit, woven
from tests.support.lab import Lab

MANY = HELD_LATER_FROM + 10


@woven
async def test_what_many_ends_hand_on_arrives(lab: Lab) -> None:
    """Their results are in the store by the time the join is decided."""
    names = [f"s{at:02}" for at in range(MANY)]
    nodes = [*map(node, names), node("d", lane_id="join")]
    graph = await submit(lab, nodes, [edge(name, "d", passes_result=True) for name in names])
    by_id = {key: name for name, key in graph.ids.items()}
    claimed = await lab.claims(limit=MANY)
    await lab.engine.complete_many(
        [
            Complete(
                handle=each.handle,
                result=json.dumps(by_id[each.execution_id]).encode(),
                result_encoding="json",
            )
            for each in claimed
        ]
    )
    join = await lab.claim(lanes=("join",))
    assert json.loads(join.payload) == {name: name for name in names}


@woven
async def test_what_ends_after_the_decision_hands_nothing_on(lab: Lab) -> None:
    """In one call as in two: the first success decides, the second comes too late."""
    join = node("d", AnySucceeded(OnSatisfied.LET_RUN), lane_id="join")
    edges = [edge(name, "d", passes_result=True) for name in ("a", "b")]
    graph = await submit(lab, [node("a"), node("b"), join], edges)
    by_id = {key: name for name, key in graph.ids.items()}
    claimed = await lab.claims(limit=2)
    first = by_id[claimed[0].execution_id]
    await lab.engine.complete_many(
        [
            Complete(
                handle=each.handle,
                result=json.dumps(by_id[each.execution_id]).encode(),
                result_encoding="json",
            )
            for each in claimed
        ]
    )
    assert json.loads((await lab.claim(lanes=("join",))).payload) == {first: first}


@woven
async def test_a_group_that_was_looked_at_is_met_in_the_same_batch(lab: Lab) -> None:
    """Whoever comes after the end sees it, though the member was read before."""
    graph = await submit(lab, "abc", arrows("a>b"))
    await graph.start("a")
    ids, engine = graph.ids, lab.engine
    commands: list[Command[Any]] = [
        SetGroupPolicy(flow_id=graph.flow_id, execution_id=ids["b"], policy=AllSucceeded()),
        CompleteCommand(
            execution_id=ids["a"],
            fence=None,
            source="operator_override",
            result=None,
            result_encoding=None,
        ),
        StageEdge(
            flow_id=graph.flow_id,
            edge_id=new_uuid7s(1)[0],
            upstream_execution_id=ids["c"],
            downstream_execution_id=ids["b"],
            dependency_kind=SUCCESS_ONLY,
        ),
    ]

    async def work(tx: Transaction) -> Any:
        return await engine.fold(tx, commands)

    (_, completed, staged), _ = await engine.transact(work)
    assert isinstance(completed, Completed)
    assert isinstance(staged, Refused)
    assert await graph.state("b") == "waiting"


@pytest.mark.parametrize("many", [3, MANY])
@woven
async def test_many_ends_of_several_flows_are_each_counted(lab: Lab, many: int) -> None:
    graphs = [
        await submit(lab, ["a", "b", node("c", lane_id="later")], [edge("a", "c"), edge("b", "c")])
        for _ in range(many)
    ]
    claimed = await lab.claims(limit=2 * many)
    replies = await lab.engine.complete_many([Complete(handle=each.handle) for each in claimed])
    assert not [reply for reply in replies if isinstance(reply, Exception)]
    for graph in graphs:
        assert await graph.state("c") == "waiting"
        assert (await graph.row()).completed_count == 2
    last = await lab.claims(lanes=("later",), limit=many)
    await lab.engine.complete_many([Complete(handle=each.handle) for each in last])
    assert {await graph.flow_state() for graph in graphs} == {FlowState.COMPLETED}


@woven
async def test_flows_are_held_before_quotas_whatever_ends_first(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One order of locks: a batch that first releases a place takes its flows before that."""
    await lab.engine.create_quota_policy(quota_policy_id="q", max_concurrent=5)
    bounded = await lab.create(quota_policy_id="q")
    stale = await lab.create(quota_policy_id="q", policy={"retry_policy": {"max_retries": 5}})
    first = await lab.claims(limit=2)
    retried = next(each for each in first if each.execution_id == stale)
    await lab.engine.fail(retried.handle, reason="again")
    graph = await submit(lab, [f"s{at}" for at in range(MANY)])
    members = await lab.claims(limit=MANY, lanes=("default",))
    held: list[str] = []

    async def work(tx: Transaction) -> Any:
        return type(tx)

    view = await lab.engine.store.transact(work)
    rows = view.rows

    async def noted(self: Any, table: Table[Any], keys: Sequence[Any]) -> Any:
        held.append(table.name)
        return await rows(self, table, keys)

    monkeypatch.setattr(view, "rows", noted)
    ordered = [next(each for each in first if each.execution_id == bounded), retried, *members]
    await lab.engine.complete_many([Complete(handle=each.handle) for each in ordered])
    assert held[0] == FLOWS.name
    assert any("quota" in name for name in held), held
    assert held.count(FLOWS.name) == 1
    assert (await graph.row()).completed_count >= MANY - 1
