"""Flows: how far is each, what holds it up, and what will fail with it?"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from flowfabric.api.executions import Explain
from flowfabric.api.flow_graphs import (
    DETAIL_DEFAULT,
    DescribeFlowGraph,
    DescribeFlowMember,
    ListGraphMembers,
)
from flowfabric.api.flows import ListFlows
from flowfabric.api.page import Page as ListingPage
from flowfabric.errors import InvalidInput, NotFound
from flowfabric.model.flow_graph import FlowGraph, FlowMember, GraphNode
from flowfabric.model.record import replace
from flowfabric.model.results import Explanation
from flowfabric.server.exchange import Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Reach
from flowfabric.server.routes.values import full_id, is_id
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.doing.flows import ACTIONS as ACTIONS
from flowfabric.server.ui.pages import Page
from flowfabric.server.ui.views.flow import Flow, flow_of
from flowfabric.server.ui.views.flow_address import STATES_OF, Asked, asked_of
from flowfabric.server.ui.views.flows import PATH, Flows, filter_of, flows_of

_PAGE: Final = 50
_KNOWN_MAX: Final = 64  # graphs with edges that are remembered


# --- the list ------------------------------------------------------------------------------------


async def flows(service: Service, call: Call) -> Flows:
    """A page of flows, newest first. A caller of several namespaces sees one of them."""
    chosen = filter_of(dict(call.query))
    own = sorted(call.caller.namespaces or ())
    several = own if len(own) > 1 else []
    if several and not chosen.namespace:
        chosen = replace(chosen, namespace=several[0])
    request = ListFlows(
        namespace=chosen.namespace or None,
        status=chosen.status or None,
        newest_first=True,
        cursor=chosen.cursor or None,
        limit=_PAGE,
    )
    return flows_of(await ask(service, call, request), chosen, several)


# --- one flow ------------------------------------------------------------------------------------


async def flow(service: Service, call: Call) -> Flow:
    """The drawing, and what the address chooses of it."""
    flow_id = call.params["flow_id"]
    asked = asked_of(f"{PATH}/{flow_id}", dict(call.query))
    graph = await _graph(service, call, flow_id, asked)
    member = await _member(service, call, flow_id, asked)
    return flow_of(
        graph,
        asked,
        await now_of(service, call),
        member=member,
        why=await _why(service, call, member),
        page=await _listed(service, call, graph, asked),
    )


class _Known:
    """The edges of graphs that were drawn, by flow and revision: between two changes of a graph
    they stay as they are, and they cost most of what a drawing costs."""

    def __init__(self) -> None:
        self._graphs: OrderedDict[tuple[str, bool], FlowGraph] = OrderedDict()

    def revision(self, flow_id: str, *, is_folded: bool) -> int | None:
        """The revision of the graph with edges that are known."""
        found = self._graphs.get((flow_id, is_folded))
        return None if found is None else found.flow.graph_revision

    def keep(self, graph: FlowGraph, *, is_folded: bool) -> None:
        """Remember the edges of a folded graph. Those between nodes have states, which change."""
        if graph.is_folded:
            key = (graph.flow.flow_id, is_folded)
            self._graphs[key] = graph
            self._graphs.move_to_end(key)
            if len(self._graphs) > _KNOWN_MAX:
                self._graphs.popitem(last=False)

    def completed(self, graph: FlowGraph, *, is_folded: bool) -> FlowGraph | None:
        """A graph with the edges that are known; None if they do not belong to it: its tasks may
        be told apart now and not before."""
        known = self._graphs.get((graph.flow.flow_id, is_folded))
        if known is None or known.flow.graph_revision != graph.flow.graph_revision:
            return None
        if _tells_tasks(known) is not _tells_tasks(graph):
            return None
        return replace(graph, group_edges=known.group_edges, has_edges=True)


def _tells_tasks(graph: FlowGraph) -> bool:
    return any(each.execution_kind for each in graph.groups)


_KNOWN: Final = _Known()


async def _graph(service: Service, call: Call, flow_id: str, asked: Asked) -> FlowGraph:
    is_folded = asked.is_folded
    request = DescribeFlowGraph(
        flow_id=flow_id,
        detail=0 if is_folded else DETAIL_DEFAULT,
        known_revision=_KNOWN.revision(flow_id, is_folded=is_folded),
    )
    graph = await ask(service, call, request)
    if not graph.has_edges:
        known = _KNOWN.completed(graph, is_folded=is_folded)
        if known is not None:
            return known
        graph = await ask(service, call, replace(request, known_revision=None))
    _KNOWN.keep(graph, is_folded=is_folded)
    return graph


async def _member(service: Service, call: Call, flow_id: str, asked: Asked) -> FlowMember | None:
    """The member that the address names, if it is one."""
    if not is_id(asked.node):
        return None
    request = DescribeFlowMember(flow_id=flow_id, execution_id=full_id(asked.node))
    try:
        return await ask(service, call, request)
    except (NotFound, InvalidInput):
        return None


async def _why(service: Service, call: Call, member: FlowMember | None) -> Explanation | None:
    """Why the member is not done."""
    if member is None or member.node.public_state.is_terminal:
        return None
    return await ask(service, call, Explain(execution_id=member.node.execution_id))


async def _listed(
    service: Service, call: Call, graph: FlowGraph, asked: Asked
) -> ListingPage[GraphNode] | None:
    """Members one by one: of an open fold, of a filter, or of the tab that lists them."""
    is_list = asked.tab == "list" or bool(asked.only)
    if asked.fold is None and (not graph.is_folded or not is_list):
        return None
    wanted: dict[str, Any] = {}
    if asked.fold is not None:
        levels = {each.level: each for each in graph.levels}
        level = levels.get(asked.fold.level)
        if level is None:
            return None
        wanted = {"first_rank": level.first_rank, "last_rank": level.last_rank}
        wanted["execution_kind"] = asked.fold.execution_kind or None
    states = {asked.state} if asked.state else STATES_OF.get(asked.only, ())
    return await ask(
        service,
        call,
        ListGraphMembers(
            flow_id=graph.flow.flow_id,
            states=sorted(states),
            is_free=asked.only == "blocking" and not asked.state,
            cursor=asked.cursor or None,
            limit=_PAGE,
            **wanted,
        ),
    )


PAGES: Final = (
    Page(
        path=PATH,
        title="Flows",
        view=flows,
        template="flows.html",
        asks=("list_flows",),
        parts=("flows",),
        topics=("flows", "tick:10s", "pace:1s"),
        nav=Nav(label="Flows", icon="flows", key="f", group=0, order=2),
    ),
    Page(
        path=f"{PATH}/{{flow_id}}",
        title="Flow",
        view=flow,
        template="flow.html",
        reach=Reach.OBJECT,
        asks=("describe_flow_graph", "describe_flow_member", "list_graph_members", "explain"),
        parts=("flow_head", "flow"),
        topics=("flow:{flow_id}", "tick:5s", "pace:1s"),
    ),
)
