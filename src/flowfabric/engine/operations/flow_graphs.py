"""Reads of a flow as it is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from flowfabric import limits
from flowfabric.api import flow_graphs as api
from flowfabric.api.page import Page, at_uuid
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.execution_lists import routes_of
from flowfabric.engine.operations.flow_looks import members_as_met
from flowfabric.engine.operations.flow_reads import edge_group, require_flow, snapshot
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.ids import partition_of
from flowfabric.model.checks import check_flag, check_integer, check_list, check_name, check_uuid
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeRow, FlowRow, MemberRow
from flowfabric.model.flow_graph import (
    RANKS_MAX,
    FlowGraph,
    FlowMember,
    Folding,
    GraphEdge,
    GraphGroup,
    GraphLevel,
    GraphNode,
    GroupEdge,
    GroupPlace,
    MemberFilter,
    MemberFold,
    node_of,
)
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import replace
from flowfabric.model.route import Route
from flowfabric.model.state import PublicState
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import EDGES_FROM, EDGES_TO, Search, by_key, uuid_of
from flowfabric.stores.tables import EDGES, MEMBERS, Key

_MEMBERS = Listing("list_graph_members", at_uuid)
_EVERY_STATE = tuple(each.value for each in PublicState)
_REVISION_MAX = 1 << 62


@answers(api.DescribeFlowGraph)
async def describe_flow_graph(machine: Machine, request: api.DescribeFlowGraph) -> FlowGraph:
    """Nodes while they are few enough to be looked at one by one."""
    flow_id, known = check_uuid(request.flow_id), request.known_revision
    detail = check_integer(request.detail, field="detail", least=0, most=limits.GRAPH_ROWS_MAX)
    if known is not None:
        check_integer(known, field="known_revision", least=0, most=_REVISION_MAX)
    partitions = machine.store.partitions

    async def work(reader: Reader) -> FlowGraph:
        flow = await require_flow(reader, flow_id)
        asks_edges = known != flow.graph_revision
        if flow.node_count <= detail and flow.edge_count <= limits.GRAPH_ROWS_MAX:
            return await _in_full(reader, flow, asks_edges, partitions)
        return await _folded(reader, flow, asks_edges, partitions)

    return await machine.read(work)


# --- member by member ----------------------------------------------------------------------------


async def _in_full(reader: Reader, flow: FlowRow, asks_edges: bool, partitions: int) -> FlowGraph:
    rows = await members_as_met(reader, (flow.flow_id,))
    nodes = await _nodes(reader, rows)
    edges: list[EdgeRow] = []
    if asks_edges:
        most = limits.GRAPH_ROWS_MAX
        edges = await reader.search(Search(by_key(EDGES), ((flow.flow_id,),), limit=most))
    counts = Counter(each.public_state for each in nodes)
    ranks = Counter(each.rank for each in nodes)
    groups = [edge_group(rows[key]) for key in sorted(rows) if rows[key].size]
    return FlowGraph(
        snapshot(flow, dict(counts), groups, partitions),
        is_folded=False,
        has_edges=asks_edges,
        levels=tuple(GraphLevel(rank, rank, rank, ranks[rank]) for rank in sorted(ranks)),
        nodes=nodes,
        edges=tuple(map(_edge, edges)),
        partition=partition_of(flow.flow_id, partitions),
    )


async def _nodes(reader: Reader, rows: Mapping[Key, MemberRow]) -> tuple[GraphNode, ...]:
    """Members in the order of the graph. Parents that are not among them are looked up."""
    if not rows:
        return ()
    known = {key[1]: row for key, row in rows.items()}
    away = {
        (row.flow_id, row.parent_id)
        for row in rows.values()
        if row.parent_id is not None and row.parent_id not in known
    }
    if away:
        found = await reader.peek_rows(MEMBERS, sorted(away))
        known |= {key[1]: row for key, row in found.items()}
    executions = await reader.get([key[1] for key in rows])
    nodes = [
        node_of(row, execution, known)
        for row in rows.values()
        if isinstance(execution := executions.get(row.execution_id), Execution)
    ]
    return tuple(sorted(nodes, key=lambda each: (each.rank, each.execution_id)))


def _edge(row: EdgeRow) -> GraphEdge:
    return GraphEdge(
        row.upstream_execution_id,
        row.downstream_execution_id,
        row.edge_state,
        row.data_passing_ref is not None,
    )


# --- folded --------------------------------------------------------------------------------------


async def _folded(reader: Reader, flow: FlowRow, asks_edges: bool, partitions: int) -> FlowGraph:
    """By level and task; by level alone where that would be too many."""
    most = limits.GRAPH_ROWS_MAX
    folding = Folding(
        flow_id=flow.flow_id, levels_max=limits.GRAPH_LEVELS_MAX, by_task=True, limit=most + 1
    )
    folds = await reader.fold_members(folding)
    if len(folds) > most:
        folding = Folding(
            flow_id=flow.flow_id, levels_max=limits.GRAPH_RANKS_MAX, by_task=False, limit=most
        )
        folds = await reader.fold_members(folding)
    groups = _groups(folds)
    counts: Counter[PublicState] = Counter()
    for group in groups:
        counts[group.public_state] += group.count
    between: Counter[tuple[GroupPlace, GroupPlace]] = Counter()
    if asks_edges:
        for edge in await reader.fold_edges(folding):
            between[_place(*edge.upstream), _place(*edge.downstream)] += edge.count
    return FlowGraph(
        snapshot(flow, dict(counts), [], partitions),
        is_folded=True,
        has_edges=asks_edges,
        levels=_levels(folds),
        groups=groups,
        group_edges=tuple(GroupEdge(*ends, count) for ends, count in between.items()),
        partition=partition_of(flow.flow_id, partitions),
    )


def _place(level: int, are_children: bool, route: Route | None) -> GroupPlace:
    return GroupPlace(level, "" if route is None else route.execution_kind, are_children)


def _groups(folds: Iterable[MemberFold]) -> tuple[GraphGroup, ...]:
    """Those of one task together, whatever their lanes, and those of one public state."""
    alike: dict[tuple[GroupPlace, PublicState], list[MemberFold]] = {}
    for fold in folds:
        place = _place(fold.level, fold.are_children, fold.route)
        alike.setdefault((place, fold.state.public_state), []).append(fold)
    return tuple(
        GraphGroup(
            place.level,
            place.execution_kind,
            place.are_children,
            state,
            sum(each.count for each in same),
            min(each.created_at for each in same),
            min((each.started_at for each in same if each.started_at is not None), default=None),
            max((each.ended_at for each in same if each.ended_at is not None), default=None),
        )
        for (place, state), same in alike.items()
    )


def _levels(folds: Sequence[MemberFold]) -> tuple[GraphLevel, ...]:
    levels: dict[int, list[MemberFold]] = {}
    for fold in folds:
        levels.setdefault(fold.level, []).append(fold)
    return tuple(
        GraphLevel(
            level,
            min(each.first_rank for each in same),
            max(each.last_rank for each in same),
            sum(each.count for each in same),
        )
        for level, same in sorted(levels.items())
    )


# --- lists and single members --------------------------------------------------------------------


@answers(api.ListGraphMembers)
async def list_graph_members(machine: Machine, request: api.ListGraphMembers) -> Page[GraphNode]:
    """The store finds their ids; only those of the page are read."""
    flow_id, kind, limit = check_uuid(request.flow_id), request.execution_kind, request.limit
    check_limit(limit)
    if kind is not None:
        check_name(kind, field="execution_kind")
    given = {check_word(each, PublicState, field="states").value for each in _states(request)}
    number = partition_of(flow_id, machine.store.partitions)
    place = _MEMBERS.place(request.cursor)
    wanted = MemberFilter(
        flow_id=flow_id,
        first_rank=check_integer(request.first_rank, field="first_rank", least=0, most=RANKS_MAX),
        last_rank=check_integer(request.last_rank, field="last_rank", least=0, most=RANKS_MAX),
        states=tuple(sorted(given)) or _EVERY_STATE,
        is_free=check_flag(request.is_free, field="is_free"),
        after="" if place is None else f"{{fp:{number}}}:{place[0]}",
    )

    async def work(reader: Reader) -> Page[GraphNode]:
        asked = wanted
        if kind is not None:
            routes = routes_of(await reader.catalog(), None, None, kind)
            asked = replace(wanted, routes=routes or ())
        ids = await reader.find_members(asked, limit + 1) if limit else []
        if not ids:
            await require_flow(reader, flow_id)
        keys = [(flow_id, each) for each in ids[:limit]]
        rows = await reader.peek_rows(MEMBERS, keys) if keys else {}
        nodes = {each.execution_id: each for each in await _nodes(reader, rows)}
        shown = tuple(nodes[key] for _, key in keys if key in nodes)
        following = (uuid_of(keys[-1][1]),) if len(ids) > limit > 0 else None
        return Page(shown, _MEMBERS.cursor(following))

    return await machine.read(work)


def _states(request: api.ListGraphMembers) -> Sequence[str]:
    return check_list(request.states, field="states")


@answers(api.DescribeFlowMember)
async def describe_flow_member(
    machine: Machine, request: api.DescribeFlowMember
) -> FlowMember | None:
    """Its row, and those at the other ends of its edges."""
    key = (check_uuid(request.flow_id), machine.check_id(request.execution_id))
    most = limits.GRAPH_NEXT_MAX

    async def work(reader: Reader) -> FlowMember | None:
        rows = await members_as_met(reader, key)
        nodes = await _nodes(reader, rows)
        if not nodes:
            return None
        of_flow = (("flow_id", key[0]),)
        above = await reader.search(Search(EDGES_TO, ((key[1],),), limit=most + 1, only=of_flow))
        below = await reader.search(Search(EDGES_FROM, ((key[1],),), limit=most + 1, only=of_flow))
        up = [(key[0], each.upstream_execution_id) for each in above[:most]]
        down = [(key[0], each.downstream_execution_id) for each in below[:most]]
        beside = await reader.peek_rows(MEMBERS, sorted({*up, *down})) if up or down else {}
        found = {each.execution_id: each for each in await _nodes(reader, beside)}
        return FlowMember(
            nodes[0],
            edge_group(rows[key]) if rows[key].size else None,
            tuple(found[each] for _, each in up if each in found),
            tuple(found[each] for _, each in down if each in found),
            len(above) > most,
            len(below) > most,
        )

    return await machine.read(work)
