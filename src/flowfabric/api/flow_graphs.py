"""A flow as it is drawn: member by member, or folded where they are many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.page import Page
from flowfabric.errors import InvalidCursor, NotFound
from flowfabric.model.flow_graph import RANKS_MAX, FlowGraph, FlowMember, GraphNode

DETAIL_DEFAULT: Final = 199  # nodes that a drawing shows one by one


@operation("describe_flow_graph", Kind.READ, Scope.READ, errors=(NotFound,))
class DescribeFlowGraph(Request[FlowGraph], frozen=True, kw_only=True):
    """A flow as a drawing needs it: its nodes and edges, or how many are alike.

    With more than `detail` members, or more than `limits.GRAPH_ROWS_MAX` edges, both are folded
    by level, task and state; they are counted in the store, so a large flow costs no more rows
    than a small one. `known_revision`: the caller has the edges of this revision of the graph
    already, and they are left out if it is the current one.

    >>> graph = await engine.describe_flow_graph(flow_id=flow_id)  # doctest: +SKIP
    >>> [(each.execution_kind, each.count) for each in graph.groups]  # doctest: +SKIP
    """

    flow_id: str
    detail: int = DETAIL_DEFAULT
    known_revision: int | None = None


@operation("list_graph_members", Kind.READ, Scope.READ, errors=(NotFound, InvalidCursor))
class ListGraphMembers(Request[Page[GraphNode]], frozen=True, kw_only=True):
    """Members of a flow that fit every part given, by id.

    `first_rank`, `last_rank`: of a level of the drawing, where children stand one rank behind
    the execution that spawned them. `is_free`: no other member keeps them back.
    """

    flow_id: str
    first_rank: int = 0
    last_rank: int = RANKS_MAX
    execution_kind: str | None = None
    states: Sequence[str] = ()
    is_free: bool = False
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("describe_flow_member", Kind.READ, Scope.READ)
class DescribeFlowMember(Request[FlowMember | None], frozen=True, kw_only=True):
    """One member with the members it waits for and those that wait for it, or nothing.

    At most `limits.GRAPH_NEXT_MAX` of each are named.
    """

    flow_id: str
    execution_id: str
