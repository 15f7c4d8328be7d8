"""A graph is recorded whole, once per key, or not at all."""

from __future__ import annotations

from typing import Any

from flowfabric.errors import FlowConflict, IdempotencyConflict, LaneClosed
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.flow.flow import CreateFlow
from flowfabric.kernel.flow.graph import StageEdge
from flowfabric.kernel.flow.submit import (
    Node,
    SubmitFlow,
    key_of,
    rows_of,
    submit_flow,
    submitted_before,
)
from flowfabric.model.execution import Body, IdempotencyRecord
from flowfabric.model.flow import AllDone, FlowRow, FlowState
from flowfabric.model.flow_results import FlowDuplicate, FlowSubmitted
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.record import replace
from flowfabric.model.results import Created, CreateResult
from flowfabric.model.state import PublicState
from tests.support import builders as make
from tests.support.builders import NOW, ROUTE, refusal

AT = Moment(NOW)


def node(name: str, **fields: Any) -> Node:
    made = CreateExecution(
        execution_id=f"x{name}",
        route=ROUTE,
        priority=0,
        policy=ExecutionPolicy(),
        body=Body(f"x{name}"),
        tags={},
        flow_id="f",
    )
    return Node(name, made, **fields)


def edge(upstream: str, downstream: str, **fields: Any) -> StageEdge:
    return StageEdge(
        flow_id="f",
        edge_id=upstream + downstream,
        upstream_execution_id=f"x{upstream}",
        downstream_execution_id=f"x{downstream}",
        dependency_kind="success_only",
        **fields,
    )


GRAPH = SubmitFlow(
    flow=CreateFlow(flow_id="f", flow_kind="dag", namespace="default"),
    nodes=(node("a"), node("b")),
    edges=(edge("a", "b"),),
    ranks={"a": 0, "b": 1},
    idempotency_key="k",
    fingerprint=b"same",
    dedup_window_ms=50,
)


def born(key: str) -> Decision[CreateResult]:
    child = replace(make.created(), execution_id=key)
    return Decision(Created(key, PublicState.WAITING), child)


BORN = [born("xa"), born("xb")]


def test_a_graph_is_counted_whole() -> None:
    decision = submit_flow(None, BORN, GRAPH, AT)
    assert decision.reply == FlowSubmitted("f", {"a": "xa", "b": "xb"})
    (flow,) = decision.saves
    assert isinstance(flow, FlowRow)
    assert (flow.node_count, flow.edge_count, flow.graph_revision) == (2, 1, 2)


def test_an_id_that_is_taken_is_a_conflict() -> None:
    known = FlowRow("f", "default", "dag", FlowState.OPEN, 1, 1)
    decision = submit_flow(known, BORN, GRAPH, AT)
    assert refusal(decision) is FlowConflict
    assert decision.saves == ()


def test_one_refused_node_refuses_the_graph_and_is_named() -> None:
    bad: Decision[CreateResult] = Decision(Refused(LaneClosed, "lane_id: closed"))
    decision = submit_flow(None, [BORN[0], bad], GRAPH, AT)
    assert isinstance(decision.reply, Refused)
    assert decision.reply.detail == "nodes[b]: lane_id: closed"


def test_a_key_answers_with_the_first_flow_while_its_window_lasts() -> None:
    record = key_of(GRAPH, AT)
    assert record == IdempotencyRecord("default", "k", "f", b"same", NOW + 50)
    assert key_of(replace(GRAPH, idempotency_key=None), AT) is None
    assert submitted_before(record, GRAPH, AT) == FlowDuplicate("f")
    assert submitted_before(record, GRAPH, Moment(NOW + 50)) is None
    other = submitted_before(record, replace(GRAPH, fingerprint=b"other"), AT)
    assert isinstance(other, Refused)
    assert other.error is IdempotencyConflict


def test_an_edge_decides_alone_only_where_nothing_else_is_asked_of_it() -> None:
    graph = replace(
        GRAPH,
        nodes=(*map(node, "abcd"), node("e", policy=AllDone())),
        edges=(
            edge("a", "b"),
            edge("a", "c"),
            edge("b", "c"),
            edge("a", "d", data_passing_ref="x"),
            edge("a", "e"),
        ),
        ranks={"a": 0, "b": 1, "c": 2, "d": 1, "e": 1},
    )
    members, edges = rows_of(graph, AT)
    assert {each.edge_id for each in edges if each.decides_alone} == {"ab"}
    assert {each.node_name: each.total for each in members} == {
        "a": 0,
        "b": 1,
        "c": 2,
        "d": 1,
        "e": 1,
    }
