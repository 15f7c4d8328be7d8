"""Graphs: ranks, cycles, and what an edge or a policy is refused for."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from flowfabric.errors import (
    CycleDetected,
    DependencyAlreadyExists,
    DependencyGroupDecided,
    DependentNotRunnable,
    ExecutionNotInFlow,
    FlowAlreadyTerminal,
    InvalidDependency,
    InvalidInput,
    NotFound,
    SelfReferencingEdge,
    StaleGraphRevision,
)
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.flow.graph import (
    ApplyEdge,
    SetGroupPolicy,
    StageEdge,
    new_edge,
    refuse_apply,
    refuse_policy,
    refuse_quorum,
    refuse_stage,
)
from flowfabric.kernel.flow.rank import ranks_of
from flowfabric.kernel.flow.submit import check_graph
from flowfabric.model.flow import (
    AllSucceeded,
    AnySucceeded,
    EdgePolicy,
    EdgeRow,
    EdgeState,
    FlowRow,
    FlowState,
    GroupState,
    MemberRow,
    OnSatisfied,
    Quorum,
)
from flowfabric.model.record import replace
from tests.support import builders as make

CANCEL = OnSatisfied.CANCEL_REMAINING
FLOW = FlowRow("f", "default", "dag", FlowState.OPEN, 1, 1, graph_revision=4)
ENDS = (MemberRow("f", "u"), MemberRow("f", "d"))
STAGE = StageEdge(
    flow_id="f",
    edge_id="e",
    upstream_execution_id="u",
    downstream_execution_id="d",
    dependency_kind="success_only",
)
EDGE = EdgeRow("f", "e", "u", "d", "success_only", EdgeState.PENDING, 1)
APPLY = ApplyEdge(flow_id="f", edge_id="e", upstream_execution_id="u", downstream_execution_id="d")


def pairs(text: str) -> list[tuple[str, str]]:
    """The edges of `ab bc`."""
    return [(each[0], each[1]) for each in text.split()]


def error_of(reply: object) -> type | None:
    return reply.error if isinstance(reply, Refused) else None


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ("", {"a": 0, "b": 0, "c": 0, "d": 0}),
        ("ab bc cd", {"a": 0, "b": 1, "c": 2, "d": 3}),
        ("ab ac bd cd", {"a": 0, "b": 1, "c": 1, "d": 2}),
        ("ad ab bc cd", {"a": 0, "b": 1, "c": 2, "d": 3}),  # the longest way counts
        ("dc cb ba", {"a": 3, "b": 2, "c": 1, "d": 0}),
    ],
)
def test_a_rank_is_the_longest_way_from_the_start(edges: str, expected: dict[str, int]) -> None:
    assert ranks_of("abcd", pairs(edges)) == expected


def test_every_edge_of_any_graph_leads_upwards_or_a_cycle_is_shown() -> None:
    draw = random.Random(7)
    for _ in range(300):
        names = [f"n{at}" for at in range(draw.randint(1, 9))]
        edges = list({(draw.choice(names), draw.choice(names)) for _ in range(draw.randint(0, 14))})
        edges = [pair for pair in edges if pair[0] != pair[1]]
        found = ranks_of(names, edges)
        if isinstance(found, Refused):
            around = found.fields["nodes"]
            assert isinstance(around, list | tuple)
            assert found.error is CycleDetected
            assert around[0] == around[-1]
            assert len(set(around)) == len(around) - 1 >= 2
            assert all(pair in edges for pair in pairwise(around))
        else:
            assert all(found[upstream] < found[downstream] for upstream, downstream in edges)


def test_a_long_chain_needs_no_recursion() -> None:
    names = [f"n{at}" for at in range(20_000)]
    ranks = ranks_of(names, list(pairwise(names)))
    assert not isinstance(ranks, Refused)
    assert ranks["n19999"] == 19_999


@pytest.mark.parametrize(
    ("policy", "inbound", "is_refused"),
    [
        (AllSucceeded(), 0, True),
        (AnySucceeded(CANCEL), 0, True),
        (AnySucceeded(CANCEL), 1, False),
        (Quorum(3, CANCEL), 2, True),
        (Quorum(3, CANCEL), 3, False),
        (Quorum(3, CANCEL), 4, False),
    ],
)
def test_a_join_that_could_never_be_met_is_refused(
    policy: EdgePolicy, inbound: int, is_refused: bool
) -> None:
    assert (refuse_quorum(policy, inbound, "x") is not None) is is_refused


@pytest.mark.parametrize(
    ("edges", "error", "field"),
    [
        ("ab", None, None),
        ("xb", InvalidInput, "edges[0].upstream"),
        ("ab ax", InvalidInput, "edges[1].downstream"),
        ("ab cc", SelfReferencingEdge, "edges[1]"),
        ("ab ba", CycleDetected, "edges"),
    ],
)
def test_a_defect_of_a_whole_graph_is_named(
    edges: str, error: type | None, field: str | None
) -> None:
    reply = check_graph("abc", pairs(edges), {})
    assert error_of(reply) is error
    if isinstance(reply, Refused):
        assert reply.fields["field"] == field


# --- one edge ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({}, None),
        ({"command": replace(STAGE, downstream_execution_id="u")}, SelfReferencingEdge),
        ({"flow": None}, NotFound),
        ({"flow": replace(FLOW, public_flow_state=FlowState.CANCELLED)}, FlowAlreadyTerminal),
        ({"command": replace(STAGE, expected_graph_revision=3)}, StaleGraphRevision),
        ({"command": replace(STAGE, expected_graph_revision=5)}, StaleGraphRevision),
        ({"command": replace(STAGE, expected_graph_revision=4)}, None),
        ({"ends": (None, ENDS[1])}, ExecutionNotInFlow),
        ({"ends": (ENDS[0], None)}, ExecutionNotInFlow),
        ({"known": EDGE}, DependencyAlreadyExists),
        (
            {"ends": (ENDS[0], replace(ENDS[1], group_state=GroupState.SATISFIED))},
            DependencyGroupDecided,
        ),
    ],
)
def test_the_reasons_an_edge_is_refused(change: dict[str, Any], error: type | None) -> None:
    given = {"flow": FLOW, "known": None, "ends": ENDS, "command": STAGE, **change}
    assert error_of(refuse_stage(**given)) is error


def test_the_first_reason_counts() -> None:
    """Self, flow, revision, members, duplicate."""
    stale = replace(STAGE, expected_graph_revision=1)
    assert error_of(refuse_stage(None, EDGE, (None, None), stale)) is NotFound
    assert error_of(refuse_stage(FLOW, EDGE, (None, None), stale)) is StaleGraphRevision
    assert error_of(refuse_stage(FLOW, EDGE, (None, None), STAGE)) is ExecutionNotInFlow


@pytest.mark.parametrize("situation", make.SITUATIONS)
def test_an_edge_is_applied_to_runnable_children_only(situation: str) -> None:
    child = make.SITUATIONS[situation]()
    expected = None if child.is_runnable else DependentNotRunnable
    assert error_of(refuse_apply(FLOW, EDGE, child, APPLY)) is expected
    applied = replace(EDGE, edge_state=EdgeState.APPLIED)
    assert refuse_apply(FLOW, applied, child, APPLY) is None  # answered, not repeated


@pytest.mark.parametrize(
    ("edge", "error"),
    [(None, InvalidDependency), (replace(EDGE, upstream_execution_id="x"), InvalidDependency)],
)
def test_only_a_staged_edge_is_applied(edge: EdgeRow | None, error: type) -> None:
    assert error_of(refuse_apply(FLOW, edge, make.created(), APPLY)) is error
    over = replace(FLOW, public_flow_state=FlowState.COMPLETED)
    assert error_of(refuse_apply(over, edge, make.created(), APPLY)) is FlowAlreadyTerminal


@pytest.mark.parametrize(
    ("fields", "policy", "error"),
    [
        ({}, AnySucceeded(CANCEL), None),
        ({"staged": 1}, AnySucceeded(CANCEL), InvalidInput),
        ({"total": 1}, AnySucceeded(CANCEL), InvalidInput),
        ({"total": 1}, AllSucceeded(), None),  # what it is without being said
        ({"total": 1, "policy": AnySucceeded(CANCEL)}, AnySucceeded(CANCEL), None),
        ({"total": 1, "policy": Quorum(2, CANCEL)}, Quorum(3, CANCEL), InvalidInput),
    ],
)
def test_a_policy_is_fixed_by_the_first_edge(
    fields: dict[str, Any], policy: EdgePolicy, error: type | None
) -> None:
    member = replace(ENDS[1], **fields)
    assert (
        error_of(
            refuse_policy(
                FLOW, member, SetGroupPolicy(flow_id="f", execution_id="d", policy=policy)
            )
        )
        is error
    )


def test_a_new_edge_is_applied_at_once_or_later() -> None:
    at = Moment(9)
    assert new_edge(STAGE, EdgeState.PENDING, at).applied_at is None
    assert new_edge(STAGE, EdgeState.APPLIED, at).applied_at == 9
    assert new_edge(STAGE, EdgeState.APPLIED, at).created_at == 9
