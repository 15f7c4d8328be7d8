"""The drawings of flows: a few to be read, and what holds for all of them."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.model.flow import EdgeState, FlowState, OnSatisfied, Quorum
from flowfabric.model.flow_graph import (
    FlowGraph,
    GraphEdge,
    GraphGroup,
    GraphLevel,
    GraphNode,
    GroupEdge,
    GroupPlace,
)
from flowfabric.model.flow_results import EdgeGroupSnapshot, FlowSnapshot
from flowfabric.model.layers import layers
from flowfabric.model.state import PublicState
from flowfabric.server.ui.draw import layered
from flowfabric.server.ui.draw.graph import ELEMENTS_MAX, draw_graph
from flowfabric.server.ui.draw.layered import Layout, Spot, lay_out
from flowfabric.server.ui.draw.waterfall import draw_waterfall
from flowfabric.server.ui.views.flow import Flow, flow_of
from flowfabric.server.ui.views.flow_address import asked_of

GOLDEN = Path(__file__).parent / "golden"
NOW = 1_700_000_000_000
FLOW_ID = "0193a1f0-0000-7000-8000-00000000f10e"
STATES = list(PublicState)


def key_of(at: int) -> str:
    return f"{{fp:17}}:0193a1f0-0000-7000-8000-{at:012d}"


def snapshot(count: int, edges: int, groups: tuple[EdgeGroupSnapshot, ...] = ()) -> FlowSnapshot:
    return FlowSnapshot(
        *(FLOW_ID, "deploy", "default", FlowState.RUNNING, 7, count, edges, NOW - 60_000, NOW),
        *(None, None, None, None, {}, {PublicState.ACTIVE: count}, groups),
    )


def full(names: str, paths: str, states: str, **more: Any) -> FlowGraph:
    """A flow from words: names, `a>b` and a state for each name."""
    ids = {name: key_of(at) for at, name in enumerate(names.split())}
    pairs = [pair for path in paths.split() for pair in pairwise(path.split(">"))]
    ranks = {name: at for at, layer in enumerate(layers(list(ids), pairs)) for name in layer}
    stands = dict(zip(ids, states.split(), strict=True))
    nodes = tuple(
        GraphNode(
            *(ids[name], name, "step", ranks[name], None, PublicState(stands[name])),
            *(1, "it broke" if stands[name] == "failed" else more.get(name, ""), NOW - 60_000),
            None if stands[name].startswith("waiting") else NOW - 50_000 + 1_000 * at,
            NOW - 40_000 + 3_000 * at if PublicState(stands[name]).is_terminal else None,
        )
        for at, name in enumerate(ids)
    )
    ends = {"completed": EdgeState.SATISFIED}
    lost = ("failed", "cancelled", "skipped")
    edges = tuple(
        GraphEdge(
            *(ids[up], ids[down]),
            EdgeState.IMPOSSIBLE if stands[up] in lost else ends.get(stands[up], EdgeState.APPLIED),
            False,
        )
        for up, down in pairs
    )
    groups = more.get("groups", ())
    levels = tuple(GraphLevel(at, at, at, 1) for at in sorted({*ranks.values()}))
    return FlowGraph(
        snapshot(len(nodes), len(edges), groups), False, True, levels, nodes=nodes, edges=edges
    )


def shown(graph: FlowGraph, **query: str) -> Flow:
    return flow_of(graph, asked_of(f"/ui/flows/{FLOW_ID}", query), NOW)


def graph_of(graph: FlowGraph, **query: str) -> str:
    picture = shown(graph, **query).picture
    assert picture is not None
    return draw_graph(picture)


def waterfall_of(graph: FlowGraph) -> str:
    waterfall = shown(graph, tab="waterfall").waterfall
    assert waterfall is not None
    return draw_waterfall(waterfall)


# --- drawings to be read -------------------------------------------------------------------------


def check_golden(name: str, drawing: str) -> None:
    """As it was when a person looked at it; FF_DRAW=1 writes it anew, to be looked at again."""
    text = drawing.replace("><", ">\n<") + "\n"
    path = GOLDEN / name
    if os.environ.get("FF_DRAW"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


SIX = full(
    "build unit integration e2e deploy verify",
    "build>unit>deploy build>integration>deploy build>e2e>deploy>verify",
    "completed completed active completed waiting_children waiting_children",
)


def test_six_nodes() -> None:
    check_golden("six.svg", graph_of(SIX))
    check_golden("six-waterfall.svg", waterfall_of(SIX))


def test_a_node_that_is_looked_at_lights_what_it_waits_for_and_what_depends_on_it() -> None:
    node = "17.0193a1f0-0000-7000-8000-000000000002"
    check_golden("six-at-integration.svg", graph_of(SIX, node=node))


def test_a_quorum_with_a_loser_and_a_failure_that_has_others_skipped() -> None:
    graph = full(
        "m1 m2 m3 race fetch parse store",
        "m1>race m2>race m3>race fetch>parse>store race>store",
        "completed completed cancelled completed failed skipped skipped",
        m3="sibling_quorum_satisfied",
        groups=(
            EdgeGroupSnapshot(
                *(key_of(3), "race", Quorum(2, OnSatisfied.CANCEL_REMAINING), 3, 2, 1, 0, 0, 0),
                *("satisfied", NOW),  # type: ignore[arg-type]
            ),
        ),
    )
    check_golden("quorum.svg", graph_of(graph))
    flow = shown(graph)
    (join,) = flow.joins
    assert [(each.name, each.note) for each in join.upstreams if each.state == "cancelled"] == [
        ("m3", "not needed")
    ]
    notes = {each.name: each.note for each in flow.nodes}
    assert notes["parse"] == notes["store"] == "fetch failed"


def folded(groups: tuple[GraphGroup, ...], edges: tuple[GroupEdge, ...] = ()) -> FlowGraph:
    total = sum(each.count for each in groups)
    levels = sorted({each.level for each in groups})
    return FlowGraph(
        snapshot(total, sum(each.count for each in edges)),
        *(True, True, tuple(GraphLevel(at, at, at, 1) for at in levels)),
        groups=groups,
        group_edges=edges,
    )


def group(level: int, kind: str, state: str, count: int) -> GraphGroup:
    is_over = PublicState(state).is_terminal
    return GraphGroup(
        *(level, kind, False, PublicState(state), count, NOW - 60_000),
        *(NOW - 50_000, NOW - 1_000 if is_over else None),
    )


def test_ten_thousand_nodes() -> None:
    places = [GroupPlace(at, kind, False) for at, kind in enumerate(("list", "fetch", "publish"))]
    graph = folded(
        (
            group(0, "list", "completed", 1),
            *(group(1, "fetch", "completed", 9_612), group(1, "fetch", "active", 80)),
            group(1, "fetch", "failed", 108),
            group(2, "publish", "waiting_children", 1),
        ),
        tuple(GroupEdge(*pair, 9_800) for pair in pairwise(places)),
    )
    check_golden("folded.svg", graph_of(graph))
    said = [
        " ".join(each.itertext()) for each in parsed(graph_of(graph)).iter() if tag(each) == "a"
    ]
    assert "✕108 ▶80 ✓9 612" in said[1]


# --- what holds for all --------------------------------------------------------------------------


def tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def parsed(drawing: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawing)  # noqa: S314 - our own


dags = st.integers(1, 40).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.sets(
            st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).map(
                lambda pair: (min(pair), max(pair))
            ),
            max_size=3 * size,
        ).map(lambda pairs: sorted(pair for pair in pairs if pair[0] != pair[1])),
    )
)


def laid_out(size: int, pairs: list[tuple[int, int]]) -> tuple[Layout, list[tuple[str, str]]]:
    wires = [(str(up), str(down)) for up, down in pairs]
    columns = layers([str(at) for at in range(size)], wires)
    boxes = [layered.Box(key, at, 44) for at, layer in enumerate(columns) for key in layer]
    return lay_out(boxes, wires), wires


@settings(max_examples=60, deadline=None)
@given(dags)
def test_boxes_lie_apart_and_inside_and_wires_lead_from_one_to_the_other(
    dag: tuple[int, list[tuple[int, int]]],
) -> None:
    layout, wires = laid_out(*dag)
    spots = list(layout.spots.values())
    for spot in spots:
        assert 0 <= spot.x <= spot.x + spot.width <= layout.width
        assert 0 <= spot.y <= spot.y + spot.height <= layout.height
    by_column: dict[int, list[Spot]] = {}
    for spot in spots:
        by_column.setdefault(spot.x, []).append(spot)
    for column in by_column.values():
        column.sort(key=lambda each: each.y)
        assert all(above.y + above.height < below.y for above, below in pairwise(column))
    assert {*layout.routes} == {*wires}
    for (up, down), hops in layout.routes.items():
        start, end = layout.spots[up], layout.spots[down]
        assert hops[0].x == start.x + start.width
        assert start.y < hops[0].y < start.y + start.height
        assert (hops[-1].to_x, hops[-1].to_y) == (end.x, end.middle)
        assert [hop.is_end for hop in hops] == [*[False] * (len(hops) - 1), True]
        for hop, following in pairwise(hops):
            assert (hop.to_x, hop.to_y) == (following.x, following.y)
        for hop in hops:
            assert hop.x < hop.turn < hop.to_x


@settings(max_examples=60, deadline=None)
@given(dags)
def test_no_wire_crosses_a_box(dag: tuple[int, list[tuple[int, int]]]) -> None:
    layout, _ = laid_out(*dag)
    for hops in layout.routes.values():
        for hop in hops:
            lines = (
                (hop.x, hop.y, hop.turn, hop.y),
                (hop.turn, min(hop.y, hop.to_y), hop.turn, max(hop.y, hop.to_y)),
                (hop.turn, hop.to_y, hop.to_x, hop.to_y),
            )
            for spot in layout.spots.values():
                for left, top, right, bottom in lines:
                    across = left < spot.x + spot.width and right > spot.x
                    assert not (across and top < spot.y + spot.height and bottom > spot.y)


def test_a_wire_leaves_beside_an_entrance_that_it_does_not_lead_to() -> None:
    """Two wires on one line would be read as one."""
    build, race, deploy, verify = [(0, at) for at in (1, 2, 3, 4)], (5, 6, 7), (1, 2, 3), (9, 4, 8)
    joins = [*((at, 8) for at in race), *((at, 9) for at in deploy), *((at, 10) for at in verify)]
    layout, _ = laid_out(11, [*build, *joins])
    for up, down in layout.routes:
        for other, spot in layout.spots.items():
            is_next = spot.x > layout.spots[up].x
            if is_next and (up, other) not in layout.routes:
                assert layout.routes[up, down][0].y != spot.middle


any_names = st.text(min_size=1, max_size=40).filter(lambda text: text.strip() != "")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(any_names, st.sampled_from(STATES)), min_size=1, max_size=30), st.randoms()
)
def test_a_drawing_is_whole_bounded_and_told_in_words(
    members: list[tuple[str, PublicState]], random: Any
) -> None:
    nodes = tuple(
        GraphNode(
            *(key_of(at), name, "k", 0, None, state, at, name, NOW - at * 1_000),
            *((NOW - 500, None) if at % 2 else (None, None)),
        )
        for at, (name, state) in enumerate(members)
    )
    pairs = {
        (random.randrange(at), at)
        for at in range(1, len(nodes))
        for _ in range(random.randrange(3))
    }
    edges = tuple(
        GraphEdge(key_of(up), key_of(down), random.choice(list(EdgeState)), False)
        for up, down in pairs
    )
    graph = FlowGraph(snapshot(len(nodes), len(edges)), False, True, (), nodes=nodes, edges=edges)
    flow = shown(graph)
    assert len(flow.nodes) == len(nodes), "the table has every node"
    assert sum(len(each.waits_for) for each in flow.nodes) == len(edges), "and every edge"
    for drawing in (graph_of(graph), waterfall_of(graph)):
        root = parsed(drawing)
        every = list(root.iter())
        assert len(every) <= ELEMENTS_MAX
        assert [tag(each) for each in root[:2]] == ["title", "desc"]
        assert len([each for each in every if tag(each) == "a"]) == len(nodes)
        assert not [each for each in every if "style" in each.attrib or tag(each) == "script"]


def test_the_largest_drawing_stays_within_its_elements() -> None:
    names = " ".join(f"n{at}" for at in range(199))
    paths = " ".join(f"n{at}>n{at + step}" for step in (1, 7) for at in range(199 - step))
    states = " ".join(STATES[at % len(STATES)].value for at in range(199))
    drawing = graph_of(full(names, paths, states))
    assert len(list(parsed(drawing).iter())) <= ELEMENTS_MAX
    assert len(list(parsed(waterfall_of(full(names, paths, states))).iter())) <= ELEMENTS_MAX
    levels, kinds = 101, ("a", "b", "c")
    groups = tuple(
        group(level, kind, state.value, 3)
        for level in range(levels)
        for kind in kinds
        for state in STATES[:6]
    )
    drawing = graph_of(folded(groups))
    assert len(list(parsed(drawing).iter())) <= ELEMENTS_MAX
    assert sum(int(each) for each in re.findall(r"×(\d+)", drawing)) == 2 * levels * 54
    every = tuple(group(level, "a", state.value, 1) for level in range(levels) for state in STATES)
    assert len(list(parsed(graph_of(folded(every))).iter())) <= ELEMENTS_MAX
