"""The graph of a flow as it is drawn: member by member, or folded where they are many.

A level is a rank, or several ranks in a row where there are more than can be drawn. Children stand
one level behind the execution that spawned them.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeState, MemberRow
from flowfabric.model.flow_results import EdgeGroupSnapshot, FlowSnapshot
from flowfabric.model.record import Record
from flowfabric.model.route import Route
from flowfabric.model.state import PublicState, StateVector

REASON_MAX = 300  # characters of a member's reason that a drawing has
RANKS_MAX = 2**31 - 1

# --- what a store counts -------------------------------------------------------------------------


class Folding(Record, frozen=True, kw_only=True):
    """How to fold the members of a flow.

    `levels_max`: ranks in a row make one level where there are more. `by_task`: members of
    different routes are counted apart, and children apart from others. `limit`: of the rows.
    """

    flow_id: str
    levels_max: int
    by_task: bool
    limit: int


class MemberFold(Record, frozen=True):
    """Members of one level that are alike. `route`: None where all are counted together."""

    level: int
    are_children: bool
    route: Route | None
    state: StateVector
    count: int
    first_rank: int
    last_rank: int
    created_at: int  # the first
    started_at: int | None  # the first
    ended_at: int | None  # the last


class EdgeFold(Record, frozen=True):
    """Edges that lead from members that are alike to members that are alike."""

    upstream: tuple[int, bool, Route | None]  # level, whether they are children, route
    downstream: tuple[int, bool, Route | None]
    count: int


class MemberFilter(Record, frozen=True, kw_only=True):
    """Which members of a flow, by id.

    `is_free`: no other member keeps them back. `after`: the last one seen.
    """

    flow_id: str
    first_rank: int = 0  # children stand one rank behind the execution that spawned them
    last_rank: int = RANKS_MAX
    routes: tuple[Route, ...] | None = None
    states: tuple[str, ...]
    is_free: bool = False
    after: str = ""


def rank_drawn(member: MemberRow, parent: MemberRow | None) -> int:
    """The rank at which a member stands in a drawing; a child stands behind its parent.

    >>> parent = MemberRow("f", "p", rank=3)
    >>> rank_drawn(MemberRow("f", "c", parent_id="p"), parent)
    4
    """
    return member.rank if parent is None else max(member.rank, parent.rank + 1)


# --- what is answered ----------------------------------------------------------------------------


class GraphNode(Record, frozen=True):
    """One member, as a drawing needs it. `reason`: the beginning of why it failed or waits."""

    execution_id: str
    node_name: str
    execution_kind: str
    rank: int
    parent_id: str | None
    public_state: PublicState
    attempt_count: int
    reason: str
    created_at: int
    started_at: int | None
    ended_at: int | None


class GraphEdge(Record, frozen=True):
    """One edge between members."""

    upstream_execution_id: str
    downstream_execution_id: str
    edge_state: EdgeState
    passes_result: bool


class GraphLevel(Record, frozen=True):
    """One column of the drawing: its ranks, and how many members it has."""

    level: int
    first_rank: int
    last_rank: int
    count: int


class GraphGroup(Record, frozen=True):
    """Members of one level, task and state.

    `execution_kind`: empty where the flow has too many tasks to tell them apart. `started_at`: of
    the first that began; `ended_at`: of the last that ended.
    """

    level: int
    execution_kind: str
    are_children: bool
    public_state: PublicState
    count: int
    created_at: int
    started_at: int | None
    ended_at: int | None


class GroupPlace(Record, frozen=True):
    """The groups of a level and task, whatever their state."""

    level: int
    execution_kind: str
    are_children: bool


class GroupEdge(Record, frozen=True):
    """How many edges lead from one place to another."""

    upstream: GroupPlace
    downstream: GroupPlace
    count: int


class FlowGraph(Record, frozen=True):
    """A flow, drawn.

    `is_folded`: it has more members, or more edges, than were asked for one by one: then it has
    `groups` and `group_edges`, else `nodes` and `edges`. `has_edges`: false where the caller has
    those of this `graph_revision` already. `partition`: in the ids of all its members.
    """

    flow: FlowSnapshot  # with the edge groups of the nodes that are drawn
    is_folded: bool
    has_edges: bool
    levels: tuple[GraphLevel, ...]
    groups: tuple[GraphGroup, ...] = ()
    group_edges: tuple[GroupEdge, ...] = ()
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()
    partition: int | None = None


class FlowMember(Record, frozen=True):
    """One member with those next to it. At most a page of them each; `more_…`: there are others."""

    node: GraphNode
    join: EdgeGroupSnapshot | None  # None: it waits for no other
    upstreams: tuple[GraphNode, ...]
    downstreams: tuple[GraphNode, ...]
    more_upstreams: bool = False
    more_downstreams: bool = False


def node_of(row: MemberRow, execution: Execution, parents: Mapping[str, MemberRow]) -> GraphNode:
    """A member and its execution as one. `parents`: by id, as far as they are known."""
    reason = execution.failure_reason or execution.cancellation_reason or execution.blocking_detail
    return GraphNode(
        row.execution_id,
        row.node_name,
        execution.execution_kind,
        rank_drawn(row, parents.get(row.parent_id or "")),
        row.parent_id,
        execution.public_state,
        execution.total_attempt_count,
        reason[:REASON_MAX],
        execution.created_at,
        execution.started_at,
        execution.completed_at,
    )
