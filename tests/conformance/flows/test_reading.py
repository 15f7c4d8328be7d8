"""Reads of flows: listings, edges, members, eligibility, tags."""

from __future__ import annotations

import pytest

from flowfabric.errors import InvalidInput, InvalidTagKey, NotFound
from flowfabric.ids import new_execution_id, new_uuid7s
from flowfabric.limits import PAGE_MAX, TAGS_MAX
from flowfabric.model.flow import (
    AllDone,
    AllSucceeded,
    AnySucceeded,
    EdgePolicy,
    EdgeState,
    FlowState,
    FlowStatus,
    OnSatisfied,
    Quorum,
)
from flowfabric.model.flow_results import EligibilityStatus
from tests.support.flows import Graph, arrows, empty, fan_in, node, submit, woven
from tests.support.lab import Lab
from tests.support.waits import suspended

LET_RUN = OnSatisfied.LET_RUN


async def eligibility(graph: Graph, name: str) -> str:
    found = await graph.lab.engine.evaluate_flow_eligibility(execution_id=graph.ids[name])
    return found.status


# --- listings ----------------------------------------------------------------------------------


@woven
async def test_scenario_20_pages_are_exhaustive_ordered_and_exclusive(lab: Lab) -> None:
    graphs = [await submit(lab, "a") for _ in range(7)]
    everyone = sorted(graph.flow_id for graph in graphs)
    for newest_first in (False, True):
        seen: list[str] = []
        cursor = None
        while True:
            page = await lab.engine.list_flows(limit=3, cursor=cursor, newest_first=newest_first)
            seen += [each.flow_id for each in page.items]
            if page.next_cursor is None:
                break
            cursor = page.next_cursor
        assert seen == (everyone[::-1] if newest_first else everyone)
    assert (await lab.engine.list_flows(limit=0)).items == ()
    whole = await lab.engine.list_flows(limit=7)
    assert (len(whole.items), whole.next_cursor) == (7, None)


@woven
async def test_d23_a_listing_filters_by_status_and_namespace(lab: Lab) -> None:
    graphs = {
        FlowStatus.ACTIVE: await submit(lab, [node("a", lane_id="idle")]),
        FlowStatus.COMPLETED: await submit(lab, "a"),
        FlowStatus.FAILED: await submit(lab, "ab", arrows("a>b")),
        FlowStatus.CANCELLED: await submit(lab, "a"),
    }
    other = await submit(lab, "a", namespace="other", flow_kind="pipeline")
    await graphs[FlowStatus.COMPLETED].complete("a")
    await graphs[FlowStatus.FAILED].fail("a")
    await lab.engine.cancel_flow(flow_id=graphs[FlowStatus.CANCELLED].flow_id)
    for status, graph in graphs.items():
        page = await lab.engine.list_flows(namespace="default", status=status.value)
        (line,) = page.items
        assert (line.flow_id, line.status) == (graph.flow_id, status)
        assert line.created_at == lab.now
        assert line.node_count == len(graph.ids)
        assert line.ended_count == (0 if status is FlowStatus.ACTIVE else line.node_count)
    (line,) = (await lab.engine.list_flows(namespace="other")).items
    assert (line.flow_id, line.flow_kind, line.namespace) == (other.flow_id, "pipeline", "other")
    assert len((await lab.engine.list_flows()).items) == 5
    assert (await lab.engine.list_flows(namespace="nobody")).items == ()


@woven
async def test_scenario_4_a_finished_flow_stays_listed(lab: Lab) -> None:
    """There is no index of live flows that could lose one."""
    graph = await submit(lab, "a")
    await graph.complete("a")
    (line,) = (await lab.engine.list_flows()).items
    assert line.status is FlowStatus.COMPLETED
    await graph.add("b", reopen=True)
    (line,) = (await lab.engine.list_flows()).items
    assert line.status is FlowStatus.ACTIVE


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"limit": -1}, "limit"),
        ({"limit": PAGE_MAX + 1}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"cursor": 5}, "cursor"),
        ({"status": "open"}, "status"),
        ({"namespace": ""}, "namespace"),
    ],
)
@woven
async def test_a_malformed_listing_is_refused(
    lab: Lab, fields: dict[str, object], name: str
) -> None:
    async with lab.refuses(InvalidInput, name):
        await lab.engine.list_flows(**fields)  # type: ignore[arg-type]


# --- members and edges -------------------------------------------------------------------------


@woven
async def test_members_are_listed_in_the_order_of_the_graph(lab: Lab) -> None:
    graph = await submit(lab, [node("z", kind="zed"), "y", "x"], arrows("z>y>x"))
    await graph.fail("z")
    members = await lab.engine.list_flow_members(flow_id=graph.flow_id)
    assert [each.node_name for each in members] == ["z", "y", "x"]
    assert [each.rank for each in members] == [0, 1, 2]
    first, second, _ = members
    assert (first.execution_kind, first.attempt_count, first.reason) == ("zed", 1, "it broke")
    assert (second.attempt_count, second.reason) == (0, "dependency_impossible")
    async with lab.refuses(NotFound, "flow"):
        await lab.engine.list_flow_members(flow_id=new_uuid7s(1)[0])


@woven
async def test_scenario_20_edges_are_listed_by_either_end(lab: Lab) -> None:
    graph = await submit(lab, "abcd", arrows("a>b", "a>c", "b>d", "c>d"))
    ids = graph.ids

    async def pairs(
        from_node: str | None = None, to_node: str | None = None
    ) -> set[tuple[str, str]]:
        found = (
            await lab.engine.list_edges(flow_id=graph.flow_id, from_node=from_node, to_node=to_node)
        ).items
        assert list(found) == sorted(found, key=lambda each: each.edge_id)
        return {(each.upstream_execution_id, each.downstream_execution_id) for each in found}

    assert await pairs(from_node=ids["a"]) == {(ids["a"], ids["b"]), (ids["a"], ids["c"])}
    assert await pairs(to_node=ids["d"]) == {(ids["b"], ids["d"]), (ids["c"], ids["d"])}
    assert await pairs(to_node=ids["a"]) == set()
    assert len(await pairs()) == 4
    missing = new_uuid7s(1)[0]
    assert (await lab.engine.list_edges(flow_id=missing)).items == ()
    assert (await lab.engine.list_edges(flow_id=missing, from_node=ids["a"])).items == ()
    assert await pairs(from_node=await lab.create()) == set()


@pytest.mark.parametrize(
    ("join", "word"),
    [
        (None, "all_required"),
        (AllSucceeded(), "all_required"),
        (AllDone(), "all_done"),
        (AnySucceeded(OnSatisfied.CANCEL_REMAINING), "any_of"),
        (Quorum(2, OnSatisfied.LET_RUN), "quorum:2"),
    ],
    ids=str,
)
@woven
async def test_an_edge_tells_what_its_group_asks_for(
    lab: Lab, join: EdgePolicy | None, word: str
) -> None:
    """Issue 10 C: the truth of the group, at every way to look at an edge."""
    graph = await submit(
        lab, [node("a"), node("b"), node("c"), node("d", join)], arrows("a>d", "b>d", "c>d", "a>b")
    )
    edges = (await lab.engine.list_edges(flow_id=graph.flow_id)).items
    told = {each.downstream_execution_id: each.satisfaction_condition for each in edges}
    assert told == {graph.ids["d"]: word, graph.ids["b"]: "all_required"}
    for each in edges:
        assert await lab.engine.describe_edge(flow_id=graph.flow_id, edge_id=each.edge_id) == each
    inbound = (await lab.engine.list_edges(flow_id=graph.flow_id, to_node=graph.ids["d"])).items
    assert {each.satisfaction_condition for each in inbound} == {word}


@woven
async def test_an_edge_tells_its_live_state(lab: Lab) -> None:
    """Pending, applied, satisfied, impossible, and when."""
    graph = await empty(lab, "a", "b", "c", "d")
    edge_id = await graph.stage("a>b", data_passing_ref="result", input_name="draft")
    describe = lab.engine.describe_edge
    found = await describe(flow_id=graph.flow_id, edge_id=edge_id)
    assert found is not None
    assert (found.edge_state, found.resolved_at) == (EdgeState.PENDING, None)
    assert (found.dependency_kind, found.satisfaction_condition) == ("success_only", "all_required")
    assert (found.data_passing_ref, found.input_name) == ("result", "draft")
    assert (found.created_at, found.created_by) == (lab.now, "engine")
    await graph.apply("a>b", edge_id)
    lost = await graph.stage("c>d", data_passing_ref="")
    await graph.apply("c>d", lost)
    lab.clock.advance(7)
    await graph.complete("a")
    await graph.fail("c")
    for key, state in ((edge_id, EdgeState.SATISFIED), (lost, EdgeState.IMPOSSIBLE)):
        found = await describe(flow_id=graph.flow_id, edge_id=key)
        assert found is not None
        assert (found.edge_state, found.resolved_at) == (state, lab.now)
    assert found.data_passing_ref is None
    assert await describe(flow_id=graph.flow_id, edge_id=new_uuid7s(1)[0]) is None
    assert await describe(flow_id=new_uuid7s(1)[0], edge_id=edge_id) is None


@woven
async def test_d20_d37_groups_are_described_with_their_state(lab: Lab) -> None:
    graph = await submit(
        lab, ["a", "b", node("c", Quorum(2, LET_RUN)), "d"], arrows("a>c", "b>c", "c>d")
    )
    await graph.complete("a")
    groups = {each.node_name: each for each in (await graph.snapshot()).edge_groups}
    assert set(groups) == {"c", "d"}
    assert groups["c"].policy == Quorum(2, LET_RUN)
    counts = (groups["c"].total_deps, groups["c"].satisfied_count, groups["c"].running_count)
    assert counts == (2, 1, 1)
    assert await lab.engine.describe_flow(flow_id=new_uuid7s(1)[0]) is None
    async with lab.refuses(NotFound, "flow"):
        await lab.engine.project_flow_summary(flow_id=new_uuid7s(1)[0])


@woven
async def test_an_execution_tells_its_flow(lab: Lab) -> None:
    graph = await submit(lab, "a")
    resolve = lab.engine.resolve_execution_flow_id
    assert await resolve(execution_id=graph.ids["a"]) == graph.flow_id
    assert await resolve(execution_id=await lab.create()) is None
    assert await resolve(execution_id=new_execution_id()) is None


# --- eligibility -------------------------------------------------------------------------------


@woven
async def test_d19_eligibility_is_judged_by_the_group(lab: Lab) -> None:
    """The reasons have an order: an execution that is not runnable shows no other."""
    graph = await submit(
        lab, ["a", "b", node("c", AnySucceeded(LET_RUN)), "d"], arrows("a>c", "b>c", "c>d")
    )
    assert await eligibility(graph, "a") == "eligible"
    assert await eligibility(graph, "c") == "blocked_by_dependencies"
    await graph.start("a", "b")
    assert await eligibility(graph, "a") == "not_runnable"
    await graph.fail("a")
    assert await eligibility(graph, "a") == "not_runnable"
    assert await eligibility(graph, "c") == "blocked_by_dependencies"
    await graph.complete("b")
    assert await eligibility(graph, "c") == "eligible"
    assert await eligibility(graph, "d") == "blocked_by_dependencies"
    await graph.fail("c")
    assert await eligibility(graph, "d") == "not_runnable"
    wait = await submit(lab, "x")
    await wait.start("x")
    await suspended(lab, claimed=wait.claimed.pop(wait.ids["x"]))
    assert await eligibility(wait, "x") == "not_runnable"


@woven
async def test_d62_a_quorum_that_cannot_be_met_says_so_before_anybody_ends(lab: Lab) -> None:
    graph = await empty(lab, "a", "d")
    await graph.join("d", Quorum(2, LET_RUN))
    await graph.link("a>d")
    assert await eligibility(graph, "d") == "impossible"
    assert await graph.state("d") == "waiting_children"


@woven
async def test_eligibility_of_who_has_no_flow_or_does_not_exist(lab: Lab) -> None:
    evaluate = lab.engine.evaluate_flow_eligibility
    assert await evaluate(execution_id=await lab.create()) == EligibilityStatus("eligible")
    assert await evaluate(execution_id=new_execution_id()) == EligibilityStatus("not_found")


# --- tags --------------------------------------------------------------------------------------


@woven
async def test_d21_a_tag_is_written_and_described(lab: Lab) -> None:
    """A tag write, then describe and list."""
    graph = await submit(lab, "a", tags={"team.name": "x"})
    lab.clock.advance(5)
    await lab.engine.set_flow_tag(flow_id=graph.flow_id, key="cost.center", value="42")
    await lab.engine.set_flow_tags(flow_id=graph.flow_id, tags={"team.name": "y", "a.b": ""})
    snapshot = await graph.snapshot()
    assert snapshot.tags == {"a.b": "", "cost.center": "42", "team.name": "y"}
    assert snapshot.last_mutation_at == lab.now
    assert len((await lab.engine.list_flows()).items) == 1
    get = lab.engine.get_flow_tag
    assert await get(flow_id=graph.flow_id, key="team.name") == "y"
    assert await get(flow_id=graph.flow_id, key="no.such") is None
    assert await get(flow_id=new_uuid7s(1)[0], key="team.name") is None


@woven
async def test_a_malformed_tag_writes_nothing(lab: Lab) -> None:
    graph = await submit(lab, "a")
    flow_id = graph.flow_id
    for key in ("", "plain", "Upper.case", "a.", ".a", "a..", 5, "a.b\n"):
        engine = lab.engine if isinstance(key, str) else lab.direct
        async with lab.refuses(InvalidTagKey):
            await engine.set_flow_tag(flow_id=flow_id, key=key, value="v")  # type: ignore[arg-type]
        with pytest.raises(InvalidTagKey):
            await engine.get_flow_tag(flow_id=flow_id, key=key)  # type: ignore[arg-type]
    engine = lab.engine
    async with lab.refuses(InvalidTagKey, "plain"):
        await engine.set_flow_tags(flow_id=flow_id, tags={"a.b": "c", "plain": "d"})
    async with lab.refuses(InvalidInput, "value"):
        await engine.set_flow_tag(flow_id=flow_id, key="a.b", value=5)  # type: ignore[arg-type]
    async with lab.refuses(NotFound, "flow"):
        await engine.set_flow_tag(flow_id=new_uuid7s(1)[0], key="a.b", value="c")
    await engine.set_flow_tags(flow_id=flow_id, tags={f"k.{at}": "" for at in range(TAGS_MAX)})
    async with lab.refuses(InvalidInput, "tags"):
        await engine.set_flow_tag(flow_id=flow_id, key="one.more", value="")


@woven
async def test_a_cancelled_flow_can_still_be_tagged(lab: Lab) -> None:
    graph = await fan_in(lab, 2, AnySucceeded(LET_RUN))
    await lab.engine.cancel_flow(flow_id=graph.flow_id)
    await lab.engine.set_flow_tag(flow_id=graph.flow_id, key="why.not", value="money")
    assert (await graph.snapshot()).tags == {"why.not": "money"}
    assert await graph.flow_state() is FlowState.CANCELLED
