"""Hooks: what follows the end of an execution, created in the transaction of that end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution, NewHook
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.api.leases import Complete
from flowfabric.errors import IdempotencyConflict, InvalidInput, NotFound, StoreError
from flowfabric.model.attempt import FailureClass
from flowfabric.model.flow_results import FlowSubmitted
from flowfabric.model.results import Claimed, Created
from flowfabric.model.state import PublicState
from flowfabric.model.successor import Origin, Role, SuccessorInfo
from tests.support.builders import policy
from tests.support.lab import Lab, scenario

HOOKS: dict[str, Any] = {
    "on_success": NewHook(execution_kind="won"),
    "on_failure": NewHook(execution_kind="lost", argument="how", lane_id="alarms", priority=7),
    "on_end": NewHook(execution_kind="over"),
}
RUN = {
    "completed": {"on_success", "on_end"},
    "failed": {"on_failure", "on_end"},
    "expired": {"on_failure", "on_end"},
    "cancelled": {"on_end"},
    "skipped": {"on_end"},
}
_ENDS = {"complete": "completed", "fail": "failed", "cap": "failed", "cancel": "cancelled"}


async def _hooked(lab: Lab, **fields: Any) -> Claimed:
    return await lab.started(tags={"team.name": "a"}, idempotency_key="k-1", **HOOKS, **fields)


async def _successors(lab: Lab, execution_id: str) -> dict[Role, SuccessorInfo]:
    return {each.role: each for each in (await lab.describe(execution_id)).successors}


async def _payload(lab: Lab, execution_id: str) -> dict[str, Any]:
    context = await lab.engine.read_execution_context(execution_id=execution_id)
    found: dict[str, Any] = json.loads(context.input_payload)
    return found


@pytest.mark.parametrize(
    "how", ["complete", "fail", "cancel", "operator", "deadline", "timeout", "cap"]
)
@scenario
async def test_every_end_creates_its_hooks_with_it(lab: Lab, how: str) -> None:
    """In the transaction of the end: each is there when the end is, once, and knows what it
    follows."""
    rules = policy(
        attempt_timeout_ms=5000 if how == "timeout" else None,
        max_reclaim_count=0 if how == "cap" else None,
    )
    deadline_at = lab.now + 5000 if how == "deadline" else None
    claimed = await _hooked(lab, policy=rules, execution_deadline_at=deadline_at)
    engine, key = lab.engine, claimed.execution_id
    before = await _successors(lab, key)
    assert {each.execution_id for each in before.values()} == {None}
    assert set(before) == {Role.ON_SUCCESS, Role.ON_FAILURE, Role.ON_END}
    if how == "complete":
        await engine.complete(claimed.handle, result=b'{"a": 1}', result_encoding="json")
    elif how == "fail":
        await engine.fail(claimed.handle, reason="x", failure_class=FailureClass.PERMANENT)
    elif how == "cancel":
        await engine.cancel(claimed.handle, reason="x")
    elif how == "operator":
        await lab.cancel(key, reason="x")
    else:
        await lab.after(claimed.lease_expires_at - lab.now)
    ended = await lab.describe(key)
    state = {**_ENDS, "operator": "cancelled"}.get(how, "expired")
    assert ended.public_state == state
    found = await _successors(lab, key)
    assert set(found) == RUN[state]
    for role, info in found.items():
        assert info.execution_id is not None
        hook = await lab.describe(info.execution_id)
        assert hook.origin == Origin(role, 0, key)
        assert hook.created_at == ended.completed_at
        assert hook.public_state is PublicState.WAITING
        assert hook.execution_kind == info.execution_kind == HOOKS[role].execution_kind
        assert (hook.lane_id, hook.priority) == (HOOKS[role].lane_id, HOOKS[role].priority or 0)
        assert hook.namespace == ended.namespace
        told = (await _payload(lab, info.execution_id))[HOOKS[role].argument or ""]
        assert told["execution_id"] == key
        assert (told["kind"], told["state"], told["key"]) == ("work", state, "k-1")
        assert told["tags"] == {"team.name": "a"}
        assert told["ended_at"] == ended.completed_at
        assert told["reason"] == (ended.failure_reason or ended.cancellation_reason)
        assert told["category"] == ended.failure_category
        assert told["result"] == ({"a": 1} if how == "complete" else None)
    assert len((await lab.dump())["executions"]) == 1 + len(found)
    async with lab.unchanged():  # nothing of it follows again
        await lab.after(0)


@scenario
async def test_a_skipped_member_runs_only_the_hook_of_its_end(lab: Lab) -> None:
    member = NewExecution(execution_kind="work", **HOOKS)
    nodes = [
        FlowNode(name="a", execution=NewExecution(execution_kind="work")),
        FlowNode(name="b", execution=member),
    ]
    flow = await lab.engine.submit_flow(nodes=nodes, edges=[FlowEdge(upstream="a", downstream="b")])
    assert isinstance(flow, FlowSubmitted)
    await lab.cancel(flow.execution_ids["a"])
    skipped = flow.execution_ids["b"]
    assert await lab.state(skipped) is PublicState.SKIPPED
    (info,) = (await lab.describe(skipped)).successors
    assert info.role is Role.ON_END
    assert (await _payload(lab, info.execution_id or ""))["ended"]["state"] == "skipped"


@scenario
async def test_each_life_has_hooks_of_its_own(lab: Lab) -> None:
    """A replay's next end creates them again, the same end repeated does not."""
    claimed = await _hooked(lab)
    engine, key = lab.engine, claimed.execution_id
    seen: set[str | None] = set()
    for life in range(3):
        await engine.complete(claimed.handle)
        async with lab.unchanged():
            await engine.complete(claimed.handle)
        found = await _successors(lab, key)
        hook = await lab.describe(found[Role.ON_SUCCESS].execution_id or "")
        assert hook.origin == Origin(Role.ON_SUCCESS, life, key)
        seen.update(each.execution_id for each in found.values())
        await engine.replay_execution(execution_id=key, requested_by="t", reason="again")
        assert {each.execution_id for each in (await _successors(lab, key)).values()} == {None}
        claimed = await lab.claim(kinds=("work",))
    assert len(seen) == 6
    assert len((await lab.dump())["executions"]) == 7


@scenario
async def test_hook_of_a_run_that_expired_with_no_worker(lab: Lab) -> None:
    """Scenario 49: created once by the store's own time, and run when a worker comes. A hook of a
    hook is none."""
    key = await lab.create(execution_deadline_at=lab.now + 1000, **HOOKS)
    await lab.after(999)
    assert len((await lab.dump())["executions"]) == 1
    await lab.after(1)
    for _ in range(3):
        await lab.after(60_000)
    assert len((await lab.dump())["executions"]) == 3
    claimed = await lab.claim(lanes=("alarms",))
    assert claimed.execution_kind == "lost"
    assert json.loads(claimed.payload)["how"]["execution_id"] == key
    await lab.engine.complete(claimed.handle)
    assert (await lab.describe(claimed.execution_id)).successors == ()
    assert len((await lab.dump())["executions"]) == 3


@scenario
async def test_a_closed_lane_takes_in_what_was_promised(lab: Lab) -> None:
    """A lane that was closed since prevents neither the end nor the hook, which waits there."""
    claimed = await _hooked(lab)
    await lab.engine.set_lane_state(lane_id="alarms", lane_state="disabled")
    await lab.engine.fail(claimed.handle, reason="x", failure_class=FailureClass.PERMANENT)
    hook = (await _successors(lab, claimed.execution_id))[Role.ON_FAILURE].execution_id or ""
    assert await lab.state(hook) is PublicState.WAITING
    assert await lab.claims(lanes=("alarms",)) == []
    assert "alarms" in (await lab.engine.explain(execution_id=hook)).summary
    await lab.engine.resume_lane(lane_id="alarms")
    assert (await lab.claim(lanes=("alarms",))).execution_id == hook


@scenario
async def test_what_a_hook_is_told_is_bounded(lab: Lab) -> None:
    """A result over 64 KiB, or that is no JSON, is left out; a hook may be told nothing at all."""
    silent = NewHook(execution_kind="won", argument=None)
    cases = (
        (b'"' + b"x" * (64 * 1024 - 2) + b'"', "json", "x" * (64 * 1024 - 2), False),
        (b'"' + b"x" * (64 * 1024 - 1) + b'"', "json", None, True),
        (b"\xff", None, None, True),
        (b"{", "json", None, True),
        (None, None, None, False),
    )
    for result, encoding, expected, is_left_out in cases:
        claimed = await lab.started(on_success=silent, on_end=HOOKS["on_end"])
        await lab.engine.complete(claimed.handle, result=result, result_encoding=encoding)
        found = await _successors(lab, claimed.execution_id)
        told = (await _payload(lab, found[Role.ON_END].execution_id or ""))["ended"]
        assert (told["result"], told["is_result_left_out"]) == (expected, is_left_out)
        assert await _payload(lab, found[Role.ON_SUCCESS].execution_id or "") == {}
        await lab.claims(limit=10)


@scenario
async def test_a_batch_of_ends_creates_all_hooks(lab: Lab) -> None:
    """Together as one by one, with bounds of their own."""
    await lab.engine.create_quota_policy(quota_policy_id="q", max_concurrent=1)
    hook = NewHook(execution_kind="won", quota_policy_id="q", concurrency_key="c")
    requests = [NewExecution(execution_kind="work", on_success=hook) for _ in range(20)]
    await lab.engine.create_executions(requests)
    claimed = await lab.claims(limit=20)
    await lab.engine.call_many([Complete(handle=each.handle) for each in claimed])
    ids = {(await lab.describe(each.execution_id)).successors[0].execution_id for each in claimed}
    assert len(ids) == 20
    assert len(await lab.claims(limit=20)) == 1  # as the quota allows


@pytest.mark.parametrize(
    ("field", "hook", "error"),
    [
        ("on_end", {"execution_kind": ""}, InvalidInput),
        ("on_success", {"execution_kind": "x", "lane_id": "é"}, InvalidInput),
        ("on_failure", {"execution_kind": "x", "argument": ""}, InvalidInput),
        ("on_failure", {"execution_kind": "x", "policy": {"nope": 1}}, InvalidInput),
        ("on_end", {"execution_kind": "x", "budget_ids": ("none",)}, NotFound),
        ("on_end", {"execution_kind": "x", "quota_policy_id": "none"}, NotFound),
    ],
)
@scenario
async def test_a_wrong_hook_is_refused_at_the_submit(
    lab: Lab, field: str, hook: dict[str, Any], error: Any
) -> None:
    async with lab.refuses(error, field):
        given: dict[str, Any] = {field: NewHook(**hook)}
        await lab.create(**given)


@scenario
async def test_the_same_key_with_another_hook_is_another_request(lab: Lab) -> None:
    first = await lab.create(idempotency_key="k", **HOOKS)
    again = await lab.engine.create_execution(execution_kind="work", idempotency_key="k", **HOOKS)
    assert not isinstance(again, Created)
    assert again.execution_id == first
    async with lab.refuses(IdempotencyConflict, "k"):
        await lab.create(idempotency_key="k", on_end=NewHook(execution_kind="other"))


class _Cut(Exception):
    """The process dies before its transaction commits."""


@scenario
async def test_no_crash_comes_between_an_end_and_its_hooks(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut after everything was written and before the commit, neither is there; else both are."""
    claimed = await _hooked(lab)
    store = lab.direct.store
    whole = store.transact

    async def cut(work: Any) -> Any:
        async def dies(tx: Any) -> Any:
            await work(tx)
            raise _Cut

        return await whole(dies)

    async with lab.unchanged():
        with monkeypatch.context() as patch:
            patch.setattr(store, "transact", cut)
            with pytest.raises(StoreError, match="_Cut"):
                await lab.direct.complete(claimed.handle)
    await lab.engine.complete(claimed.handle)
    assert len((await lab.dump())["executions"]) == 3


def test_a_hook_whose_route_is_gone_prevents_no_end(
    durable_lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Routes are never deleted; where one is missing all the same, the log tells of it."""
    lab = durable_lab

    async def end() -> None:
        claimed = await _hooked(lab)
        await lab.sql("DELETE FROM ff_route WHERE execution_kind = 'won'")
        await lab.engine.pause_lane(lane_id="alarms")  # the catalog is read anew
        await lab.engine.complete(claimed.handle)
        assert await lab.state(claimed.execution_id) is PublicState.COMPLETED
        kinds = {each.execution_kind for each in (await lab.dump())["executions"]}
        assert kinds == {"work", "over"}

    lab.run(end())
    assert "no such route" in caplog.text
