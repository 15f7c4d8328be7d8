"""Invariants of suspension that no single operation shows, each by its name."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import pytest

from flowfabric.api.waits import Fresh, SuspendRequest
from flowfabric.assemble import open_engine
from flowfabric.errors import (
    AlreadySuspended,
    ClaimGrantExpired,
    ExecutionNotLeaseable,
    ExecutionNotSuspended,
    InvalidClaimGrant,
    InvalidInput,
    InvalidPayload,
    InvalidToken,
    LeaseConflict,
    NotAResumedExecution,
    PayloadTooLarge,
    SignalLimitExceeded,
    StaleLease,
    UseClaimResumedExecution,
    WaitpointClosed,
)
from flowfabric.model.event import LeaseEventType
from flowfabric.model.handle import HandleKind
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.results import GrantIssued
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import (
    Count,
    CountKind,
    ResumeCause,
    SignalDuplicate,
    SignalEffect,
    Single,
)
from tests.support.lab import LANE, Lab
from tests.support.waits import CONDITIONS, assert_sound, episode, suspended, told, waitpoints

FORM = '{"type":"integer"}'


@told
async def test_invariant_1_one_open_suspension_whoever_ends_it(lab: Lab) -> None:
    """Many ends at once: one wins, the others find nothing to end."""
    for _ in range(5):
        waiting = await suspended(lab, timeout_at=lab.now, timeout_behavior="auto_resume")
        engine, key = lab.engine, waiting.execution_id
        done = await asyncio.gather(
            waiting.send(),
            engine.resume_execution(execution_id=key, actor="ann"),
            engine.expire_suspension(execution_id=key),
            engine.resume_execution(execution_id=key, actor="bob"),
            waiting.send(),
            return_exceptions=True,
        )
        for each in done:
            if isinstance(each, BaseException):
                assert isinstance(each, WaitpointClosed | ExecutionNotSuspended), each
        ended = [
            not isinstance(done[0], BaseException),
            not isinstance(done[1], BaseException),
            getattr(done[2], "what", "unchanged") != "unchanged",
            not isinstance(done[3], BaseException),
            not isinstance(done[4], BaseException),
        ]
        assert sum(ended) == 1
        assert await lab.state(key) is PublicState.WAITING
        assert len((await engine.list_suspensions(execution_id=key)).items) == 1
        await engine.complete((await lab.claim()).handle)


@pytest.mark.parametrize("cause", ["signal", "operator", "timeout", "cancel", "deadline"])
@told
async def test_invariant_2_ending_is_total(lab: Lab, cause: str) -> None:
    """One routine for every cause: episode, bindings, timers; kept with cause, actor, time."""
    waiting = await suspended(
        lab,
        Count(1, CountKind.DISTINCT_SIGNALS, ("a", "b")),
        timeout_at=lab.now + 1000,
        timeout_behavior="auto_resume",
        created={"execution_deadline_at": lab.now + (900 if cause == "deadline" else 90_000)},
    )
    key = waiting.execution_id
    match cause:
        case "signal":
            await waiting.send(at="b", by="carl")
        case "operator":
            await lab.engine.resume_execution(execution_id=key, actor="ann")
        case "timeout":
            await lab.after(1000)
        case "cancel":
            await lab.cancel(key)
        case _:
            await lab.after(900)
    row = await episode(lab, key)
    wanted = {
        "signal": (ResumeCause.SIGNAL, "user:carl"),
        "operator": (ResumeCause.OPERATOR, "ann"),
        "timeout": (ResumeCause.TIMEOUT, "system"),
        "cancel": (ResumeCause.CANCELLED, row.actor),
        "deadline": (ResumeCause.EXPIRED, "system"),
    }
    assert (row.cause, row.actor) == wanted[cause]
    assert row.actor
    assert row.closed_at == lab.now
    record = await lab.record(key)
    assert (record.suspension_id, record.blocked_until) == (None, None)
    assert all(each.closed_at == lab.now for each in await waitpoints(lab, key))
    if record.is_terminal:
        assert await lab.after(100_000) == 0


@told
async def test_invariant_4_the_order_of_checks_on_delivery(lab: Lab) -> None:
    """shape → authenticate → idempotency → state → cap → payload type; each hides the next."""
    rules = ExecutionPolicy(max_signals_per_execution=1)
    waiting = await suspended(
        lab,
        Count(2, CountKind.DISTINCT_SIGNALS, ("a",)),
        created={"policy": rules},
        waitpoints=(Fresh("a", FORM),),
    )
    bad = "k1:" + "0" * 64
    await waiting.send(payload=b"1", idempotency_key="k")
    async with lab.refuses(PayloadTooLarge):
        await waiting.send(token=bad, payload=b"x" * 65_537)
    async with lab.refuses(InvalidToken):
        await waiting.send(token=bad, idempotency_key="k", payload=b"no")
    async with lab.unchanged():
        assert isinstance(await waiting.send(idempotency_key="k", payload=b"no"), SignalDuplicate)
    async with lab.refuses(SignalLimitExceeded):
        await waiting.send(payload=b"no")
    free = await suspended(lab, Single("a"), waitpoints=(Fresh("a", FORM),))
    async with lab.refuses(InvalidPayload):
        await free.send(payload=b"no")
    await lab.engine.resume_execution(execution_id=waiting.execution_id)
    async with lab.unchanged():
        assert isinstance(await waiting.send(idempotency_key="k"), SignalDuplicate)
    async with lab.refuses(WaitpointClosed):
        await waiting.send(payload=b"no")


@pytest.mark.parametrize("kind", CONDITIONS)
@told
async def test_invariant_5_one_resume_in_any_order_with_any_repetition(lab: Lab, kind: str) -> None:
    """The answer depends on which signals there are, not on how they came."""
    condition, sent = CONDITIONS[kind]
    for order in set(permutations(sent)):
        waiting = await suspended(lab, condition)
        for key, name, by in order[:-1]:
            assert await waiting.effect(name, by, key) is SignalEffect.APPENDED
            if kind != "signals":  # there every signal is another
                assert await waiting.effect(name, by, key) is SignalEffect.DUPLICATE
        key, name, by = order[-1]
        assert await waiting.effect(name, by, key) is SignalEffect.RESUMED
        async with lab.refuses(WaitpointClosed):
            await waiting.send(name, by, key)
        await lab.engine.complete((await lab.claim()).handle)


@told
async def test_invariant_13_every_change_writes_its_event(lab: Lab) -> None:
    """Suspend, signal, escalate, timeout and operator: each leaves its line, in order."""
    waiting = await suspended(lab, timeout_at=lab.now + 1, timeout_behavior="escalate")
    await lab.after(1)
    await waiting.send("no")
    await waiting.send()
    await suspended(
        lab,
        claimed=await lab.claim(),
        timeout_at=lab.now + 1,
        timeout_behavior="auto_resume_with_timeout_signal",
    )
    await lab.after(1)
    await suspended(lab, claimed=await lab.claim())
    await lab.engine.resume_execution(execution_id=waiting.execution_id, actor="ann")
    leases = [(e.event_type, e.reason) for e in await lab.lease_events(waiting.execution_id)]
    released = (LeaseEventType.RELEASED, "suspend")
    assert leases == [
        (LeaseEventType.ACQUIRED, "claim"),
        released,
        (LeaseEventType.ACQUIRED, "claim_resumed"),
        released,
        (LeaseEventType.ACQUIRED, "claim_resumed"),
        released,
    ]
    told_of = [
        (event.event_type.value, event.actor)
        for event in await lab.operator_events(waiting.execution_id)
    ]
    assert told_of == [("escalated", ""), ("resumed", ""), ("resumed", "ann")]
    sent = [(e.signal_name, e.effect) for e in (await lab.dump())["signal_events"]]
    assert sent == [
        ("no", "signal_ignored_matcher_failed"),
        ("go", "resume_condition_satisfied"),
        ("timeout", "resume_condition_satisfied"),
    ]


def test_invariant_14_wake_ups_carry_no_truth(durable_lab: Lab) -> None:
    """An engine that heard of nothing finds what a signal through another made ready."""
    lab = durable_lab

    async def check() -> None:
        waiting = await suspended(lab)
        late = open_engine(lab.url, config=lab.config, clock=lab.clock)
        await waiting.send()
        await late.start()
        found = await late.claim(lanes=(LANE,), worker_id="w2", worker_instance_id="w2-1")
        assert [each.handle.kind for each in found] == [HandleKind.RESUMED]
        again = await late.suspend(
            found[0].handle,
            SuspendRequest(resume_condition=Single("a"), timeout_at=lab.now + 10),
        )
        assert again.waitpoints
        lab.clock.advance(10)
        assert await lab.engine.move_due() == 1
        assert await lab.state(waiting.execution_id) is PublicState.FAILED
        await late.close()
        await assert_sound(lab)

    lab.run(check())


# --- claiming what was resumed -----------------------------------------------------------------


@told
async def test_d23_a_resumed_claim_needs_its_grant_and_keeps_the_attempt(lab: Lab) -> None:
    """The grant is required and used up; phase and attempt state are checked."""
    waiting = await suspended(lab)
    engine, key = lab.engine, waiting.execution_id
    who: dict[str, Any] = {"worker_id": "w2", "worker_instance_id": "w2-1"}
    async with lab.refuses(ExecutionNotLeaseable):
        await engine.claim_resumed_execution(execution_id=key, **who)
    await waiting.send()
    async with lab.refuses(InvalidClaimGrant):
        await engine.claim_resumed_execution(execution_id=key, **who)
    grant = await engine.claim_for_worker(lane_id=LANE, **who)
    assert isinstance(grant, GrantIssued)
    async with lab.refuses(UseClaimResumedExecution):
        await engine.claim_execution(execution_id=key, **who)
    async with lab.refuses(InvalidClaimGrant):
        await engine.claim_resumed_execution(
            execution_id=key, worker_id="w3", worker_instance_id="w3-1"
        )
    taken = await engine.claim_from_resume_grant(grant=grant, **who)
    assert taken.handle.kind is HandleKind.RESUMED
    assert (taken.attempt_id, taken.attempt_index) == (waiting.claimed.attempt_id, 0)
    with pytest.raises((ExecutionNotLeaseable, InvalidClaimGrant, LeaseConflict)):
        await engine.claim_from_resume_grant(grant=grant, **who)
    (seen,) = await engine.observe_signals(taken.handle)
    assert seen.signal_name == "go"


@told
async def test_d23_a_grant_that_is_over_gives_nothing(lab: Lab) -> None:
    waiting = await suspended(lab)
    await waiting.send()
    who: dict[str, Any] = {"worker_id": "w2", "worker_instance_id": "w2-1"}
    grant = await lab.engine.claim_for_worker(lane_id=LANE, grant_ttl_ms=100, **who)
    assert isinstance(grant, GrantIssued)
    lab.clock.advance(101)
    with pytest.raises((ClaimGrantExpired, InvalidClaimGrant)):
        await lab.engine.claim_from_resume_grant(grant=grant, **who)
    assert (await lab.claim("w3")).handle.kind is HandleKind.RESUMED


@told
async def test_d24_an_ordinary_claim_says_that_it_resumed(lab: Lab) -> None:
    """Claims are routed by attempt state; a fresh one has no signals."""
    waiting = await suspended(lab)
    await waiting.send()
    fresh_id = await lab.create()
    found = {each.execution_id: each for each in await lab.claims(limit=2)}
    resumed, fresh = found[waiting.execution_id], found[fresh_id]
    assert (resumed.handle.kind, fresh.handle.kind) == (HandleKind.RESUMED, HandleKind.FRESH)
    assert await lab.engine.observe_signals(fresh.handle) == ()
    assert await lab.engine.resume_info(fresh.handle) is None
    another = await lab.create()
    who: dict[str, Any] = {"worker_id": "w2", "worker_instance_id": "w2-1"}
    await lab.engine.issue_claim_grant(execution_id=another, **who)
    async with lab.refuses(NotAResumedExecution):
        await lab.engine.claim_resumed_execution(execution_id=another, **who)


@told
async def test_d25_a_fence_mismatch_is_told_as_one(lab: Lab) -> None:
    """A domain refusal is not retried into an exhausted retry."""
    waiting = await suspended(lab)
    await waiting.send()
    again = await lab.claim()
    request = SuspendRequest(resume_condition=Single("a"))
    async with lab.refuses(StaleLease):
        await lab.engine.suspend(waiting.claimed.handle, request)
    await lab.engine.suspend(again.handle, request)
    async with lab.refuses(AlreadySuspended):
        await lab.engine.suspend(again.handle, request)


@told
async def test_d32_a_quorum_of_tokens_cannot_be_forged_by_one_holder(lab: Lab) -> None:
    """One address per approver, and addresses are counted: a name alone is worth nothing."""
    approvers = ("ann", "bob", "carl")
    waiting = await suspended(lab, Count(2, CountKind.DISTINCT_WAITPOINTS, approvers))
    for name in approvers:  # ann's token, everybody's name
        effect = await waiting.effect(by=name, at="ann")
        assert effect in (SignalEffect.APPENDED, SignalEffect.DUPLICATE)
    assert await lab.state(waiting.execution_id) is PublicState.SUSPENDED
    async with lab.refuses(InvalidInput, "source_type"):
        await waiting.send(at="carl", source_type="operator")
    assert await waiting.effect(at="carl") is SignalEffect.RESUMED


@told
async def test_d40_what_is_counted_is_true(lab: Lab) -> None:
    """Progress, counters and times are kept up with every signal."""
    waiting = await suspended(lab, Count(3, CountKind.DISTINCT_SOURCES, ("a",), "go"))
    lab.clock.advance(5)
    await waiting.send(by="x")
    await waiting.send("no")
    row = await episode(lab, waiting.execution_id)
    assert [each.source_identity for each in row.progress] == ["x"]
    assert row.last_signal_at == lab.now
    (address,) = await waitpoints(lab, waiting.execution_id)
    assert (address.signal_count, address.matched_signal_count) == (2, 1)
