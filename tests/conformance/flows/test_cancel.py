"""Cancelling flows: every policy with every member state, and the claim race.

The two calls that cancel a flow are in test_cancel_calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric import limits
from flowfabric.api.executions import NewExecution
from flowfabric.errors import ExecutionNotActive, ExecutionNotEligible, FlowAlreadyTerminal
from flowfabric.model.event import LeaseEventType, OperatorEventType
from flowfabric.model.flow import CancellationPolicy, FlowState
from flowfabric.model.flow_results import CancellationScheduled, FlowCancelled
from flowfabric.model.state import BlockingReason, EligibilityState
from flowfabric.model.suspension import WaitpointState
from tests.support.budgets import BUDGET, make_budget, report
from tests.support.builders import policy, retries
from tests.support.flows import Graph, arrows, node, pump, submit, woven
from tests.support.lab import TTL_MS, Lab
from tests.support.waits import suspended, waitpoints

ALL, PENDING, ONLY = CancellationPolicy


async def waiting(lab: Lab) -> Graph:
    return await submit(lab, ["x"])


async def promised(lab: Lab) -> Graph:
    """A worker holds a grant for it."""
    graph = await submit(lab, ["x"])
    await lab.engine.issue_claim_grant(
        execution_id=graph.ids["x"], worker_id="w9", worker_instance_id="w9-1"
    )
    return graph


async def rate_limited(lab: Lab) -> Graph:
    await make_budget(lab, hard={"tokens": 1})
    await report(lab, {"tokens": 1})
    graph = await submit(lab, [node("x", budget_ids=(BUDGET,))])
    assert await lab.claims() == []
    assert await graph.state("x") == "rate_limited"
    return graph


async def held(lab: Lab) -> Graph:
    graph = await submit(lab, ["x"])
    await lab.engine.hold_execution(execution_id=graph.ids["x"])
    return graph


async def waiting_children(lab: Lab) -> Graph:
    return await submit(lab, [node("up", lane_id="idle"), "x"], arrows("up>x"))


async def delayed(lab: Lab) -> Graph:
    return await submit(lab, [node("x", delay_until=lab.now + 1000)])


async def backing_off(lab: Lab) -> Graph:
    graph = await submit(lab, [node("x", policy=policy(retry_policy=retries(3)))])
    await graph.start("x")
    await lab.engine.fail(await graph.handle("x"), reason="again")
    assert await graph.state("x") == "delayed"
    return graph


async def requeued(lab: Lab) -> Graph:
    """Its worker was lost, and it waits for another."""
    graph = await active(lab)
    await lab.after(TTL_MS)
    assert await graph.state("x") == "waiting"
    return graph


async def parked_parent(lab: Lab) -> Graph:
    graph = await active(lab)
    handle = await graph.handle("x")
    child = NewExecution(execution_kind="child", lane_id="idle")
    spawned = await lab.engine.spawn_children(handle, [child])
    await lab.engine.wait_children(handle)
    graph.ids["child"] = spawned.execution_ids[0]
    await lab.claim("w2", lanes=("idle",))
    assert await graph.state("x") == "waiting_children"
    return graph


async def active(lab: Lab) -> Graph:
    graph = await submit(lab, ["x"])
    await graph.start("x")
    return graph


async def lapsed(lab: Lab) -> Graph:
    """Its lease has run out and it may be reclaimed."""
    graph = await active(lab)
    lab.clock.advance(TTL_MS)
    await lab.engine.mark_lease_expired_if_due(execution_id=graph.ids["x"])
    return graph


async def revoked(lab: Lab) -> Graph:
    graph = await active(lab)
    await lab.engine.revoke_lease(execution_id=graph.ids["x"], reason="suspect")
    return graph


async def suspended_one(lab: Lab) -> Graph:
    graph = await active(lab)
    await suspended(lab, claimed=graph.claimed.pop(graph.ids["x"]))
    return graph


async def resumable(lab: Lab) -> Graph:
    """Its signal came, and it waits for a worker to go on."""
    graph = await active(lab)
    wait = await suspended(lab, claimed=graph.claimed.pop(graph.ids["x"]))
    await wait.send()
    assert await graph.state("x") == "waiting"
    return graph


NOT_BEGUN = (
    waiting,
    promised,
    rate_limited,
    held,
    waiting_children,
    delayed,
    backing_off,
    requeued,
)
BEGUN = (parked_parent, active, lapsed, revoked, suspended_one, resumable)
Make = Callable[[Lab], Awaitable[Graph]]


@pytest.mark.parametrize("large", [False, True], ids=["at once", "by tasks"])
@pytest.mark.parametrize("make", NOT_BEGUN + BEGUN, ids=lambda make: make.__name__)
@pytest.mark.parametrize("how", CancellationPolicy)
@woven
async def test_section_10_every_policy_and_member_state(
    lab: Lab, how: CancellationPolicy, make: Make, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy is judged once, whatever the size of the flow."""
    graph = await make(lab)
    before = await lab.record(graph.ids["x"])
    if large:
        monkeypatch.setattr(limits, "CANCEL_INLINE_MAX", 0)
    taken = how is ALL or (how is PENDING and make in NOT_BEGUN)
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=how, reason="enough")
    assert isinstance(reply, FlowCancelled | CancellationScheduled)
    if not taken:
        assert await lab.record(graph.ids["x"]) == before
    elif not large:
        assert await graph.state("x") == "cancelled"
    await pump(lab)
    assert await graph.tasks() == []
    assert (await graph.state("x") == "cancelled") == taken
    snapshot = await graph.snapshot()
    assert snapshot.public_flow_state is FlowState.CANCELLED
    assert (snapshot.cancel_reason, snapshot.cancellation_policy) == ("enough", how)
    assert snapshot.cancelled_at == lab.now
    if taken:
        told = await lab.describe(graph.ids["x"])
        assert (told.cancellation_reason, told.cancelled_by) == ("enough", "flow_cancel")
        assert (await lab.record(graph.ids["x"])).grant is None
        assert not any(each.execution_id == graph.ids["x"] for each in await lab.claims(limit=9))


@pytest.mark.parametrize("how", CancellationPolicy)
@pytest.mark.parametrize("outcome", ["success", "failed", "cancelled", "skipped"])
@woven
async def test_section_10_what_has_ended_is_never_rewritten(
    lab: Lab, how: CancellationPolicy, outcome: str
) -> None:
    """A flow with finished members is Cancelled, not PartiallyCancelled."""
    graph = await submit(lab, ["up", "x", "y"], arrows("up>x"))
    await graph.start()
    if outcome == "skipped":
        await graph.fail("up")
    else:
        await graph.complete("up")
        await graph.end("x", outcome)
    ended = await lab.record(graph.ids["x"])
    assert ended.is_terminal
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=how, wait_ms=1000)
    assert reply == FlowCancelled(how, tuple(sorted(graph.ids.values())))
    assert await lab.record(graph.ids["x"]) == ended
    assert len(await lab.completions(graph.ids["x"])) == 1


@woven
async def test_d52_an_active_member_is_fenced(lab: Lab) -> None:
    graph = await active(lab)
    handle = await graph.handle("x")
    epoch = (await lab.record(graph.ids["x"])).lease_epoch
    await lab.engine.cancel_flow(flow_id=graph.flow_id)
    assert (await lab.record(graph.ids["x"])).lease_epoch > epoch
    with pytest.raises(ExecutionNotActive):
        await lab.engine.complete(handle)
    assert (await lab.lease_events(graph.ids["x"]))[-1].event_type is LeaseEventType.ACQUIRED
    assert len(await lab.completions(graph.ids["x"])) == 1


@woven
async def test_a_suspended_members_waitpoints_are_closed(lab: Lab) -> None:
    graph = await suspended_one(lab)
    await lab.engine.cancel_flow(flow_id=graph.flow_id)
    assert {each.state for each in await waitpoints(lab, graph.ids["x"])} == {WaitpointState.CLOSED}


@woven
async def test_what_drains_still_cascades_and_ends_the_flow(lab: Lab) -> None:
    """Satisfy and skip go on under the policies that let members run."""
    graph = await submit(lab, "abcd", arrows("a>b>c", "a>d"))
    await graph.start("a")
    await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=ONLY)
    assert (await graph.snapshot()).finished_at is None
    await graph.complete("a")
    await graph.fail("b")
    assert await graph.state("c") == "skipped"
    await graph.complete("d")
    snapshot = await graph.snapshot()
    assert snapshot.public_flow_state is FlowState.CANCELLED
    assert snapshot.finished_at == lab.now
    assert await graph.events() == ["cancelled"]


@woven
async def test_after_any_policy_the_graph_is_closed(lab: Lab) -> None:
    for how in CancellationPolicy:
        graph = await submit(lab, [node(each, lane_id=how.value) for each in "ab"])
        staged = await graph.stage("a>b")
        await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=how)
        for change in (
            graph.add("late"),
            graph.stage("a>b"),
            graph.apply("a>b", staged),
            graph.link("a>b"),
        ):
            with pytest.raises(FlowAlreadyTerminal):
                await change


@woven
async def test_cancelling_is_audited_and_told_once(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b"), tags={"team.name": "a"})
    await lab.engine.cancel_flow(flow_id=graph.flow_id, reason="no money")
    await lab.engine.cancel_flow(flow_id=graph.flow_id, reason="other", policy=ONLY)
    (event,) = await lab.operator_events(graph.flow_id)
    assert event.event_type is OperatorEventType.FLOW_CANCEL_REQUESTED
    assert event.details == {"policy": "cancel_all", "reason": "no money", "member_count": 3}
    assert event.tags == {"team.name": "a"}
    assert await graph.events() == ["cancelled"]
    snapshot = await graph.snapshot()
    assert (snapshot.cancel_reason, snapshot.cancellation_policy) == ("no money", ALL)


# --- the claim race ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", [ALL, PENDING])
@pytest.mark.parametrize("make", NOT_BEGUN, ids=lambda make: make.__name__)
@woven
async def test_d29b_no_claim_gets_a_targeted_member_after_the_flip(
    lab: Lab, how: CancellationPolicy, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before its own cancel came: nothing an operator, a delay or a budget does frees it."""
    graph = await make(lab)
    key = graph.ids["x"]
    monkeypatch.setattr(limits, "CANCEL_INLINE_MAX", 0)
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=how)
    assert isinstance(reply, CancellationScheduled)
    state = (await lab.record(key)).state
    assert state.blocking_reason is BlockingReason.PAUSED_BY_FLOW_CANCEL
    assert state.eligibility_state is EligibilityState.BLOCKED_BY_OPERATOR
    calls: tuple[Awaitable[Any], ...] = (
        lab.engine.release_execution(execution_id=key),
        lab.engine.unblock_execution(execution_id=key),
        lab.engine.hold_execution(execution_id=key),
        lab.engine.issue_claim_grant(execution_id=key, worker_id="w", worker_instance_id="w-1"),
    )
    for call in calls:
        with pytest.raises(ExecutionNotEligible):
            await call
    await lab.engine.promote_delayed(execution_id=key)
    assert await lab.claims(limit=10) == []
    await lab.after(10_000)
    assert await graph.state("x") == "cancelled"


@woven
async def test_d29b_a_large_flow_lets_nobody_start_while_it_drains(lab: Lab) -> None:
    """More than one transaction cancels; the claims in between find nothing."""
    size = limits.CANCEL_INLINE_MAX + 100
    graph = await submit(lab, [f"n{at}" for at in range(size)])
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id)
    assert isinstance(reply, CancellationScheduled)
    assert reply.member_count == size
    times = 0
    while await lab.engine.move_due():
        times += 1
        assert await lab.claims(limit=100) == []
    assert times > 1
    assert (await graph.row()).cancelled_count == size
    assert (await graph.snapshot()).finished_at == lab.now


@pytest.mark.parametrize("how", [ALL, PENDING])
@woven
async def test_d29b_claims_that_race_a_cancel(lab: Lab, how: CancellationPolicy) -> None:
    """Who was claimed before drains or is fenced; who was not never starts."""
    graph = await submit(lab, [f"n{at}" for at in range(40)])
    before: list[str] = []

    async def claim_some() -> None:
        before.extend(each.execution_id for each in await lab.claims(limit=3))

    async def cancel() -> None:
        await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=how)
        assert await lab.claims(limit=100) == []

    await asyncio.gather(claim_some(), claim_some(), cancel(), claim_some(), claim_some())
    drains = set(before) if how is PENDING else set()
    for key in graph.ids.values():
        assert (await lab.state(key)).value == ("active" if key in drains else "cancelled")


@woven
async def test_in_a_large_flow_those_who_wait_are_cancelled_like_the_others(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its upstream's cancel comes first and would skip it; it is cancelled all the same."""
    monkeypatch.setattr(limits, "CANCEL_INLINE_MAX", 0)
    graph = await submit(lab, "abc", arrows("a>b>c"))
    await lab.engine.cancel_flow(flow_id=graph.flow_id, reason="enough")
    await pump(lab)
    assert set((await graph.states()).values()) == {"cancelled"}
    for name in "abc":
        told = await lab.describe(graph.ids[name])
        assert (told.cancellation_reason, told.cancelled_by) == ("enough", "flow_cancel")
