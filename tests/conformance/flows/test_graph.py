"""A flow as it is drawn: member by member, folded, listed, and one member with those next to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from flowfabric import limits
from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidCursor, InvalidInput, NotFound
from flowfabric.ids import new_uuid7s
from flowfabric.model.flow import OnSatisfied, Quorum
from flowfabric.model.flow_graph import FlowGraph, GraphGroup
from tests.support.flows import Graph, arrows, edge, node, pump, submit, woven
from tests.support.lab import Lab

CANCEL = OnSatisfied.CANCEL_REMAINING


async def drawn(graph: Graph, **how: Any) -> FlowGraph:
    return await graph.lab.engine.describe_flow_graph(flow_id=graph.flow_id, **how)


def told(groups: tuple[GraphGroup, ...]) -> dict[tuple[int, str, str], int]:
    found = {
        (each.level, each.execution_kind, each.public_state.value): each.count for each in groups
    }
    assert len(found) == len(groups), "a level, task and state is one group"
    return found


async def wide(lab: Lab, size: int = 6, **fields: Any) -> Graph:
    """`begin` leads to many of one task, and these to `end`."""
    names = [f"page{at}" for at in range(size)]
    return await submit(
        lab,
        [node("begin", kind="list"), *(node(each, kind="fetch") for each in names), node("end")],
        [*(edge("begin", each) for each in names), *(edge(each, "end") for each in names)],
        **fields,
    )


@woven
async def test_a_small_flow_is_drawn_node_by_node(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b>c", "a>c", passes_result=True))
    await graph.complete("a", result=b"1")
    found = await drawn(graph)
    assert (found.is_folded, found.has_edges, found.groups) == (False, True, ())
    assert [(each.node_name, each.rank, each.public_state.value) for each in found.nodes] == [
        *(("a", 0, "completed"), ("b", 1, "waiting"), ("c", 2, "waiting_children")),
    ]
    first = found.nodes[0]
    assert (first.started_at, first.ended_at, first.attempt_count) == (lab.now, lab.now, 1)
    names = {key: name for name, key in graph.ids.items()}
    edges = {
        f"{names[each.upstream_execution_id]}>{names[each.downstream_execution_id]}": (
            each.edge_state.value,
            each.passes_result,
        )
        for each in found.edges
    }
    assert edges == {
        "a>b": ("satisfied", True),
        "b>c": ("applied", True),
        "a>c": ("satisfied", True),
    }
    assert [each.downstream_execution_id for each in found.flow.edge_groups] == [
        *(graph.ids["b"], graph.ids["c"]),
    ]
    assert [(each.first_rank, each.count) for each in found.levels] == [(0, 1), (1, 1), (2, 1)]
    assert found.flow.members == (await graph.snapshot()).members


@woven
async def test_a_large_flow_is_folded_by_level_task_and_state(lab: Lab) -> None:
    graph = await wide(lab)
    await graph.complete("begin", "page0", "page1")
    await graph.fail("page2")
    found = await drawn(graph, detail=7)
    assert (found.is_folded, found.nodes, found.edges) == (True, (), ())
    assert told(found.groups) == {
        (0, "list", "completed"): 1,
        (1, "fetch", "completed"): 2,
        (1, "fetch", "failed"): 1,
        (1, "fetch", "active"): 3,
        (2, "work", "skipped"): 1,
    }
    assert {
        (each.upstream.execution_kind, each.downstream.execution_kind): each.count
        for each in found.group_edges
    } == {("list", "fetch"): 6, ("fetch", "work"): 6}
    assert [(each.level, each.count) for each in found.levels] == [(0, 1), (1, 6), (2, 1)]
    assert found.flow.members == (await graph.snapshot()).members
    assert (await drawn(graph, detail=8)).is_folded is False


@woven
async def test_edges_that_are_known_are_left_out_until_the_graph_changes(lab: Lab) -> None:
    graph = await wide(lab, size=3)
    for detail in (0, 100):
        before = await drawn(graph, detail=detail)
        revision = before.flow.graph_revision
        again = await drawn(graph, detail=detail, known_revision=revision)
        assert (again.has_edges, again.edges, again.group_edges) == (False, (), ())
        assert (again.nodes, again.groups) == (before.nodes, before.groups)
        other = await drawn(graph, detail=detail, known_revision=revision - 1)
        assert other == before
        assert other.has_edges


@woven
async def test_ranks_in_a_row_are_one_level_where_there_are_many(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GRAPH_LEVELS_MAX", 3)
    graph = await submit(lab, "abcdefg", arrows("a>b>c>d>e>f>g"))
    found = await drawn(graph, detail=0)
    assert [(each.first_rank, each.last_rank, each.count) for each in found.levels] == [
        *((0, 2, 3), (3, 5, 3), (6, 6, 1)),
    ]
    assert sum(each.count for each in found.group_edges) == 6


@woven
async def test_tasks_are_not_told_apart_where_they_would_be_too_many(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GRAPH_ROWS_MAX", 4)
    kinds = [node(f"n{at}", kind=f"kind{at}") for at in range(5)]
    graph = await submit(lab, [*kinds, node("end")], [edge(f"n{at}", "end") for at in range(5)])
    found = await drawn(graph, detail=0)
    assert told(found.groups) == {(0, "", "waiting"): 5, (1, "", "waiting_children"): 1}
    assert [(each.upstream.execution_kind, each.count) for each in found.group_edges] == [("", 5)]


@woven
async def test_a_child_stands_behind_the_execution_that_spawned_it(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    await graph.complete("a")
    handle = await graph.handle("b")
    children = [NewExecution(execution_kind="part") for _ in range(3)]
    spawned = await lab.engine.spawn_children(handle, children)
    found = await drawn(graph)
    assert [each.rank for each in found.nodes] == [0, 1, 2, 2, 2]
    assert {each.parent_id for each in found.nodes[2:]} == {graph.ids["b"]}
    folded = await drawn(graph, detail=0)
    assert [
        (each.level, each.execution_kind, each.are_children, each.count) for each in folded.groups
    ] == [(0, "work", False, 1), (1, "work", False, 1), (2, "part", True, 3)]
    page = await lab.engine.list_graph_members(flow_id=graph.flow_id, first_rank=2, last_rank=2)
    assert {each.execution_id for each in page.items} == {*spawned.execution_ids}


@woven
async def test_members_of_a_fold_are_listed_page_by_page(lab: Lab) -> None:
    graph = await wide(lab)
    await graph.complete("begin", "page3")
    await graph.fail("page1")
    flow_id = graph.flow_id

    async def names(**wanted: Any) -> list[str]:
        found, cursor = [], None
        while True:
            page = await lab.engine.list_graph_members(
                flow_id=flow_id, limit=2, cursor=cursor, **wanted
            )
            found += [each.node_name for each in page.items]
            cursor = page.next_cursor
            if cursor is None:
                return found

    everyone = sorted(graph.ids, key=graph.ids.__getitem__)
    assert await names() == everyone
    fetches = [each for each in everyone if each.startswith("page")]
    assert await names(execution_kind="fetch") == fetches
    assert await names(first_rank=1, last_rank=1) == fetches
    assert await names(states=["failed", "completed"], first_rank=1) == [
        each for each in everyone if each in ("page1", "page3")
    ]
    assert await names(execution_kind="unheard") == []
    fresh = await wide(lab, size=2)
    flow_id = fresh.flow_id
    assert await names(is_free=True) == ["begin"]
    assert (await lab.engine.list_graph_members(flow_id=flow_id, limit=0)).items == ()


@woven
async def test_a_member_is_shown_with_those_next_to_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = await submit(
        lab,
        ["a", "b", "c", node("d", Quorum(1, CANCEL)), "e"],
        arrows("a>d", "b>d", "c>d", "d>e"),
    )
    await graph.complete("b")
    await pump(lab)
    ask = lab.engine.describe_flow_member
    found = await ask(flow_id=graph.flow_id, execution_id=graph.ids["d"])
    assert found is not None
    assert found.node.node_name == "d"
    assert found.join is not None
    assert found.join.policy == Quorum(1, CANCEL)
    assert Counter(each.public_state.value for each in found.upstreams) == {
        "completed": 1,
        "cancelled": 2,
    }
    losers = [each for each in found.upstreams if each.public_state.value == "cancelled"]
    assert {each.reason for each in losers} == {"sibling_quorum_satisfied"}
    assert [each.node_name for each in found.downstreams] == ["e"]
    assert (found.more_upstreams, found.more_downstreams) == (False, False)
    monkeypatch.setattr(limits, "GRAPH_NEXT_MAX", 2)
    cut = await ask(flow_id=graph.flow_id, execution_id=graph.ids["d"])
    assert cut is not None
    assert (len(cut.upstreams), cut.more_upstreams, cut.more_downstreams) == (2, True, False)
    first = await ask(flow_id=graph.flow_id, execution_id=graph.ids["a"])
    assert first is not None
    assert (first.join, first.upstreams) == (None, ())
    other = await submit(lab, "x")
    assert await ask(flow_id=graph.flow_id, execution_id=other.ids["x"]) is None


@woven
async def test_the_reads_of_a_graph_check_what_they_are_given(lab: Lab) -> None:
    graph = await submit(lab, "a")
    engine, flow_id = lab.engine, graph.flow_id
    for field, value in (("detail", -1), ("detail", 2_001), ("known_revision", -1)):
        with pytest.raises(InvalidInput, match=field):
            await engine.describe_flow_graph(flow_id=flow_id, **{field: value})
    wrong: tuple[tuple[str, Any], ...] = (
        *(("first_rank", -1), ("last_rank", -1), ("states", ["gone"]), ("is_free", 1)),
        *(("execution_kind", ""), ("limit", 1_001)),
    )
    for field, value in wrong:
        with pytest.raises(InvalidInput, match=field):
            await engine.list_graph_members(flow_id=flow_id, **{field: value})
    with pytest.raises(InvalidCursor):
        await engine.list_graph_members(flow_id=flow_id, cursor="x")
    (absent,) = new_uuid7s(1)
    for ask in (engine.describe_flow_graph, engine.list_graph_members):
        with pytest.raises(NotFound):
            await ask(flow_id=absent)
