"""Suspend: the owner lets go and waits; nothing of it is half done."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from flowfabric.api.waits import Fresh, SuspendRequest, UsePending
from flowfabric.errors import (
    AlreadySuspended,
    ExecutionNotActive,
    FenceRequired,
    InvalidWaitpointKey,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    PartialFence,
    PendingWaitpointExpired,
    StaleLease,
    SuspendConflict,
    WaitpointClosed,
    WaitpointNotPending,
)
from flowfabric.model.event import LeaseEventType
from flowfabric.model.execution import Fence
from flowfabric.model.handle import HandleKind
from flowfabric.model.policy import ExecutionPolicy, SuspensionPolicy
from flowfabric.model.record import replace
from flowfabric.model.state import (
    AttemptState,
    BlockingReason,
    EligibilityState,
    LifecyclePhase,
    OwnershipState,
    PublicState,
    TerminalOutcome,
)
from flowfabric.model.suspension import (
    AllOf,
    OperatorOnly,
    ReasonCode,
    RequestedBy,
    ResumeCause,
    SignalEffect,
    Single,
    Suspended,
    TimeoutOnly,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior
from tests.support.budgets import BUDGET, held, make_budget, reserve
from tests.support.builders import policy, retries
from tests.support.gates import assert_counters, many, places, quota
from tests.support.lab import TTL_MS, Lab
from tests.support.waits import (
    early,
    episode,
    met_early,
    pending,
    signal_to,
    suspended,
    told,
    waitpoints,
)

GO = SuspendRequest(resume_condition=Single("a", "go"))


@told
async def test_a_fresh_suspend_answers_with_a_token_and_holds_no_lease(lab: Lab) -> None:
    """Token, index membership, lease absent, blocking reason mapped."""
    waiting = await suspended(lab, reason_code="waiting_for_approval", timeout_at=lab.now + 1000)
    snapshot = await lab.describe(waiting.execution_id)
    state = snapshot.state
    assert state.lifecycle_phase is LifecyclePhase.SUSPENDED
    assert state.ownership_state is OwnershipState.UNOWNED
    assert state.eligibility_state is EligibilityState.NOT_APPLICABLE
    assert state.terminal_outcome is TerminalOutcome.NONE
    assert state.attempt_state is AttemptState.ATTEMPT_INTERRUPTED
    assert snapshot.public_state is PublicState.SUSPENDED
    assert snapshot.blocking_reason is BlockingReason.WAITING_FOR_APPROVAL
    assert snapshot.current_lease is None
    (details,) = waiting.outcome.waitpoints
    assert details.token.reveal().startswith("k1:")
    assert len(details.token.reveal()) == 3 + 64
    (listed,) = (await lab.engine.list_suspended()).items
    assert (listed.execution_id, listed.suspension_id) == (
        waiting.execution_id,
        waiting.outcome.suspension_id,
    )
    assert (listed.suspended_at, listed.timeout_at) == (lab.now, lab.now + 1000)
    counts = await lab.engine.count_executions()
    assert counts["default"] == {"suspended": 1}
    assert await lab.claims() == []


@pytest.mark.parametrize(
    ("reason", "seen"),
    [
        (ReasonCode.WAITING_FOR_SIGNAL, BlockingReason.WAITING_FOR_SIGNAL),
        (ReasonCode.WAITING_FOR_APPROVAL, BlockingReason.WAITING_FOR_APPROVAL),
        (ReasonCode.WAITING_FOR_CALLBACK, BlockingReason.WAITING_FOR_CALLBACK),
        (ReasonCode.WAITING_FOR_TOOL_RESULT, BlockingReason.WAITING_FOR_TOOL_RESULT),
        (ReasonCode.WAITING_FOR_OPERATOR_REVIEW, BlockingReason.PAUSED_BY_OPERATOR),
        (ReasonCode.MANUAL_PAUSE, BlockingReason.PAUSED_BY_OPERATOR),
        (ReasonCode.PAUSED_BY_POLICY, BlockingReason.PAUSED_BY_POLICY),
        (ReasonCode.PAUSED_BY_BUDGET, BlockingReason.WAITING_FOR_BUDGET),
        (ReasonCode.STEP_BOUNDARY, BlockingReason.WAITING_FOR_SIGNAL),
    ],
)
def test_every_reason_has_its_blocking_reason(reason: ReasonCode, seen: BlockingReason) -> None:
    assert reason.blocking_reason is seen


@told
async def test_suspend_is_atomic_with_the_release_of_the_lease(lab: Lab) -> None:
    """After `Suspended` the old handle can do nothing, and says so."""
    waiting = await suspended(lab)
    handle, engine = waiting.claimed.handle, lab.engine
    async with lab.unchanged():
        with pytest.raises(AlreadySuspended, match=waiting.outcome.suspension_id):
            await engine.suspend(handle, GO)
        for call in (
            engine.complete(handle),
            engine.fail(handle, reason="x"),
            engine.delay(handle, delay_until=lab.now + 5),
            engine.renew(handle),
            engine.create_waitpoint(handle, waitpoint_key="b", expires_in_ms=1000),
        ):
            with pytest.raises((ExecutionNotActive, StaleLease)):
                await call
    released = (await lab.lease_events(waiting.execution_id))[-1]
    assert (released.event_type, released.reason) == (LeaseEventType.RELEASED, "suspend")
    await lab.after(10 * TTL_MS)
    assert await lab.state(waiting.execution_id) is PublicState.SUSPENDED


@told
async def test_what_early_signals_met_leaves_the_lease_and_answers_the_signals(lab: Lab) -> None:
    """AlreadyMet with the phase still active and leased."""
    claimed = await lab.started()
    details = await pending(lab, claimed)
    await early(lab, claimed, details, "go", "bob")
    met = await met_early(
        lab,
        claimed,
        resume_condition=Single("a", "go"),
        waitpoints=(UsePending(details.waitpoint_id, "a"),),
    )
    assert [(each.signal_name, each.source_identity) for each in met.signals] == [("go", "bob")]
    snapshot = await lab.describe(claimed.execution_id)
    assert snapshot.public_state is PublicState.ACTIVE
    assert snapshot.current_lease is not None
    assert snapshot.current_lease.lease_epoch == claimed.lease_epoch
    assert await lab.engine.observe_signals(claimed.handle) == met.signals
    kept = await episode(lab, claimed.execution_id)
    assert (kept.cause, kept.close_reason) == (ResumeCause.SIGNAL, "resumed")
    assert (await lab.engine.list_suspended()).items == ()
    await lab.engine.renew(claimed.handle)
    await lab.engine.complete(claimed.handle)


@told
async def test_a_repeated_call_is_answered_again_to_its_owner_only(lab: Lab) -> None:
    """The same ids and tokens; not for a stranger; nothing changes."""
    both = AllOf((Single("a"), Single("b")))
    waiting = await suspended(lab, both, idempotency_key="step-1")
    request = SuspendRequest(resume_condition=both, idempotency_key="step-1")
    handle = waiting.claimed.handle
    async with lab.unchanged():
        assert await lab.engine.suspend(handle, request) == waiting.outcome
        again = await lab.engine.suspend_by_triple(
            execution_id=waiting.execution_id, fence=handle.fence, request=request
        )
        assert again == waiting.outcome
        stranger = replace(handle, lease_id="0" * 36)
        with pytest.raises((StaleLease, ExecutionNotActive, AlreadySuspended)):
            await lab.engine.suspend(stranger, request)
        with pytest.raises(SuspendConflict, match="idempotency_key"):
            await lab.engine.suspend(handle, replace(request, resume_delay_ms=5))
    other = await suspended(lab, both, idempotency_key="step-1")
    assert other.outcome.suspension_id != waiting.outcome.suspension_id
    assert other.at["a"].token != waiting.at["a"].token


@told
async def test_a_repeated_call_that_was_met_at_once_is_answered_again(lab: Lab) -> None:
    """A caller that lost the first reply needs the signals too."""
    claimed = await lab.started()
    details = await pending(lab, claimed)
    await early(lab, claimed, details)
    request = SuspendRequest(
        resume_condition=Single("a"),
        waitpoints=(UsePending(details.waitpoint_id, "a"),),
        idempotency_key="k",
    )
    first = await lab.engine.suspend(claimed.handle, request)
    async with lab.unchanged():
        assert await lab.engine.suspend(claimed.handle, request) == first


@told
async def test_a_key_belongs_to_its_attempt_and_to_its_suspension(lab: Lab) -> None:
    """A dead suspension is told to its own lease only; a new attempt may use the key."""
    retried = {"policy": policy(retry_policy=retries(3, 0))}
    waiting = await suspended(lab, idempotency_key="k", created=retried)
    await waiting.send()
    resumed = await lab.claim()
    request = replace(GO, idempotency_key="k")
    async with lab.refuses(SuspendConflict, "idempotency_key"):
        await lab.engine.suspend(resumed.handle, request)
    async with lab.unchanged():
        assert await lab.engine.suspend(waiting.claimed.handle, request) == waiting.outcome
    stranger = replace(waiting.claimed.handle, lease_id="0" * 36)
    async with lab.refuses(StaleLease):
        await lab.engine.suspend(stranger, request)
    await lab.engine.fail(resumed.handle, reason="x")
    await lab.after(0)
    retry = await lab.claim()
    assert retry.attempt_index == 1
    second = await suspended(lab, claimed=retry, idempotency_key="k")
    assert second.outcome.suspension_id != waiting.outcome.suspension_id
    assert await second.effect() is SignalEffect.RESUMED


@told
async def test_a_key_is_forgotten_in_time(lab: Lab) -> None:
    """The table of keys does not grow for ever."""
    await suspended(lab, idempotency_key="k")
    assert len((await lab.dump())["ff_suspend_dedup"]) == 1
    await lab.after(7 * 86_400_000)
    assert (await lab.dump())["ff_suspend_dedup"] == []


@told
async def test_a_digest_is_what_older_versions_stored(lab: Lab) -> None:
    """A call that is repeated after an upgrade is known again: on a wire a waitpoint says its kind,
    in a digest it never did."""
    claimed = await lab.started()
    made = await pending(lab, claimed, key="b")
    request = SuspendRequest(
        resume_condition=AllOf((Single("a"), Single("b"))),
        waitpoints=(Fresh("a", "{}"), UsePending(made.waitpoint_id, "b")),
        idempotency_key="k",
    )
    await lab.engine.suspend(claimed.handle, request)
    (row,) = (await lab.dump())["ff_suspend_dedup"]
    text = (
        '{"resume_condition":{"kind":"all_of","members":[{"kind":"single","waitpoint_key":"a"},'
        '{"kind":"single","waitpoint_key":"b"}]},"waitpoints":[{"waitpoint_key":"a",'
        f'"payload_type":"{{}}"}},{{"waitpoint_id":"{made.waitpoint_id}","waitpoint_key":"b"}}],'
        '"idempotency_key":"k"}'
    )
    assert row.digest == hashlib.sha256(text.encode()).hexdigest()


@told
async def test_suspend_by_triple_needs_the_whole_fence(lab: Lab) -> None:
    """The same validation, the full fence, no operator's bypass."""
    claimed = await lab.started()
    key, good = claimed.execution_id, claimed.handle.fence
    engine = lab.engine
    async with lab.refuses(FenceRequired, "fence"):
        await lab.direct.suspend_by_triple(execution_id=key, fence=None, request=GO)  # type: ignore[arg-type]
    async with lab.refuses(PartialFence):
        broken = Fence("", good.lease_epoch, good.attempt_id)
        await engine.suspend_by_triple(execution_id=key, fence=broken, request=GO)
    for wrong in (
        replace(good, lease_id="0" * 36),
        replace(good, lease_epoch=good.lease_epoch + 1),
        replace(good, attempt_id="0" * 36),
    ):
        async with lab.refuses(StaleLease):
            await engine.suspend_by_triple(execution_id=key, fence=wrong, request=GO)
    other = await lab.create()
    async with lab.refuses(ExecutionNotActive):
        await engine.suspend_by_triple(execution_id=other, fence=good, request=GO)
    done = await engine.suspend_by_triple(execution_id=key, fence=good, request=GO)
    assert isinstance(done, Suspended)


@told
async def test_only_the_live_owner_suspends_or_hands_out_tokens(lab: Lab) -> None:
    """Expired, revoked, superseded and finished owners are refused."""
    engine = lab.engine

    async def refused(claimed_handle: object, error: type[Exception]) -> None:
        async with lab.unchanged():
            with pytest.raises(error):
                await engine.suspend(claimed_handle, GO)  # type: ignore[arg-type]
            with pytest.raises(error):
                await engine.create_waitpoint(
                    claimed_handle,  # type: ignore[arg-type]
                    waitpoint_key="a",
                    expires_in_ms=1000,
                )

    late = await lab.started()
    lab.clock.set(late.lease_expires_at)
    await refused(late.handle, LeaseExpired)
    await lab.engine.move_due()
    newer = await lab.claim("w2")
    await refused(late.handle, StaleLease)
    await engine.revoke_lease(execution_id=newer.execution_id, reason="x")
    await refused(newer.handle, LeaseRevoked)
    await lab.cancel(newer.execution_id)
    await refused(newer.handle, ExecutionNotActive)
    gone = replace(newer.handle, execution_id=newer.execution_id[:-12] + "0" * 12)
    await refused(gone, NotFound)


@told
async def test_a_suspension_without_waitpoints_makes_one_for_every_key(lab: Lab) -> None:
    waiting = await suspended(lab, AllOf((Single("b"), Single("a"), Single("b", "two"))))
    assert [each.waitpoint_key for each in waiting.outcome.waitpoints] == ["b", "a"]
    for condition in (OperatorOnly(), TimeoutOnly()):
        lone = await suspended(lab, condition, timeout_at=lab.now + 5)
        assert [each.waitpoint_key for each in lone.outcome.waitpoints] == ["wait"]


@told
async def test_a_pending_waitpoint_must_be_the_owners_own_and_fit(lab: Lab) -> None:
    """Everything is checked before anything is written."""
    first, second = await lab.started("w1"), await lab.started("w2")
    foreign = await pending(lab, second)
    mine = await pending(lab, first)
    closed = await pending(lab, first)
    await lab.engine.close_waitpoint(
        execution_id=first.execution_id, waitpoint_id=closed.waitpoint_id
    )

    async def use(waitpoint_id: str, key: str = "a") -> object:
        bindings = (Fresh("b"), UsePending(waitpoint_id, key))
        both = AllOf((Single("b"), Single(key)))
        return await lab.engine.suspend(
            first.handle, SuspendRequest(resume_condition=both, waitpoints=bindings)
        )

    async with lab.refuses(NotFound, "waitpoint"):
        await use(foreign.waitpoint_id)
    async with lab.refuses(NotFound, "waitpoint"):
        await use("0" * 36)
    async with lab.refuses(InvalidWaitpointKey, "another key"):
        await use(mine.waitpoint_id, "other")
    async with lab.refuses(WaitpointNotPending, "closed"):
        await use(closed.waitpoint_id)
    lab.clock.advance(60_000 - TTL_MS // 2)
    late = await lab.started("w3")
    short = await pending(lab, late, expires_in_ms=10)
    lab.clock.advance(10)
    async with lab.refuses(PendingWaitpointExpired):
        await suspended(lab, Single("a"), late, waitpoints=(UsePending(short.waitpoint_id, "a"),))


@pytest.mark.parametrize("how", ["failed", "lost", "reclaimed", "timed out"])
@told
async def test_a_waitpoint_ends_with_the_attempt_that_made_it(lab: Lab, how: str) -> None:
    """No attempt will wait on it, so it accepts no signal and cannot be used."""
    await lab.configure(reclaim_grace_ms=60_000 if how == "reclaimed" else 0)
    most = TTL_MS // 2 if how == "timed out" else None
    rules = policy(retry_policy=retries(3, 0), attempt_timeout_ms=most)
    claimed = await lab.started(policy=rules)
    old = await pending(lab, claimed, expires_in_ms=10 * TTL_MS)
    key, who = claimed.execution_id, {"worker_id": "w2", "worker_instance_id": "w2-1"}
    if how == "failed":
        await lab.engine.fail(claimed.handle, reason="x")
    elif how == "timed out":
        await lab.after(TTL_MS // 2)
    else:
        await lab.after(TTL_MS)
    if how == "reclaimed":
        await lab.engine.issue_reclaim_grant(execution_id=key, **who)  # type: ignore[arg-type]
        newer: Any = await lab.engine.reclaim_execution(execution_id=key, **who)  # type: ignore[arg-type]
    else:
        async with lab.refuses(WaitpointClosed, "attempt ended"):
            await lab.engine.deliver_signal(signal_to(key, old))
        newer = await lab.claim("w2")
    assert newer.attempt_index == 1
    async with lab.refuses(WaitpointClosed, "attempt ended"):
        await lab.engine.deliver_signal(signal_to(key, old))
    async with lab.refuses(WaitpointNotPending, "closed"):
        await suspended(lab, Single("a"), newer, waitpoints=(UsePending(old.waitpoint_id, "a"),))


@told
async def test_a_token_keeps_working_when_its_waitpoint_is_activated(lab: Lab) -> None:
    """The token is not made anew."""
    claimed = await lab.started()
    details = await pending(lab, claimed)
    waiting = await suspended(
        lab, Single("a"), claimed, waitpoints=(UsePending(details.waitpoint_id, "a"),)
    )
    assert waiting.outcome.waitpoints == (details,)
    (row,) = await waitpoints(lab, claimed.execution_id)
    assert (row.state, row.due_at) == (WaitpointState.ACTIVE, None)
    answer = await lab.engine.deliver_signal(signal_to(claimed.execution_id, details))
    assert answer.effect is SignalEffect.RESUMED


@told
async def test_everything_asked_for_is_kept_with_the_episode(lab: Lab) -> None:
    """A full record of why, until when and by whose request."""
    waiting = await suspended(
        lab,
        reason_code="waiting_for_tool_result",
        requested_by="policy",
        timeout_at=lab.now + 50,
        timeout_behavior="cancel",
        resume_delay_ms=7,
        continuation_metadata_pointer="s3://state/1",
    )
    row = await episode(lab, waiting.execution_id)
    assert row.reason_code is ReasonCode.WAITING_FOR_TOOL_RESULT
    assert row.requested_by is RequestedBy.POLICY
    assert row.timeout_behavior is TimeoutBehavior.CANCEL
    assert (row.timeout_at, row.resume_delay_ms) == (lab.now + 50, 7)
    assert row.continuation_metadata_pointer == "s3://state/1"
    await lab.engine.resume_execution(execution_id=waiting.execution_id, actor="ann")
    await lab.after(7)
    info = await lab.engine.resume_info((await lab.claim()).handle)
    assert info is not None
    assert (info.cause, info.actor) == (ResumeCause.OPERATOR, "ann")
    assert info.continuation_metadata_pointer == "s3://state/1"


@told
async def test_the_policy_gives_the_timeout_a_suspension_names_not(lab: Lab) -> None:
    """suspension_policy is applied."""
    rules = ExecutionPolicy(
        suspension_policy=SuspensionPolicy(
            default_timeout_ms=100, timeout_behavior=TimeoutBehavior.CANCEL
        )
    )
    usual = await suspended(lab, created={"policy": rules})
    own = await suspended(lab, created={"policy": rules}, timeout_at=lab.now + 200)
    await lab.after(100)
    assert await lab.state(usual.execution_id) is PublicState.CANCELLED
    assert await lab.state(own.execution_id) is PublicState.SUSPENDED
    await lab.after(100)
    assert await lab.state(own.execution_id) is PublicState.FAILED


@told
async def test_the_quota_place_comes_back_at_suspend(lab: Lab) -> None:
    """A suspended execution runs nowhere, so it takes no place; resumed it waits for one."""
    await quota(lab, cap=1)
    first, second = await many(lab, 2)
    claimed = await lab.claim()
    assert claimed.execution_id == first
    assert await lab.claims("w2") == []
    waiting = await suspended(lab, claimed=claimed)
    assert await places(lab) == set()
    other = await lab.claim("w2")
    assert other.execution_id == second
    assert await waiting.effect() is SignalEffect.RESUMED
    assert await lab.claims() == []
    await lab.engine.complete(other.handle)
    again = await lab.claim()
    assert (again.execution_id, again.handle.kind) == (first, HandleKind.RESUMED)
    await assert_counters(lab)


@told
async def test_the_budget_hold_comes_back_at_suspend(lab: Lab) -> None:
    """A hold ends with the lease, also when a waitpoint was handed out before."""
    await make_budget(lab, hard={"tokens": 10})
    for use_pending in (False, True):
        claimed = await lab.started(budget_ids=[BUDGET])
        await reserve(lab, claimed, {"tokens": 6})
        if use_pending:
            await pending(lab, claimed)
        assert await held(lab) == {"tokens": 6}
        await suspended(lab, claimed=claimed)
        assert not any((await held(lab)).values())


@told
async def test_a_waitpoint_that_lapses_takes_no_hold_with_it(lab: Lab) -> None:
    """What an execution holds is counted apart from what it hands out."""
    await make_budget(lab, hard={"tokens": 10})
    claimed = await lab.started(budget_ids=[BUDGET])
    await pending(lab, claimed, "never", expires_in_ms=100)
    waiting = await suspended(lab, claimed=claimed)
    await waiting.send()
    again = await lab.claim()
    await reserve(lab, again, {"tokens": 6})
    await lab.after(100)
    assert await held(lab) == {"tokens": 6}
    await lab.engine.complete(again.handle)
    assert not any((await held(lab)).values())
