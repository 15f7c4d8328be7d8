"""Whole waits, told from their beginning to their end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.errors import InvalidToken
from flowfabric.model.attempt import FailureClass
from flowfabric.model.event import LeaseEventType
from flowfabric.model.handle import HandleKind
from flowfabric.model.state import BlockingReason, PublicState
from flowfabric.model.suspension import AllOf, AlreadyMet, Count, CountKind, SignalEffect, Single
from tests.support.lab import TTL_MS, Lab
from tests.support.waits import early, pending, signal_to, signals, suspended, told


@pytest.mark.parametrize("verdict", ["approved", "rejected", "unparsable", "nobody"])
@told
async def test_scenario_1_human_review_with_one_signal(lab: Lab, verdict: str) -> None:
    """Both verdicts use one name; the resumed worker branches on the payload."""
    waiting = await suspended(
        lab,
        Single("review", "review_response"),
        reason_code="waiting_for_operator_review",
        timeout_at=lab.now + 3_600_000,
        timeout_behavior="fail",
    )
    snapshot = await lab.describe(waiting.execution_id)
    assert snapshot.blocking_reason is BlockingReason.PAUSED_BY_OPERATOR
    if verdict == "nobody":
        await lab.after(3_600_000)
        assert await lab.state(waiting.execution_id) is PublicState.FAILED
        return
    body = json.dumps({"approved": verdict == "approved", "feedback": "hm"}).encode()
    sent = b"\xff" if verdict == "unparsable" else body
    assert await waiting.effect("chatter") is SignalEffect.MATCHER_FAILED
    assert await waiting.effect("review_response", payload=sent) is SignalEffect.RESUMED
    again = await lab.claim("another worker")  # whatever the first one knew is lost
    (seen,) = await lab.engine.observe_signals(again.handle)
    assert (seen.signal_name, seen.payload) == ("review_response", sent)
    if verdict == "approved":
        await lab.engine.complete(again.handle, result=b"published")
        assert await lab.state(waiting.execution_id) is PublicState.COMPLETED
    else:
        await lab.engine.fail(again.handle, reason=verdict, failure_class=FailureClass.PERMANENT)
        assert await lab.state(waiting.execution_id) is PublicState.FAILED


@told
async def test_scenario_2_two_person_approval(lab: Lab) -> None:
    """Two distinct sources; the same one twice is one."""
    quorum = Count(2, CountKind.DISTINCT_SOURCES, ("deploy",), "deploy_approval")
    waiting = await suspended(lab, quorum, reason_code="waiting_for_approval")
    assert await waiting.effect("deploy_approval", "alice") is SignalEffect.APPENDED
    assert await waiting.effect("deploy_approval", "alice") is SignalEffect.DUPLICATE
    assert await waiting.effect("lunch", "bob") is SignalEffect.MATCHER_FAILED
    assert await lab.state(waiting.execution_id) is PublicState.SUSPENDED
    assert await waiting.effect("deploy_approval", "bob") is SignalEffect.RESUMED
    seen = await lab.engine.observe_signals((await lab.claim()).handle)
    assert [each.source_identity for each in seen] == ["alice", "bob"]
    assert len(await signals(lab, waiting.execution_id)) == 4


@pytest.mark.parametrize("is_fast", [True, False])
@told
async def test_scenario_3_external_callback(lab: Lab, is_fast: bool) -> None:
    """The token is sent out before the suspension; a fast callback is not lost."""
    claimed = await lab.started()
    details = await pending(lab, claimed, "callback", expires_in_ms=300_000)
    forged = details.token.reveal()[:-1] + ("0" if details.token.reveal()[-1] != "0" else "1")
    if is_fast:
        await early(lab, claimed, details, "paid")
    request = SuspendRequest(
        resume_condition=Single("callback"),
        waitpoints=(UsePending(details.waitpoint_id, "callback"),),
        reason_code="waiting_for_callback",
    )
    outcome = await lab.engine.suspend(claimed.handle, request)
    if is_fast:
        assert isinstance(outcome, AlreadyMet)
        await lab.engine.complete(claimed.handle)
        return
    tampered = signal_to(claimed.execution_id, details, "paid", token=forged)
    async with lab.refuses(InvalidToken):
        await lab.engine.deliver_signal(tampered)
    answer = await lab.engine.deliver_signal(signal_to(claimed.execution_id, details, "paid"))
    assert answer.effect is SignalEffect.RESUMED
    again = await lab.claim()
    assert again.handle.kind is HandleKind.RESUMED
    await lab.engine.complete(again.handle)
    assert await lab.state(claimed.execution_id) is PublicState.COMPLETED


@told
async def test_scenario_4_three_subsystems(lab: Lab) -> None:
    """Each has its own address and its own token; the third resumes."""
    keys = ("billing", "stock", "mail")
    waiting = await suspended(lab, AllOf(tuple(Single(key) for key in keys)))
    assert len({each.token for each in waiting.outcome.waitpoints}) == 3
    async with lab.refuses(InvalidToken):
        await waiting.send(at="billing", token=waiting.at["mail"].token)
    effects = [await waiting.effect("done", at=key) for key in reversed(keys)]
    assert effects == [SignalEffect.APPENDED, SignalEffect.APPENDED, SignalEffect.RESUMED]


@told
async def test_scenario_6_race_of_providers_ends_in_a_quorum(lab: Lab) -> None:
    """An aggregator goes on at once if two providers answered before it asked."""
    quorum = Count(2, CountKind.DISTINCT_SOURCES, ("answers",))
    claimed = await lab.started()
    details = await pending(lab, claimed, "answers")
    await early(lab, claimed, details, "answer", "north")
    waiting = await suspended(
        lab, quorum, claimed, waitpoints=(UsePending(details.waitpoint_id, "answers"),)
    )
    assert await waiting.effect("answer", "north") is SignalEffect.DUPLICATE
    assert await waiting.effect("answer", "south") is SignalEffect.RESUMED
    seen = await lab.engine.observe_signals((await lab.claim()).handle)
    assert [each.source_identity for each in seen] == ["north", "south"]


@told
async def test_scenario_7_a_reclaim_is_no_resume(lab: Lab) -> None:
    """A lost lease makes a new attempt of kind reclaimed; its waits are not the old ones."""
    await lab.configure(reclaim_grace_ms=60_000)
    claimed = await lab.started()
    await pending(lab, claimed, expires_in_ms=10 * TTL_MS)
    await lab.after(TTL_MS)
    who: dict[str, Any] = {"worker_id": "w2", "worker_instance_id": "w2-1"}
    await lab.engine.issue_reclaim_grant(execution_id=claimed.execution_id, **who)
    taken = await lab.engine.reclaim_execution(execution_id=claimed.execution_id, **who)
    assert taken.handle.kind is HandleKind.RECLAIMED  # type: ignore[union-attr]
    assert taken.attempt_index == 1  # type: ignore[union-attr]
    assert await lab.engine.observe_signals(taken.handle) == ()  # type: ignore[union-attr]
    kinds = [event.event_type for event in await lab.lease_events(claimed.execution_id)]
    assert kinds == [LeaseEventType.ACQUIRED, LeaseEventType.EXPIRED, LeaseEventType.RECLAIMED]
