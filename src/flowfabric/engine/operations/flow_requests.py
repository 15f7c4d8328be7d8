"""Checks that turn graphs and children, as callers write them, into commands."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import chain
from typing import NoReturn

from flowfabric import limits
from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode, NewFlow
from flowfabric.config import EngineConfig
from flowfabric.engine.operations.requests import to_create
from flowfabric.engine.operations.ties import refuse_unique
from flowfabric.errors import FlowFabricError, InvalidInput
from flowfabric.ids import member_ids, new_uuid7s
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.create import CreateExecution, fingerprint_of
from flowfabric.kernel.flow.flow import CreateFlow
from flowfabric.kernel.flow.graph import StageEdge
from flowfabric.kernel.flow.submit import Node, SubmitFlow, check_graph
from flowfabric.model.checks import check_text
from flowfabric.model.flow import SUCCESS_ONLY, EdgePolicy, check_edge_policy
from flowfabric.model.record import replace, to_json
from flowfabric.model.shown import shown

RESULT = "result"  # the reference of an edge that passes data


def to_submit(
    flow: NewFlow,
    nodes: Sequence[FlowNode],
    edges: Sequence[FlowEdge],
    config: EngineConfig,
    partitions: int,
) -> SubmitFlow:
    """Check a graph; every problem names the node or edge it is about."""
    names = _names(nodes)
    pairs = _pairs(edges, frozenset(names))
    policies = {node.name: _policy(node) for node in nodes if node.join is not None}
    ranks = check_graph(names, pairs, policies)
    if isinstance(ranks, Refused):
        raise ranks.to_error()
    ids = dict(zip(names, member_ids(flow.flow_id, len(names), partitions), strict=True))
    waiting = {downstream for _, downstream in pairs}
    made = tuple(
        Node(node.name, _create(node, ids, flow, config, node.name in waiting), node.join)
        for node in nodes
    )
    edge_ids = new_uuid7s(len(edges))
    staged = tuple(
        StageEdge(
            flow_id=flow.flow_id,
            edge_id=edge_id,
            upstream_execution_id=ids[edge.upstream],
            downstream_execution_id=ids[edge.downstream],
            dependency_kind=SUCCESS_ONLY,
            data_passing_ref=RESULT if edge.passes_result else None,
            input_name=None if edge.input_name is None else _input_name(edge, at),
        )
        for at, (edge, edge_id) in enumerate(zip(edges, edge_ids, strict=True))
    )
    begun = CreateFlow(
        flow_id=flow.flow_id,
        flow_kind=flow.flow_kind,
        namespace=flow.namespace,
        retention_ms=flow.retention_ms,
        tags=dict(flow.tags),
        hooks=flow.hooks,
    )
    key = flow.idempotency_key
    print_ = b"" if key is None else _fingerprint(flow, made, edges)
    keyed = None if key is None else f"flow\x1f{key}"  # no execution's key can have this form
    window = flow.dedup_window_ms
    return SubmitFlow(
        flow=begun,
        nodes=made,
        edges=staged,
        ranks=ranks,
        idempotency_key=keyed,
        fingerprint=print_,
        dedup_window_ms=window,
        is_named=flow.is_named,
    )


def to_children(
    parent_id: str, children: Sequence[NewExecution], config: EngineConfig
) -> list[CreateExecution]:
    """Check a parent's children, which share its partition."""
    _listed(children, "children")
    if not 1 <= len(children) <= limits.CREATE_MAX:
        detail = f"children: {len(children)}, expected 1 to {limits.CREATE_MAX}"
        raise InvalidInput(detail, field="children")
    partition = parent_id[:-36]
    commands: dict[str, CreateExecution] = {}
    for at, (request, uuid) in enumerate(zip(children, new_uuid7s(len(children)), strict=True)):
        command = _child(request, f"children[{at}]", partition + uuid, config)
        key = command.idempotency_key
        if key is not None:  # another parent may use the same name for a child of its own
            key = f"{parent_id}/{key}"
            command = replace(command, body=replace(command.body, idempotency_key=key))
        if key in commands:
            field = f"children[{at}].idempotency_key"
            raise InvalidInput(f"{field}: is listed twice", field=field)
        commands[key or uuid] = command
    return list(commands.values())


def _child(request: object, field: str, execution_id: str, config: EngineConfig) -> CreateExecution:
    if not isinstance(request, NewExecution):
        raise InvalidInput(f"{field}: expected a NewExecution", field=field)
    try:
        refuse_unique(request, "children")
        return to_create(request, config, execution_id)
    except FlowFabricError as error:
        error.detail = f"{field}: {error.detail}"
        raise


def _listed(value: object, field: str) -> None:
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"{field}: expected a list, got {type(value).__name__}", field=field)


def _names(nodes: Sequence[FlowNode]) -> list[str]:
    _listed(nodes, "nodes")
    if not 1 <= len(nodes) <= limits.FLOW_NODES_MAX:
        detail = f"nodes: {len(nodes)}, expected 1 to {limits.FLOW_NODES_MAX}"
        raise InvalidInput(detail, field="nodes")
    names: dict[str, None] = {}
    for at, node in enumerate(nodes):
        field = f"nodes[{at}]"
        if not isinstance(node, FlowNode):
            raise InvalidInput(f"{field}: expected a FlowNode", field=field)
        check_text(node.name, field=f"{field}.name", max_bytes=limits.NODE_NAME_BYTES)
        if node.name in names:
            raise InvalidInput(
                f"{field}.name: {shown(node.name)} is listed twice", field=f"{field}.name"
            )
        names[node.name] = None
    return list(names)


def _pairs(edges: Sequence[FlowEdge], names: frozenset[str]) -> list[tuple[str, str]]:
    _listed(edges, "edges")
    if len(edges) > limits.FLOW_EDGES_MAX:
        detail = f"edges: {len(edges)} is over the limit {limits.FLOW_EDGES_MAX}"
        raise InvalidInput(detail, field="edges")
    pairs = [
        (edge.upstream, edge.downstream) if isinstance(edge, FlowEdge) else _no_edge(at)
        for at, edge in enumerate(edges)
    ]
    try:
        is_known = names.issuperset(chain.from_iterable(pairs))  # and so was checked
    except TypeError:  # a value that cannot even be compared with a name
        is_known = False
    if not is_known:
        _check_ends(pairs)
    if len(set(pairs)) < len(pairs):
        _refuse_duplicate(pairs)
    return pairs


def _no_edge(at: int) -> NoReturn:
    raise InvalidInput(f"edges[{at}]: expected a FlowEdge", field=f"edges[{at}]")


def _check_ends(pairs: Sequence[tuple[str, str]]) -> None:
    for at, pair in enumerate(pairs):
        for end, word in zip(pair, ("upstream", "downstream"), strict=True):
            check_text(end, field=f"edges[{at}].{word}", max_bytes=limits.NODE_NAME_BYTES)


def _refuse_duplicate(pairs: Sequence[tuple[str, str]]) -> None:
    seen: dict[tuple[str, str], int] = {}
    for at, pair in enumerate(pairs):
        if (first := seen.setdefault(pair, at)) != at:
            detail = f"edges[{at}]: the same as edges[{first}], {pair[0]} → {pair[1]}"
            raise InvalidInput(detail, field=f"edges[{at}]")


def _policy(node: FlowNode) -> EdgePolicy:
    return check_edge_policy(node.join, field=f"nodes[{node.name}].join")


def _input_name(edge: FlowEdge, at: int) -> str:
    field = f"edges[{at}].input_name"
    if not edge.passes_result:
        raise InvalidInput(f"{field}: needs passes_result", field=field)
    return check_text(edge.input_name, field=field, max_bytes=limits.NAME_BYTES)


def _create(
    node: FlowNode, ids: dict[str, str], flow: NewFlow, config: EngineConfig, waits: bool
) -> CreateExecution:
    field = f"nodes[{node.name}]"
    request = node.execution
    if not isinstance(request, NewExecution):
        raise InvalidInput(f"{field}.execution: expected a NewExecution", field=field)
    for name in ("idempotency_key", "colocate_with"):
        if getattr(request, name) is not None:
            detail = f"{field}.execution.{name}: belongs to the flow, not to its nodes"
            raise InvalidInput(detail, field=f"{field}.execution.{name}")
    if request.namespace not in (None, flow.namespace):
        detail = f"{field}.execution.namespace: the flow's is {flow.namespace}"
        raise InvalidInput(detail, field=f"{field}.execution.namespace")
    if flow.namespace != config.namespace and request.namespace is None:
        request = replace(request, namespace=flow.namespace)
    try:
        refuse_unique(request, "nodes of flows")
        return to_create(
            request, config, ids[node.name], flow_id=flow.flow_id, open_group=int(waits)
        )
    except FlowFabricError as error:
        error.detail = f"{field}: {error.detail}"
        raise


def _fingerprint(flow: NewFlow, nodes: Sequence[Node], edges: Sequence[FlowEdge]) -> bytes:
    """A digest of everything that must be equal for two graphs to be the same request."""
    digest = hashlib.sha256(to_json([flow.flow_kind, sorted(flow.tags.items())]))
    if flow.hooks is not None:
        digest.update(to_json(flow.hooks))
    for node in nodes:
        made = node.create
        parts = (made.route, made.priority, made.policy, made.body, made.tags, made.bounds)
        body = replace(made.body, execution_id="")
        digest.update(to_json([node.name, node.policy]))
        digest.update(fingerprint_of(*parts[:3], body, *parts[4:], made.ties))
    digest.update(to_json(list(edges)))
    return digest.digest()
