"""Flows: whole graphs, their members and edges."""

from __future__ import annotations

from typing import Final

from flowfabric.api.flows import (
    ApplyDependencyToChild,
    DescribeFlow,
    SetFlowTags,
    StageDependencyEdge,
    WaitForFlow,
)
from flowfabric.api.operation import Scope
from flowfabric.errors import InvalidTagKey, NotFound, WaitTimeout
from flowfabric.model.flow_results import Applied, DependencyAlreadyApplied, FlowSnapshot
from flowfabric.model.record import Record
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.plain import to_body
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.forms import body_of, etag, form_of
from flowfabric.server.routes.outcomes import wait_of
from flowfabric.server.routes.route import Reach, Repeat, Route, Size
from flowfabric.server.routes.rows import get, post
from flowfabric.server.routes.traces import submit_flow
from flowfabric.server.service import Service
from flowfabric.server.shapes import shape_of

_ID: Final = "/v1/flows/{flow_id}"


async def describe(service: Service, call: Call) -> Answer:
    """The snapshot; with `wait` once all its members have ended, else 202."""
    flow_id = call.params["flow_id"]
    wait_ms = wait_of(service, call)
    status = 200
    found: FlowSnapshot | None = None
    if wait_ms:
        await _snapshot(service, call)  # what is not there is told at once
        try:
            found = await ask(service, call, WaitForFlow(flow_id=flow_id, wait_ms=wait_ms))
        except WaitTimeout:
            status = WaitTimeout.status
    if found is None:
        found = await _snapshot(service, call)
    headers = ((b"etag", etag(found.graph_revision)),)
    return Answer(to_body(found), status=status, headers=headers)  # never 304: members change it


async def _snapshot(service: Service, call: Call) -> FlowSnapshot:
    flow_id = call.params["flow_id"]
    found = await ask(service, call, DescribeFlow(flow_id=flow_id))
    if found is None:
        raise NotFound(f"flow {flow_id!s:.100}", entity="flow")
    return found


class EdgeAdded(Record, frozen=True, kw_only=True):
    """An edge that is in force. `revision`: of the graph, with it."""

    edge_id: str
    graph_revision: int
    applied: Applied | DependencyAlreadyApplied


async def add_edge(service: Service, call: Call) -> Answer:
    """Stage an edge on the graph as it was read, and put it in force."""
    request: StageDependencyEdge = await form_of(call.row).read(service, call)  # type: ignore[assignment]
    staged = await ask(service, call, request)
    applied = await ask(
        service,
        call,
        ApplyDependencyToChild(
            flow_id=request.flow_id,
            edge_id=staged.edge_id,
            upstream_execution_id=request.upstream_execution_id,
            downstream_execution_id=request.downstream_execution_id,
        ),
    )
    revision = staged.new_graph_revision
    made = EdgeAdded(edge_id=staged.edge_id, graph_revision=revision, applied=applied)
    return Answer(to_body(made), status=201, headers=((b"etag", etag(revision)),))


class FlowChange(Record, frozen=True, kw_only=True):
    """Tags to set or overwrite; others stay."""

    tags: dict[str, str]
    actor: str | None = None


async def change(service: Service, call: Call) -> Answer:
    """More tags, and the flow as it is then."""
    wanted: FlowChange = shape_of(FlowChange).read(await body_of(service, call))
    flow_id = call.params["flow_id"]
    await ask(service, call, SetFlowTags(flow_id=flow_id, tags=wanted.tags, actor=wanted.actor))
    found = await _snapshot(service, call)
    return Answer(to_body(found), headers=((b"etag", etag(found.graph_revision)),))


FLOW_ROUTES: Final = (
    post(
        "/v1/flows",
        "submit_flow",
        handler=submit_flow,
        reach=Reach.NAMED,
        size=Size.BATCH,
        repeat=Repeat.KEY,
        statuses={"FlowSubmitted": 201},
        hidden=("connection", "handle", "entries"),
        tag="flows",
    ),
    get("/v1/flows", "list_flows", tag="flows"),
    Route(
        method="GET",
        path=_ID,
        title="One flow; with `wait` 202 while it has not ended",
        asks=("describe_flow", "wait_for_flow"),
        scope=Scope.READ,
        reach=Reach.OBJECT,
        handler=describe,
        revision="graph_revision",
        other_statuses=(202,),
        own_query={"wait": "how long to wait for the end of all members: 25s"},
        reply=FlowSnapshot,
        errors=(NotFound,),
        tag="flows",
    ),
    get(f"{_ID}/summary", "project_flow_summary", tag="flows"),
    get(f"{_ID}/members", "list_flow_members", tag="flows"),
    get(f"{_ID}/graph", "describe_flow_graph", tag="flows"),
    get(f"{_ID}/graph/members", "list_graph_members", tag="flows"),
    get(
        f"{_ID}/graph/members/{{execution_id}}",
        "describe_flow_member",
        absent="member",
        tag="flows",
    ),
    get(f"{_ID}/spend", "list_flow_spend", tag="flows"),
    get(f"{_ID}/edges", "list_edges", tag="flows"),
    post(f"{_ID}/cancel", "cancel_flow", query=("wait_ms",), tag="flows"),
    post(f"{_ID}/retry", "retry_flow", tag="flows"),
    post(f"{_ID}/members", "add_execution_to_flow", statuses={"Added": 201}, tag="flows"),
    post(
        f"{_ID}/edges",
        "stage_dependency_edge",
        title="Let one member wait for another",
        handler=add_edge,
        asks=("apply_dependency_to_child",),
        if_match="expected_graph_revision",
        is_match_needed=True,
        statuses={"EdgeAdded": 201},
        reply=EdgeAdded,
        tag="flows",
    ),
    post(f"{_ID}/joins", "set_edge_group_policy", tag="flows"),
    Route(
        method="PATCH",
        path=_ID,
        title="Set tags of a flow",
        asks=("set_flow_tags", "describe_flow"),
        scope=Scope.OPERATE,
        reach=Reach.OBJECT,
        handler=change,
        size=Size.SMALL,
        repeat=Repeat.STATE,
        body=FlowChange,
        reply=FlowSnapshot,
        errors=(NotFound, InvalidTagKey),
        tag="flows",
    ),
)
