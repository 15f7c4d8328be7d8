"""Bad input to flow operations: a typed error that names the field, and nothing changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.errors import InvalidInput, NotFound, ValidationError
from flowfabric.ids import new_execution_id, new_uuid7s
from flowfabric.model.flow import AllSucceeded
from tests.support.flows import empty, woven
from tests.support.lab import Lab

FLOW = "01890000-0000-7000-8000-000000000001"
MALFORMED_FLOWS = [
    "",
    "x",
    FLOW.upper().replace("7", "A"),
    FLOW[:-1],
    FLOW + " ",
    f"{{{FLOW}}}",
    5,
    None,
]
MALFORMED_EXECUTIONS = ["", "x", FLOW, "{fp:256}:" + FLOW, "{fp:0}:" + FLOW + "\n", 5, None]
Call = Callable[[Lab, Any], Awaitable[Any]]

BY_FLOW: dict[str, Call] = {
    "create_flow": lambda lab, key: lab.engine.create_flow(flow_id=key or ""),
    "describe": lambda lab, key: lab.engine.describe_flow(flow_id=key),
    "summary": lambda lab, key: lab.engine.project_flow_summary(flow_id=key),
    "members": lambda lab, key: lab.engine.list_flow_members(flow_id=key),
    "edges": lambda lab, key: lab.engine.list_edges(flow_id=key),
    "edge": lambda lab, key: lab.engine.describe_edge(flow_id=key, edge_id=FLOW),
    "wait": lambda lab, key: lab.engine.wait_for_flow(flow_id=key, wait_ms=1),
    "get_tag": lambda lab, key: lab.engine.get_flow_tag(flow_id=key, key="a.b"),
    "set_tag": lambda lab, key: lab.engine.set_flow_tag(flow_id=key, key="a.b", value="c"),
    "set_tags": lambda lab, key: lab.engine.set_flow_tags(flow_id=key, tags={"a.b": "c"}),
    "cancel": lambda lab, key: lab.engine.cancel_flow(flow_id=key),
    "header": lambda lab, key: lab.engine.cancel_flow_header(flow_id=key),
    "ack": lambda lab, key: lab.engine.ack_cancel_member(
        flow_id=key, execution_id=new_execution_id()
    ),
    "add": lambda lab, key: lab.engine.add_execution_to_flow(
        flow_id=key, execution_id=new_execution_id()
    ),
    "stage": lambda lab, key: lab.engine.stage_dependency_edge(**_ends(key)),
    "apply": lambda lab, key: lab.engine.apply_dependency_to_child(edge_id=FLOW, **_ends(key)),
    "withdraw": lambda lab, key: lab.engine.withdraw_dependency_edge(edge_id=FLOW, **_ends(key)),
    "link": lambda lab, key: lab.engine.add_dependency(**_ends(key)),
    "resolve": lambda lab, key: lab.engine.resolve_dependency(edge_id=FLOW, **_ends(key)),
    "policy": lambda lab, key: lab.engine.set_edge_group_policy(
        flow_id=key, downstream_execution_id=new_execution_id(), policy=AllSucceeded()
    ),
}
BY_EXECUTION: dict[str, tuple[str, Call]] = {
    "add": (
        "execution_id",
        lambda lab, key: lab.engine.add_execution_to_flow(flow_id=FLOW, execution_id=key),
    ),
    "ack": (
        "execution_id",
        lambda lab, key: lab.engine.ack_cancel_member(flow_id=FLOW, execution_id=key),
    ),
    "flow of": (
        "execution_id",
        lambda lab, key: lab.engine.resolve_execution_flow_id(execution_id=key),
    ),
    "eligibility": (
        "execution_id",
        lambda lab, key: lab.engine.evaluate_flow_eligibility(execution_id=key),
    ),
    "cascade": (
        "execution_id",
        lambda lab, key: lab.engine.cascade_completion(execution_id=key),
    ),
    "stage from": (
        "upstream_execution_id",
        lambda lab, key: lab.engine.stage_dependency_edge(**_ends(FLOW, upstream=key)),
    ),
    "stage to": (
        "downstream_execution_id",
        lambda lab, key: lab.engine.stage_dependency_edge(**_ends(FLOW, downstream=key)),
    ),
    "apply from": (
        "upstream_execution_id",
        lambda lab, key: lab.engine.apply_dependency_to_child(
            edge_id=FLOW, **_ends(FLOW, upstream=key)
        ),
    ),
    "withdraw from": (
        "upstream_execution_id",
        lambda lab, key: lab.engine.withdraw_dependency_edge(
            edge_id=FLOW, **_ends(FLOW, upstream=key)
        ),
    ),
    "link to": (
        "downstream_execution_id",
        lambda lab, key: lab.engine.add_dependency(**_ends(FLOW, downstream=key)),
    ),
    "resolve to": (
        "downstream_execution_id",
        lambda lab, key: lab.engine.resolve_dependency(edge_id=FLOW, **_ends(FLOW, downstream=key)),
    ),
    "policy": (
        "downstream_execution_id",
        lambda lab, key: lab.engine.set_edge_group_policy(
            flow_id=FLOW, downstream_execution_id=key, policy=AllSucceeded()
        ),
    ),
}


def _ends(flow_id: Any, **ends: Any) -> dict[str, Any]:
    return {
        "flow_id": flow_id,
        "upstream_execution_id": ends.get("upstream", "{fp:1}:" + FLOW),
        "downstream_execution_id": ends.get("downstream", "{fp:2}:" + FLOW),
    }


@pytest.mark.parametrize("call", BY_FLOW)
@woven
async def test_a_malformed_flow_id_is_named(lab: Lab, call: str) -> None:
    for key in MALFORMED_FLOWS:
        async with lab.refuses(InvalidInput, "flow_id"):
            await BY_FLOW[call](lab, key)


@pytest.mark.parametrize("call", BY_EXECUTION)
@woven
async def test_a_malformed_execution_id_is_named(lab: Lab, call: str) -> None:
    field, ask = BY_EXECUTION[call]
    for key in MALFORMED_EXECUTIONS:
        async with lab.unchanged():
            with pytest.raises(InvalidInput) as caught:
                await ask(lab, key)
        assert caught.value.fields["field"] == field
        assert field in caught.value.detail


@pytest.mark.parametrize("end", ["from_node", "to_node"])
@woven
async def test_a_malformed_end_of_a_listing_is_named(lab: Lab, end: str) -> None:
    for key in MALFORMED_EXECUTIONS[:-1]:
        async with lab.refuses(InvalidInput, end):
            await lab.engine.list_edges(flow_id=FLOW, **{end: key})  # type: ignore[arg-type]
    async with lab.refuses(InvalidInput, "to_node"):
        key = new_execution_id()
        await lab.engine.list_edges(flow_id=FLOW, from_node=key, to_node=key)


@pytest.mark.parametrize("edge_id", ["", "x", 5])
@woven
async def test_a_malformed_edge_id_is_named(lab: Lab, edge_id: Any) -> None:
    for call in (
        lab.engine.stage_dependency_edge,
        lab.engine.apply_dependency_to_child,
        lab.engine.withdraw_dependency_edge,
        lab.engine.resolve_dependency,
    ):
        async with lab.refuses(InvalidInput, "edge_id"):
            await call(edge_id=edge_id, **_ends(FLOW))
    async with lab.refuses(InvalidInput, "edge_id"):
        await lab.engine.describe_edge(flow_id=FLOW, edge_id=edge_id)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"dependency_kind": "any"}, "dependency_kind"),
        ({"dependency_kind": None}, "dependency_kind"),
        ({"expected_graph_revision": -1}, "expected_graph_revision"),
        ({"expected_graph_revision": "1"}, "expected_graph_revision"),
        ({"data_passing_ref": 5}, "data_passing_ref"),
        ({"data_passing_ref": "x" * 300}, "data_passing_ref"),
        ({"input_name": b"x"}, "input_name"),
    ],
)
@woven
async def test_a_malformed_edge_is_refused(lab: Lab, fields: dict[str, Any], name: str) -> None:
    graph = await empty(lab, "a", "b")
    async with lab.refuses(InvalidInput, name):
        await graph.stage("a>b", **fields)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"flow_kind": ""}, "flow_kind"),
        ({"flow_kind": 5}, "flow_kind"),
        ({"namespace": ""}, "namespace"),
        ({"retention_ms": -1}, "retention_ms"),
        ({"retention_ms": True}, "retention_ms"),
        ({"tags": {"X": "y"}}, "tags"),
        ({"tags": "x"}, "tags"),
    ],
)
@woven
async def test_a_malformed_flow_is_refused(lab: Lab, fields: dict[str, Any], name: str) -> None:
    async with lab.refuses(ValidationError, name):
        await lab.engine.create_flow(**fields)


@woven
async def test_a_malformed_member_is_refused(lab: Lab) -> None:
    graph = await empty(lab)
    key = await lab.create(colocate_with=graph.flow_id)
    for name in (5, "x" * 257, "a\x00"):
        async with lab.refuses(InvalidInput, "node_name"):
            await lab.engine.add_execution_to_flow(
                flow_id=graph.flow_id,
                execution_id=key,
                node_name=name,  # type: ignore[arg-type]
            )
    for wrong in ("x", 5, FLOW.upper().replace("7", "A")):
        async with lab.refuses(InvalidInput, "colocate_with"):
            await lab.create(colocate_with=wrong)


@pytest.mark.parametrize(
    "call", ["summary", "members", "wait", "set_tag", "set_tags", "cancel", "header"]
)
@woven
async def test_a_flow_that_is_not_there_is_not_found(lab: Lab, call: str) -> None:
    async with lab.refuses(NotFound, "flow"):
        await BY_FLOW[call](lab, new_uuid7s(1)[0])


@pytest.mark.parametrize("timeout", [-1, "5", 1.5, True])
@woven
async def test_a_malformed_timeout_is_refused(lab: Lab, timeout: Any) -> None:
    graph = await empty(lab)
    async with lab.refuses(InvalidInput, "wait_ms"):
        await lab.engine.wait_for_flow(flow_id=graph.flow_id, wait_ms=timeout)


@woven
async def test_the_flows_block_is_nobodys_to_ask_for(lab: Lab) -> None:
    key = await lab.create()
    for reason in ("waiting_for_children", "paused_by_flow_cancel"):
        async with lab.refuses(ValidationError, "reason"):
            await lab.engine.block_execution_for_admission(execution_id=key, reason=reason)
