"""Hooks of flows: what follows the end of a whole flow, created in the transaction of that end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowfabric.api.executions import NewHook
from flowfabric.api.flows import SubmitFlow
from flowfabric.api.schedules import ScheduledStart
from flowfabric.errors import FlowConflict, IdempotencyConflict, InvalidInput, NotFound
from flowfabric.model.flow import CancellationPolicy
from flowfabric.model.flow_results import FlowAlreadySatisfied, FlowDuplicate
from flowfabric.model.schedule import Timing
from flowfabric.model.state import PublicState
from flowfabric.model.successor import Origin, Role, SuccessorInfo
from tests.support.flows import Graph, arrows, empty, node, submit
from tests.support.lab import Lab, scenario

HOOKS: dict[str, Any] = {
    "on_success": NewHook(execution_kind="won", lane_id="told"),
    "on_failure": NewHook(execution_kind="lost", argument="how", lane_id="told", priority=7),
    "on_end": NewHook(execution_kind="over", lane_id="told"),
}
RUN = {
    "completed": {Role.ON_SUCCESS, Role.ON_END},
    "failed": {Role.ON_FAILURE, Role.ON_END},
    "cancelled": {Role.ON_END},
}


async def _successors(graph: Graph) -> dict[Role, SuccessorInfo]:
    return {each.role: each for each in (await graph.snapshot()).successors}


async def _told(lab: Lab, info: SuccessorInfo) -> dict[str, Any]:
    context = await lab.engine.read_execution_context(execution_id=info.execution_id or "")
    found: dict[str, Any] = json.loads(context.input_payload)
    return found


async def _created(lab: Lab, graph: Graph) -> int:
    """How many executions there are besides the members."""
    return len((await lab.dump())["executions"]) - len(graph.ids)


@pytest.mark.parametrize("how", ["complete", "fail", "cancel", "only", "later"])
@scenario
async def test_every_end_of_a_flow_creates_its_hooks_with_it(lab: Lab, how: str) -> None:
    """In the transaction in which the last member ends, also where the flow was cancelled before:
    each is there when the end is, once, and knows what it follows."""
    graph = await submit(
        lab,
        [node("a"), node("b")],
        arrows("a>b"),
        flow_kind="deploy",
        tags={"team.name": "a"},
        idempotency_key="k-1",
        **HOOKS,
    )
    assert {each.execution_id for each in (await _successors(graph)).values()} == {None}
    state, members = "cancelled", {"cancelled": 2}
    reason = None if how in ("complete", "fail") else "x"
    await graph.start("a")
    if how == "complete":
        state, members = "completed", {"completed": 2}
        await graph.complete("a")
        assert await _created(lab, graph) == 0
        await graph.complete("b")
    elif how == "fail":
        state, members = "failed", {"failed": 1, "skipped": 1}
        await graph.fail("a")
    elif how == "cancel":
        await lab.engine.cancel_flow(
            flow_id=graph.flow_id, policy=CancellationPolicy.CANCEL_ALL, reason="x"
        )
    else:
        members = {"completed": 2} if how == "only" else {"completed": 1, "cancelled": 1}
        policy = (
            CancellationPolicy.FLOW_ONLY if how == "only" else CancellationPolicy.CANCEL_PENDING
        )
        await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=policy, reason="x")
        assert await _created(lab, graph) == 0  # it is cancelled, and goes on to its end
        await graph.complete("a")
        if how == "only":
            await graph.complete("b")
    ended = await graph.snapshot()
    assert ended.public_flow_state == state
    found = await _successors(graph)
    assert set(found) == RUN[state]
    for role, info in found.items():
        hook = await lab.describe(info.execution_id or "")
        asked = HOOKS[role]
        assert hook.origin == Origin(role, 0, flow_id=graph.flow_id)
        assert hook.flow_id is None
        assert hook.created_at == ended.finished_at
        assert hook.public_state is PublicState.WAITING
        assert (hook.execution_kind, hook.lane_id) == (asked.execution_kind, "told")
        assert hook.priority == (asked.priority or 0)
        assert info.execution_kind == asked.execution_kind
        expected = {
            "flow_id": graph.flow_id,
            "kind": "deploy",
            "state": state,
            "reason": reason,
            "key": "k-1",
            "tags": {"team.name": "a"},
            "members": members,
            "ended_at": ended.finished_at,
        }
        assert await _told(lab, info) == {asked.argument: expected}
    assert await _created(lab, graph) == len(found)
    assert (await lab.engine.wait_for_flow(flow_id=graph.flow_id)).successors == ended.successors
    async with lab.unchanged():  # nothing of it follows again
        await lab.after(0)
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_each_life_of_a_flow_has_hooks_of_its_own(lab: Lab) -> None:
    """A flow that a replay or a new member opens again ends once more; what is done to its members
    meanwhile creates nothing."""
    graph = await submit(lab, [node("a"), node("b")], **HOOKS)
    await graph.complete("a")
    seen: set[str | None] = set()
    for life in range(3):
        await (graph.complete("b") if life == 2 else graph.fail("b"))
        found = await _successors(graph)
        assert set(found) == RUN["completed" if life == 2 else "failed"]
        for role, info in found.items():
            hook = await lab.describe(info.execution_id or "")
            assert hook.origin == Origin(role, life, flow_id=graph.flow_id)
        seen.update(each.execution_id for each in found.values())
        await lab.engine.replay_execution(execution_id=graph.ids["b"])
        assert {each.execution_id for each in (await _successors(graph)).values()} == {None}
        await graph.start("b")
    await graph.cancel("b")
    seen.update(each.execution_id for each in (await _successors(graph)).values())
    await graph.add("c", reopen=True)
    await lab.cancel(graph.ids["c"])
    seen.update(each.execution_id for each in (await _successors(graph)).values())
    assert len(seen - {None}) == await _created(lab, graph) == 10
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_hooks_of_a_flow_built_step_by_step_follow_each_of_its_ends(lab: Lab) -> None:
    """It ends when all members that it has by then have ended, and again after another one came."""
    graph = await empty(lab, "a", "b", flow_kind="import", tags={"team.name": "a"}, **HOOKS)
    await graph.link("a>b")
    assert {each.execution_id for each in (await _successors(graph)).values()} == {None}
    await graph.complete("a")
    assert await _created(lab, graph) == 0
    await lab.engine.set_lane_state(lane_id="told", lane_state="disabled")
    await graph.complete("b")
    first = await _successors(graph)
    assert set(first) == RUN["completed"]
    told = (await _told(lab, first[Role.ON_END]))["ended"]
    assert (told["state"], told["key"], told["kind"]) == ("completed", None, "import")
    assert (told["members"], told["tags"]) == ({"completed": 2}, {"team.name": "a"})
    await graph.add("c", reopen=True)
    await graph.fail("c")
    second = await _successors(graph)
    assert set(second) == RUN["failed"]
    for role, info in second.items():
        hook = await lab.describe(info.execution_id or "")
        assert hook.origin == Origin(role, 1, flow_id=graph.flow_id)
    assert await _created(lab, graph) == len(first) + len(second)
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_the_same_flow_with_other_hooks_is_a_conflict(lab: Lab) -> None:
    graph = await empty(lab, "a", **HOOKS)
    await graph.complete("a")
    await graph.add("b", reopen=True)  # it lives again, with the same hooks
    same = await lab.engine.create_flow(flow_id=graph.flow_id, **HOOKS)
    assert same == FlowAlreadySatisfied(graph.flow_id)
    different: tuple[dict[str, Any], ...] = ({}, {"on_end": NewHook(execution_kind="other")})
    for others in different:
        async with lab.refuses(FlowConflict, "hooks"):
            await lab.engine.create_flow(flow_id=graph.flow_id, **others)


@scenario
async def test_hooks_of_a_scheduled_flow_follow_each_of_its_runs(lab: Lab) -> None:
    """Their routes are known before, and a lane that was closed since takes them in."""
    flow = SubmitFlow(
        nodes=[node("only", on_end=NewHook(execution_kind="of_node"))], flow_kind="nightly", **HOOKS
    )
    await lab.engine.create_schedule(
        schedule_id="s", timing=Timing(every_ms=60_000), start=ScheduledStart(flow=flow)
    )
    for number in range(2):
        await lab.after(60_000)
        if number:
            await lab.engine.set_lane_state(lane_id="told", lane_state="disabled")
        claimed = await lab.claim(kinds=("work",))
        await lab.engine.complete(claimed.handle)
    kinds = sorted(each.execution_kind for each in (await lab.dump())["executions"])
    assert kinds == sorted(["work", "of_node", "won", "over"] * 2)


@pytest.mark.parametrize(
    ("field", "hook", "error"),
    [
        ("on_end", "work", InvalidInput),
        ("on_success", NewHook(execution_kind="x", lane_id="é"), InvalidInput),
        ("on_failure", NewHook(execution_kind="x", policy={"nope": 1}), InvalidInput),
        ("on_end", NewHook(execution_kind="x", budget_ids=("none",)), NotFound),
        ("on_end", NewHook(execution_kind="x", quota_policy_id="none"), NotFound),
    ],
)
@scenario
async def test_a_wrong_hook_of_a_flow_is_refused_at_the_submit(
    lab: Lab, field: str, hook: Any, error: Any
) -> None:
    async with lab.refuses(error, field):
        await submit(lab, ["a"], **{field: hook})
    async with lab.refuses(error, field):
        await empty(lab, **{field: hook})


@scenario
async def test_the_same_key_with_another_hook_is_another_flow(lab: Lab) -> None:
    graph = await submit(lab, ["a"], idempotency_key="k", **HOOKS)
    again = await lab.engine.submit_flow(nodes=[node("a")], idempotency_key="k", **HOOKS)
    assert again == FlowDuplicate(graph.flow_id)
    async with lab.refuses(IdempotencyConflict, "k"):
        await submit(lab, ["a"], idempotency_key="k", on_end=NewHook(execution_kind="other"))


@scenario
async def test_a_list_that_changes_is_read_again(lab: Lab) -> None:
    """A hook is checked once and shared, unless its owner may change it behind our back."""
    budgets: Any = []
    hook = NewHook(execution_kind="over", budget_ids=budgets)
    await submit(lab, ["a"], on_end=hook)
    budgets.append("none")
    async with lab.refuses(NotFound, "budget_ids"):
        await submit(lab, ["a"], on_end=hook)
