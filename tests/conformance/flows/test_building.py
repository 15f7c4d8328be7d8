"""Flows built step by step: members, staged and applied edges, policies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import ids as identifiers
from flowfabric.errors import (
    AlreadyInOtherFlow,
    CycleDetected,
    DependencyAlreadyExists,
    DependencyGroupDecided,
    DependentNotRunnable,
    ExecutionNotInFlow,
    FlowAlreadyTerminal,
    FlowConflict,
    InvalidDependency,
    InvalidInput,
    NotFound,
    SelfReferencingEdge,
    StaleGraphRevision,
)
from flowfabric.model.flow import AllSucceeded, AnySucceeded, EdgePolicy, OnSatisfied, Quorum
from flowfabric.model.flow_results import (
    Added,
    AlreadyMember,
    Applied,
    DependencyAlreadyApplied,
    FlowAlreadySatisfied,
    FlowCreated,
    PolicyAlreadySet,
    PolicySet,
)
from flowfabric.model.state import BlockingReason, EligibilityState
from tests.support.flows import Graph, arrows, empty, submit, woven
from tests.support.lab import Lab

CANCEL, LET_RUN = OnSatisfied.CANCEL_REMAINING, OnSatisfied.LET_RUN


@woven
async def test_scenario_1_a_flow_is_created_once_and_a_member_added_once(lab: Lab) -> None:
    flow_id = identifiers.new_uuid7s(1)[0]
    first = await lab.engine.create_flow(flow_id=flow_id, flow_kind="dag")
    assert first == FlowCreated(flow_id)
    async with lab.unchanged():
        again = await lab.engine.create_flow(flow_id=flow_id, flow_kind="dag")
    assert again == FlowAlreadySatisfied(flow_id)
    key = await lab.create(colocate_with=flow_id)
    added = await lab.engine.add_execution_to_flow(flow_id=flow_id, execution_id=key)
    assert added == Added(key, 1)
    async with lab.unchanged():
        repeated = await lab.engine.add_execution_to_flow(flow_id=flow_id, execution_id=key)
    assert repeated == AlreadyMember(key, 1)
    found = await lab.engine.describe_flow(flow_id=flow_id)
    assert found is not None
    assert (found.graph_revision, found.node_count, found.edge_count) == (1, 1, 0)


@woven
async def test_d30_the_same_id_with_other_words_is_a_conflict(lab: Lab) -> None:
    graph = await empty(lab, flow_kind="dag")
    others: tuple[dict[str, Any], ...] = (
        {"flow_kind": "pipeline"},
        {"flow_kind": "dag", "namespace": "other"},
    )
    for words in others:
        async with lab.refuses(FlowConflict, [*words][-1]):
            await lab.engine.create_flow(flow_id=graph.flow_id, **words)


@woven
async def test_scenario_2_who_cannot_become_a_member_changes_nothing(lab: Lab) -> None:
    graph, other = await empty(lab, "a"), await empty(lab, "b")
    add = lab.engine.add_execution_to_flow
    unknown = identifiers.new_uuid7s(1)[0]
    async with lab.refuses(NotFound, "flow"):
        key = identifiers.member_ids(unknown, 1)[0]
        await add(flow_id=unknown, execution_id=key)
    async with lab.refuses(NotFound, "execution"):
        missing = identifiers.member_ids(graph.flow_id, 1)[0]
        await add(flow_id=graph.flow_id, execution_id=missing)
    shared = Graph(lab, other.flow_id, {})
    twin = await lab.engine.create_flow(flow_id=_same_partition(other.flow_id))
    async with lab.refuses(AlreadyInOtherFlow, shared.flow_id):
        await add(flow_id=twin.flow_id, execution_id=other.ids["b"])
    await lab.engine.cancel_flow(flow_id=graph.flow_id)
    late = await lab.create(colocate_with=graph.flow_id)
    for reopen in (False, True):  # a cancelled flow is never opened again
        async with lab.refuses(FlowAlreadyTerminal, "cancelled"):
            await add(flow_id=graph.flow_id, execution_id=late, reopen=reopen)
    assert await lab.engine.resolve_execution_flow_id(execution_id=late) is None


def _same_partition(flow_id: str) -> str:
    """Another flow's id whose members may share a partition with this one's."""
    number = identifiers.partition_of(flow_id, 256)
    while True:
        for candidate in identifiers.new_uuid7s(200):
            if identifiers.partition_of(candidate, 256) == number:
                return candidate


@woven
async def test_a_member_must_be_on_the_flows_partition_and_in_its_namespace(lab: Lab) -> None:
    graph = await empty(lab)
    elsewhere = await lab.create()
    while elsewhere.startswith(identifiers.member_ids(graph.flow_id, 1)[0][:-36]):
        elsewhere = await lab.create()
    async with lab.refuses(InvalidInput, "execution_id"):
        await lab.engine.add_execution_to_flow(flow_id=graph.flow_id, execution_id=elsewhere)
    foreign = await lab.create(colocate_with=graph.flow_id, namespace="other")
    async with lab.refuses(InvalidInput, "namespace"):
        await lab.engine.add_execution_to_flow(flow_id=graph.flow_id, execution_id=foreign)


@woven
async def test_scenario_2_concurrent_adds_both_land(lab: Lab) -> None:
    graph = await empty(lab)
    keys = [await lab.create(colocate_with=graph.flow_id) for _ in range(8)]
    replies = await asyncio.gather(
        *(lab.engine.add_execution_to_flow(flow_id=graph.flow_id, execution_id=k) for k in keys)
    )
    assert sorted(each.new_node_count for each in replies) == list(range(1, 9))  # type: ignore[union-attr]


@woven
async def test_scenario_3_the_revision_chain(lab: Lab) -> None:
    graph = await empty(lab, "a", "b", "c")
    stage = lab.engine.stage_dependency_edge
    first = await stage(**graph.ends("a>b"), expected_graph_revision=3)
    assert first.new_graph_revision == 4
    async with lab.refuses(StaleGraphRevision, "4"):
        await stage(**graph.ends("b>c"), expected_graph_revision=3)
    second = await stage(**graph.ends("b>c"), expected_graph_revision=4)
    assert second.new_graph_revision == 5
    async with lab.refuses(CycleDetected):
        await stage(**graph.ends("c>a"), expected_graph_revision=5)
    async with lab.refuses(SelfReferencingEdge):
        await stage(**graph.ends("a>a"))
    async with lab.refuses(DependencyAlreadyExists, first.edge_id):
        await stage(**graph.ends("a>c"), edge_id=first.edge_id)
    snapshot = await graph.snapshot()
    assert (snapshot.graph_revision, snapshot.node_count, snapshot.edge_count) == (5, 3, 2)


@woven
async def test_d47_the_revision_is_optional(lab: Lab) -> None:
    graph = await empty(lab, "a", "b", "c")
    await graph.stage("a>b")
    await graph.stage("b>c")
    assert (await graph.snapshot()).graph_revision == 5


@woven
async def test_d15_cycles_are_found_on_every_store_however_far_round(lab: Lab) -> None:
    """Staged, applied and resolved edges count alike: a replay opens a resolved one again."""
    names = [f"n{at}" for at in range(12)]
    graph = await submit(lab, names, arrows(">".join(names)))
    await graph.complete("n0", "n1")
    for path in ("n11>n0", "n1>n0", "n11>n3", "n4>n3"):
        async with lab.refuses(CycleDetected):
            await graph.stage(path)
    await graph.add("x")
    await graph.stage("n11>x")
    async with lab.refuses(CycleDetected):
        await graph.stage("x>n3")


@woven
async def test_d16_a_graph_of_many_nodes_is_not_called_cyclic(lab: Lab) -> None:
    """Other systems refuse an edge with more than 1000 nodes behind it."""
    names = [f"n{at}" for at in range(1200)]
    graph = await submit(lab, names, arrows(">".join(names)))
    await graph.add("first", "last")
    await graph.link("first>n0")
    assert (await graph.member("n1199")).rank == 1200
    await graph.stage("n1199>last")
    async with lab.refuses(CycleDetected):
        await graph.stage("last>first")


@woven
async def test_both_ends_of_an_edge_must_be_members(lab: Lab) -> None:
    graph = await empty(lab, "a")
    graph.ids["x"] = await lab.create(colocate_with=graph.flow_id)
    async with lab.refuses(ExecutionNotInFlow, "downstream_execution_id"):
        await graph.stage("a>x")
    async with lab.refuses(ExecutionNotInFlow, "upstream_execution_id"):
        await graph.stage("x>a")


@woven
async def test_a_staged_edge_keeps_nobody_back_and_an_applied_one_does(lab: Lab) -> None:
    """Apply blocks the child in the same transaction."""
    graph = await empty(lab, "a", "b")
    edge_id = await graph.stage("a>b")
    assert await graph.states() == {"a": "waiting", "b": "waiting"}
    assert await graph.edge_states() == {"a>b": "pending"}
    assert await graph.apply("a>b", edge_id) == Applied(1)
    snapshot = await lab.describe(graph.ids["b"])
    assert snapshot.state.eligibility_state is EligibilityState.BLOCKED_BY_DEPENDENCIES
    assert snapshot.state.blocking_reason is BlockingReason.WAITING_FOR_CHILDREN
    async with lab.unchanged():
        assert await graph.apply("a>b", edge_id) == DependencyAlreadyApplied()
    claimed = await lab.claims(limit=10)
    assert [each.execution_id for each in claimed] == [graph.ids["a"]]
    await lab.engine.complete(claimed[0].handle)
    assert (await lab.claim()).execution_id == graph.ids["b"]


@woven
async def test_d10_an_edge_is_staged_and_applied_in_one_transaction(lab: Lab) -> None:
    graph = await empty(lab, "a", "b", "c")
    assert await graph.link("a>c", "b>c") == [1, 2]
    async with lab.refuses(CycleDetected):
        await graph.link("c>a")
    assert await graph.edge_states() == {"a>c": "applied", "b>c": "applied"}


@woven
async def test_only_what_was_staged_between_these_two_is_applied(lab: Lab) -> None:
    """edge_not_found."""
    graph = await empty(lab, "a", "b", "c")
    edge_id = await graph.stage("a>b")
    for path, key in (("a>c", edge_id), ("b>c", edge_id), ("a>b", identifiers.new_uuid7s(1)[0])):
        async with lab.refuses(InvalidDependency, "edge_id"):
            await graph.apply(path, key)


@pytest.mark.parametrize("outcome", ["success", "failed", "cancelled"])
@woven
async def test_d11_an_upstream_that_has_ended_counts_at_once(lab: Lab, outcome: str) -> None:
    """Apply after the upstream is terminal."""
    graph = await empty(lab, "a")
    await graph.add("c", lane_id="idle")
    await graph.end("a", outcome)
    await graph.add("b", reopen=True)
    await graph.link("a>b")
    assert await graph.state("b") == ("waiting" if outcome == "success" else "skipped")


@woven
async def test_d12_a_delay_or_another_block_goes_on_underneath(lab: Lab) -> None:
    """A hold stays, a delay is waited for after the dependencies."""
    graph = await empty(lab, "a")
    await graph.add("late", delay_until=lab.now + 1000)
    await graph.add("held")
    await lab.engine.hold_execution(execution_id=graph.ids["held"])
    await graph.link("a>late", "a>held")
    assert await graph.state("late") == "waiting_children"
    await lab.after(10)
    await graph.complete("a")
    assert await graph.state("late") == "delayed"
    assert await lab.claims(limit=10) == []
    await lab.engine.release_execution(execution_id=graph.ids["held"])
    assert (await lab.claim()).execution_id == graph.ids["held"]
    await lab.after(990)
    assert (await lab.claim()).execution_id == graph.ids["late"]


@woven
async def test_d12_released_too_early_it_still_waits_for_its_dependencies(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    await lab.engine.hold_execution(execution_id=graph.ids["b"])
    await lab.engine.release_execution(execution_id=graph.ids["b"])
    assert await graph.state("b") == "waiting_children"
    await graph.complete("a")
    assert await graph.state("b") == "waiting"


@woven
async def test_d12_what_runs_or_has_ended_takes_no_edge(lab: Lab) -> None:
    """Edges are applied to runnable children only; a late edge would re-block a decided group."""
    graph = await empty(lab, "a", "b", "c")
    staged = await graph.stage("a>b")
    await graph.start("a", "b", "c")
    async with lab.refuses(DependentNotRunnable, "downstream_execution_id"):
        await graph.apply("a>b", staged)
    async with lab.refuses(DependentNotRunnable, "downstream_execution_id"):
        await graph.link("c>b")
    await graph.complete("b")
    async with lab.refuses(DependentNotRunnable, "downstream_execution_id"):
        await graph.link("c>b")


@woven
async def test_d12_a_group_that_was_decided_takes_no_edge(lab: Lab) -> None:
    graph = await submit(lab, ["a", "b", "c"], arrows("a>b"))
    await graph.complete("a")
    assert await graph.state("b") == "waiting"
    async with lab.refuses(DependencyGroupDecided, "group"):
        await graph.stage("c>b")


@woven
async def test_a_finished_flow_takes_members_only_when_asked_to_reopen(lab: Lab) -> None:
    """Explicit, with an event."""
    graph = await empty(lab, "a")
    await graph.complete("a")
    assert (await graph.snapshot()).public_flow_state.value == "completed"
    key = await lab.create(colocate_with=graph.flow_id)
    async with lab.refuses(FlowAlreadyTerminal, "completed"):
        await lab.engine.add_execution_to_flow(flow_id=graph.flow_id, execution_id=key)
    await graph.add("b", reopen=True)
    assert (await graph.snapshot()).finished_at is None
    await graph.link("a>b")
    await graph.start()
    await graph.fail("b")
    assert await graph.events() == ["completed", "reopened", "failed"]


@woven
async def test_an_execution_that_has_ended_may_join_and_is_counted(lab: Lab) -> None:
    graph = await empty(lab)
    key = await lab.completed(colocate_with=graph.flow_id)
    await lab.engine.add_execution_to_flow(flow_id=graph.flow_id, execution_id=key)
    graph.ids["a"] = key
    assert await graph.events() == ["completed"]
    assert (await graph.row()).completed_count == 1
    await lab.after(lab.config.retention_ms - 1)
    assert await graph.state("a") == "completed"


# --- policies ----------------------------------------------------------------------------------


@woven
async def test_scenario_11_a_policy_is_set_before_the_first_edge(lab: Lab) -> None:
    """The whole policy is compared, staged edges fix it, the flow and the member exist."""
    graph = await empty(lab, "a", "d")
    two: EdgePolicy = Quorum(2, CANCEL)
    assert await graph.join("d", AnySucceeded(LET_RUN)) == PolicySet()
    assert await graph.join("d", two) == PolicySet()
    async with lab.unchanged():
        assert await graph.join("d", Quorum(2, CANCEL)) == PolicyAlreadySet()
    await graph.stage("a>d")
    for other in (Quorum(1, CANCEL), Quorum(2, LET_RUN), AllSucceeded(), AnySucceeded(CANCEL)):
        async with lab.refuses(InvalidInput, "edge_group_policy_already_fixed"):
            await graph.join("d", other)
    async with lab.unchanged():
        assert await graph.join("d", two) == PolicyAlreadySet()


@woven
async def test_scenario_11_a_threshold_of_nothing_is_refused(lab: Lab) -> None:
    graph = await empty(lab, "d")
    for k in (0, -1, 2**31, True, 1.5):
        async with lab.refuses(InvalidInput, "policy.k"):
            await graph.join("d", Quorum(k, CANCEL))  # type: ignore[arg-type]
    lab.engine = lab.direct  # behind a wire such a map is a policy
    for policy in (None, "all_of", {"kind": "all_of"}, AnySucceeded("sometimes")):  # type: ignore[arg-type]
        async with lab.refuses(InvalidInput, "policy"):
            await graph.join("d", policy)  # type: ignore[arg-type]


@woven
async def test_d32_a_policy_needs_its_flow_and_its_member(lab: Lab) -> None:
    graph = await empty(lab, "d")
    missing = Graph(lab, identifiers.new_uuid7s(1)[0], graph.ids)
    async with lab.refuses(NotFound, "flow"):
        await missing.join("d", AllSucceeded())
    graph.ids["x"] = await lab.create(colocate_with=graph.flow_id)
    async with lab.refuses(ExecutionNotInFlow, "downstream_execution_id"):
        await graph.join("x", AllSucceeded())
    await lab.engine.cancel_flow(flow_id=graph.flow_id)
    async with lab.refuses(FlowAlreadyTerminal):
        await graph.join("d", AllSucceeded())
