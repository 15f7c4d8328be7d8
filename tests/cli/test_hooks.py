"""show and why tell what follows the end of a run, and what it follows itself."""

from __future__ import annotations

from flowfabric.api.executions import NewExecution, NewHook
from flowfabric.api.flows import FlowNode
from flowfabric.engine.engine import Engine
from flowfabric.model.journal import EntryKind, NewEntry
from flowfabric.model.results import Created
from tests.cli.desk import Desk


def test_show_and_why_link_a_run_and_its_hooks_both_ways(desk: Desk) -> None:
    desk.submit()

    async def hooked(engine: Engine) -> str:
        hook = NewHook(execution_kind="clean")
        created = await engine.create_execution(execution_kind="work", on_end=hook)
        assert isinstance(created, Created)
        return created.execution_id

    source = desk.given(hooked)
    for command in ("show", "why"):
        assert desk.ff(command, source) == 0
        assert "on_end: clean when it ends" in desk.out
    assert desk.ff("cancel", source) == 0
    (told,) = desk.json("show", source)["successors"]
    hook = told["execution_id"]
    for command in ("show", "why"):
        assert desk.ff(command, source) == 0
        assert f"on_end: clean {hook}" in desk.out
        assert desk.ff(command, hook) == 0
        assert f"on_end of {source}" in desk.out
        assert desk.json(command, hook)["origin"]["execution_id"] == source
    assert desk.ff("retry", source) == 0
    assert desk.ff("cancel", source) == 0
    (again,) = desk.json("why", source)["successors"]
    assert again["execution_id"] != hook
    assert desk.ff("show", again["execution_id"]) == 0
    assert f"on_end of {source}, its end number 2" in desk.out


def test_show_and_why_tell_what_undoes_a_run(desk: Desk) -> None:
    desk.submit()

    async def registered(engine: Engine) -> str:
        created = await engine.create_execution(execution_kind="work", lane_id="own")
        assert isinstance(created, Created)
        (claimed,) = await engine.claim(
            worker_id="w", worker_instance_id="w-1", lanes=("own",), lease_ttl_ms=60_000
        )
        undo = NewExecution(execution_kind="refund", payload_encoding="json", input_payload=b"{}")
        entry = NewEntry(position=0, key="undo:refund", kind=EntryKind.UNDO)
        await engine.register_undo(claimed.handle, [undo], [entry])
        return created.execution_id

    source = desk.given(registered)
    for command in ("show", "why"):
        assert desk.ff(command, source) == 0
        assert "undo: 1 call unless it succeeds" in desk.out
    assert desk.ff("journal", source, "--values") == 0
    assert "undo:refund" in desk.out
    assert desk.ff("cancel", source) == 0
    (told,) = desk.json("why", source)["successors"]
    assert desk.ff("show", source) == 0
    assert f"undo: 1 call, flow {told['flow_id']}" in desk.out
    assert desk.ff("flow", "show", told["flow_id"]) == 0
    assert "1 refund" in desk.out
    (node,) = desk.given(lambda engine: engine.list_flow_members(flow_id=told["flow_id"]))
    assert desk.ff("why", node.execution_id) == 0
    assert f"undo of {source}" in desk.out


def test_flow_show_links_a_flow_and_its_hooks_both_ways(desk: Desk) -> None:
    desk.submit()

    async def hooked(engine: Engine) -> str:
        node = FlowNode(name="a", execution=NewExecution(execution_kind="work"))
        hook = NewHook(execution_kind="clean")
        return (await engine.submit_flow(nodes=[node], on_end=hook)).flow_id

    flow = desk.given(hooked)
    assert desk.ff("flow", "show", flow) == 0
    assert "on_end: clean when it ends" in desk.out
    assert desk.ff("flow", "cancel", flow) == 0
    (told,) = desk.json("flow", "show", flow)["successors"]
    assert desk.ff("flow", "show", flow) == 0
    assert f"on_end: clean {told['execution_id']}" in desk.out
    for command in ("show", "why"):
        assert desk.ff(command, told["execution_id"]) == 0
        assert f"on_end of flow {flow}" in desk.out
