"""How a suspension ends: by timeout, operator, cancel, deadline; always wholly, always once."""

from __future__ import annotations

import pytest

from flowfabric.api.waits import SuspendRequest
from flowfabric.errors import (
    ExecutionNotSuspended,
    InvalidToken,
    NotFound,
    TargetNotSignalable,
    WaitpointClosed,
)
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import OperatorEventType
from flowfabric.model.handle import HandleKind
from flowfabric.model.state import BlockingReason, PublicState, TerminalOutcome
from flowfabric.model.suspension import (
    AllOf,
    OperatorOnly,
    ReasonCode,
    ResumeCause,
    SignalEffect,
    Single,
    TimeoutOnly,
    WaitpointState,
)
from tests.support.builders import policy
from tests.support.lab import TTL_MS, Lab
from tests.support.waits import (
    Waiting,
    episode,
    pending,
    signals,
    suspended,
    told,
    waitpoints,
)

BOTH = AllOf((Single("a", "go"), Single("b", "go")))


async def half(lab: Lab, **request: object) -> Waiting:
    """A suspension that has seen one of the two signals it waits for."""
    waiting = await suspended(lab, BOTH, **request)  # type: ignore[arg-type]
    assert await waiting.effect(at="a") is SignalEffect.APPENDED
    return waiting


async def is_over(lab: Lab, waiting: Waiting, cause: ResumeCause, reason: str) -> None:
    """The episode and all its waitpoints are closed, for one reason."""
    row = await episode(lab, waiting.execution_id)
    assert (row.cause, row.close_reason, row.closed_at) == (cause, reason, lab.now)
    found = await waitpoints(lab, waiting.execution_id)
    assert {each.state for each in found} == {WaitpointState.CLOSED}
    assert {each.close_reason for each in found} == {reason}
    assert (await lab.engine.list_suspended()).items == ()
    page = await lab.engine.list_pending_waitpoints(execution_id=waiting.execution_id)
    assert page.items == ()


# --- timeouts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behavior", "state", "outcome", "attempt"),
    [
        ("fail", PublicState.FAILED, TerminalOutcome.FAILED, AttemptOutcome.ENDED_FAILURE),
        (
            "cancel",
            PublicState.CANCELLED,
            TerminalOutcome.CANCELLED,
            AttemptOutcome.ENDED_CANCELLED,
        ),
        ("expire", PublicState.EXPIRED, TerminalOutcome.EXPIRED, AttemptOutcome.ENDED_FAILURE),
    ],
)
@told
async def test_a_timeout_that_ends_the_execution(
    lab: Lab,
    behavior: str,
    state: PublicState,
    outcome: TerminalOutcome,
    attempt: AttemptOutcome,
) -> None:
    """On every store, each with its own outcome, told once."""
    waiting = await half(lab, timeout_at=lab.now + 1000, timeout_behavior=behavior)
    await lab.after(999)
    assert await lab.state(waiting.execution_id) is PublicState.SUSPENDED
    await lab.after(1)
    snapshot = await lab.describe(waiting.execution_id)
    assert (snapshot.public_state, snapshot.state.terminal_outcome) == (state, outcome)
    reason = snapshot.failure_reason or snapshot.cancellation_reason
    assert reason == f"suspension_timeout:{behavior}"
    await is_over(lab, waiting, ResumeCause.TIMEOUT, f"timed_out_{behavior}")
    (ended,) = (await lab.engine.list_attempts(execution_id=waiting.execution_id)).items
    assert ended.outcome == attempt.value
    assert [event.outcome for event in await lab.completions(waiting.execution_id)] == [outcome]
    async with lab.refuses(TargetNotSignalable):
        await waiting.send(at="b")


@pytest.mark.parametrize("behavior", ["auto_resume", "auto_resume_with_timeout_signal"])
@told
async def test_a_timeout_that_resumes(lab: Lab, behavior: str) -> None:
    """A worker can tell a timeout from a fresh start."""
    waiting = await half(lab, timeout_at=lab.now + 1000, timeout_behavior=behavior)
    await lab.after(1000)
    await is_over(lab, waiting, ResumeCause.TIMEOUT, "timed_out_auto_resume")
    again = await lab.claim()
    assert again.handle.kind is HandleKind.RESUMED
    assert again.attempt_id == waiting.claimed.attempt_id
    info = await lab.engine.resume_info(again.handle)
    assert info is not None
    assert (info.cause, info.actor) == (ResumeCause.TIMEOUT, "system")
    names = [(each.signal_name, each.source_type) for each in info.signals]
    wanted = [("go", "user")]
    if behavior == "auto_resume_with_timeout_signal":
        wanted.append(("timeout", "system"))
    assert names == wanted
    observed = [each.signal_name for each in await lab.engine.observe_signals(again.handle)]
    assert observed == [name for name, _ in wanted[1:]]
    async with lab.refuses(WaitpointClosed):
        await waiting.send(at="b")


@told
async def test_an_escalation_waits_on_for_an_operator_or_its_signals(lab: Lab) -> None:
    """It stays suspended, its timeout is spent, signals still resume it."""
    for by_signal in (True, False):
        waiting = await half(lab, timeout_at=lab.now + 10, timeout_behavior="escalate")
        await lab.after(10)
        snapshot = await lab.describe(waiting.execution_id)
        assert snapshot.public_state is PublicState.SUSPENDED
        assert snapshot.blocking_reason is BlockingReason.PAUSED_BY_OPERATOR
        assert snapshot.blocking_detail == f"suspension escalated: timeout at {lab.now}"
        row = await episode(lab, waiting.execution_id)
        assert row.is_open
        assert (row.reason_code, row.timeout_at) == (ReasonCode.WAITING_FOR_OPERATOR_REVIEW, None)
        told_of = [event.event_type for event in await lab.operator_events(waiting.execution_id)]
        assert told_of == [OperatorEventType.ESCALATED]
        assert await lab.after(100_000) == 0
        if by_signal:
            assert await waiting.effect(at="b") is SignalEffect.RESUMED
        else:
            await lab.engine.resume_execution(execution_id=waiting.execution_id)
        await lab.engine.complete((await lab.claim()).handle)


@told
async def test_a_timer_is_only_a_hint(lab: Lab) -> None:
    """The loop reads state and deadline again before it acts."""
    engine = lab.engine
    waiting = await suspended(lab, timeout_at=lab.now + 1000)
    key = waiting.execution_id
    async with lab.unchanged():
        assert (await engine.expire_suspension(execution_id=key)).what == "unchanged"
        missing = await engine.expire_suspension(execution_id=key[:-12] + "0" * 12)
        assert missing.what == "unchanged"
    await waiting.send()
    again = await lab.claim(lease_ttl_ms=TTL_MS)
    lab.clock.advance(1000)
    async with lab.unchanged():
        assert (await engine.expire_suspension(execution_id=key)).what == "unchanged"
        await engine.move_due()
    second = await suspended(lab, claimed=again, timeout_at=lab.now + 500)
    assert await lab.after(499) == 0
    lab.clock.advance(1)
    assert (await engine.expire_suspension(execution_id=key)).what == "suspension_timeout:fail"
    async with lab.unchanged():
        assert (await engine.expire_suspension(execution_id=key)).what == "unchanged"
    row = await episode(lab, key)
    assert row.suspension_id == second.outcome.suspension_id


@told
async def test_timeout_only_is_met_by_its_timeout_and_by_no_signal(lab: Lab) -> None:
    waiting = await suspended(
        lab, TimeoutOnly(), timeout_at=lab.now + 10, timeout_behavior="auto_resume"
    )
    for name in ("go", "timeout"):
        assert await waiting.effect(name) is SignalEffect.NOT_IN_CONDITION
    await lab.after(10)
    assert (await episode(lab, waiting.execution_id)).cause is ResumeCause.TIMEOUT


@told
async def test_a_timeout_a_little_in_the_past_is_due_at_once(lab: Lab) -> None:
    """Clocks differ; up to ten minutes are forgiven."""
    waiting = await suspended(lab, timeout_at=lab.now - 600_000)
    assert await lab.after(0) > 0
    assert await lab.state(waiting.execution_id) is PublicState.FAILED


# --- an operator -------------------------------------------------------------------------------


@told
async def test_an_operator_ends_what_no_signal_can(lab: Lab) -> None:
    """Cause and actor are kept."""
    waiting = await suspended(lab, OperatorOnly())
    assert await waiting.effect("anything") is SignalEffect.NOT_IN_CONDITION
    done = await lab.engine.resume_execution(execution_id=waiting.execution_id, actor="ann")
    assert done.public_state == "waiting"
    await is_over(lab, waiting, ResumeCause.OPERATOR, "resumed")
    (event,) = await lab.operator_events(waiting.execution_id)
    assert (event.event_type, event.actor) == (OperatorEventType.RESUMED, "ann")
    again = await lab.claim()
    assert again.handle.kind is HandleKind.RESUMED
    info = await lab.engine.resume_info(again.handle)
    assert info is not None
    assert (info.cause, info.actor, info.signals) == (ResumeCause.OPERATOR, "ann", ())


@told
async def test_partial_matches_are_not_taken_for_the_cause(lab: Lab) -> None:
    """An operator ended it, so no signal did; what had counted stays readable."""
    waiting = await half(lab)
    await lab.engine.resume_execution(execution_id=waiting.execution_id)
    again = await lab.claim()
    assert await lab.engine.observe_signals(again.handle) == ()
    info = await lab.engine.resume_info(again.handle)
    assert info is not None
    assert [each.waitpoint_key for each in info.signals] == ["a"]


@told
async def test_only_what_is_suspended_can_be_resumed(lab: Lab) -> None:
    waiting = await suspended(lab)
    await lab.engine.resume_execution(execution_id=waiting.execution_id)
    running = await lab.started("w2", lane_id="other")
    ended = await lab.completed(lane_id="third")
    for key in (waiting.execution_id, running.execution_id, ended):
        async with lab.refuses(ExecutionNotSuspended):
            await lab.engine.resume_execution(execution_id=key)
    async with lab.refuses(NotFound, "execution"):
        await lab.engine.resume_execution(execution_id=ended[:-12] + "0" * 12)


# --- delays ------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["signal", "suspension", "operator"])
@told
async def test_a_resume_delay_is_kept_and_promoted(lab: Lab, who: str) -> None:
    """Delayed with its time, promoted by the loop like any other delay."""
    waiting = await suspended(lab, resume_delay_ms=5000 if who == "suspension" else 0)
    key = waiting.execution_id
    if who == "operator":
        done = await lab.engine.resume_execution(execution_id=key, resume_delay_ms=5000)
        assert done.public_state == "delayed"
    else:
        await waiting.send(resume_delay_ms=5000 if who == "signal" else 0)
    snapshot = await lab.describe(key)
    assert snapshot.public_state is PublicState.DELAYED
    assert snapshot.blocking_reason is BlockingReason.WAITING_FOR_RESUME_DELAY
    assert snapshot.eligible_at == lab.now + 5000
    assert "resume delay 5000 ms" in snapshot.blocking_detail
    assert await lab.claims() == []
    lab.clock.advance(4999)
    assert await lab.engine.move_due() == 0
    lab.clock.advance(1)
    assert await lab.engine.move_due() == 1
    again = await lab.claim()
    assert (again.handle.kind, again.attempt_index) == (HandleKind.RESUMED, 0)


@told
async def test_a_signals_own_delay_goes_before_the_suspensions(lab: Lab) -> None:
    waiting = await suspended(lab, resume_delay_ms=5000)
    await waiting.send(resume_delay_ms=100)
    await lab.after(100)
    await lab.claim()


# --- cancel, deadline, replay, retention -------------------------------------------------------


@told
async def test_a_cancel_closes_every_binding_and_the_episode(lab: Lab) -> None:
    """Cause, actor, time; progress kept as history."""
    waiting = await half(lab, timeout_at=lab.now + 1000)
    handed_out = await lab.started("w2", lane_id="other")
    await pending(lab, handed_out)
    await lab.cancel(waiting.execution_id)
    await lab.cancel(handed_out.execution_id)
    await is_over(lab, waiting, ResumeCause.CANCELLED, "cancelled")
    row = await episode(lab, waiting.execution_id)
    assert len(row.progress) == 1
    (left,) = await waitpoints(lab, handed_out.execution_id)
    assert left.state is WaitpointState.CLOSED
    (ended,) = (await lab.engine.list_attempts(execution_id=waiting.execution_id)).items
    assert ended.outcome == AttemptOutcome.ENDED_CANCELLED.value
    assert await lab.after(100_000) == 0
    assert len(await lab.completions(waiting.execution_id)) == 1


@told
async def test_the_execution_deadline_ends_a_suspension_wholly(lab: Lab) -> None:
    """It stays armed while suspended, and leaves nothing open."""
    waiting = await half(lab, created={"execution_deadline_at": lab.now + 1000})
    await lab.after(1000)
    assert await lab.state(waiting.execution_id) is PublicState.EXPIRED
    row = await episode(lab, waiting.execution_id)
    assert row.cause is ResumeCause.EXPIRED
    await is_over(lab, waiting, ResumeCause.EXPIRED, row.close_reason or "")
    assert (row.close_reason or "").startswith("expired:")
    assert len(await lab.completions(waiting.execution_id)) == 1


@told
async def test_a_deadline_and_a_timeout_at_one_instant_end_it_once(lab: Lab) -> None:
    instant = lab.now + 1000
    waiting = await half(lab, created={"execution_deadline_at": instant}, timeout_at=instant)
    await lab.after(1000)
    assert await lab.state(waiting.execution_id) is PublicState.EXPIRED
    assert len(await lab.completions(waiting.execution_id)) == 1


@told
async def test_a_replay_starts_anew_and_old_tokens_open_nothing(lab: Lab) -> None:
    """An old token never resumes a later suspension."""
    waiting = await half(lab)
    await lab.cancel(waiting.execution_id)
    await lab.engine.replay_execution(execution_id=waiting.execution_id)
    again = await lab.claim()
    assert (again.handle.kind, again.attempt_index) == (HandleKind.FRESH, 1)
    assert await lab.engine.observe_signals(again.handle) == ()
    async with lab.refuses(WaitpointClosed):
        await waiting.send(at="b")
    second = await suspended(lab, BOTH, claimed=again)
    async with lab.refuses(WaitpointClosed):
        await waiting.send(at="b")
    with pytest.raises(InvalidToken):
        await second.send(at="b", token=waiting.at["b"].token)
    assert (await episode(lab, again.execution_id)).progress == ()


@told
async def test_retention_leaves_nothing_of_a_suspended_life(lab: Lab) -> None:
    """Episodes, waitpoints (also never used ones), signals and keys go with it."""
    await lab.configure(retention_ms=1000)
    claimed = await lab.started()
    await pending(lab, claimed, "never used", expires_in_ms=100_000)
    waiting = await suspended(lab, BOTH, claimed=claimed, idempotency_key="k")
    await waiting.send(at="a", payload=b"x" * 1000, idempotency_key="one")
    await lab.cancel(claimed.execution_id)
    await lab.after(999)
    assert len((await lab.dump())["ff_waitpoint"]) == 3
    await lab.after(1)
    dump = await lab.dump()
    for table in ("executions", "ff_suspension", "ff_waitpoint", "ff_signal", "ff_suspend_dedup"):
        assert dump[table] == [], table
    await lab.after(86_400_000)
    assert (await lab.dump())["ff_signal_dedup"] == []
    with pytest.raises(InvalidToken):
        await waiting.send(at="b")


# --- the attempt's own time --------------------------------------------------------------------


@told
async def test_the_attempts_time_stands_still_while_it_waits(lab: Lab) -> None:
    """What is left of it is armed again at resume."""
    rules = policy(attempt_timeout_ms=10_000)
    claimed = await lab.started(policy=rules)
    lab.clock.advance(4000)
    waiting = await suspended(lab, claimed=claimed)
    await lab.after(1_000_000)
    assert await lab.state(waiting.execution_id) is PublicState.SUSPENDED
    await waiting.send()
    again = await lab.claim()
    assert again.lease_expires_at == lab.now + 6000
    lab.clock.advance(2000)
    second = await suspended(lab, claimed=again)
    await second.send()
    last = await lab.claim()
    assert last.lease_expires_at == lab.now + 4000
    await lab.after(4000)
    snapshot = await lab.describe(waiting.execution_id)
    assert snapshot.public_state in (PublicState.FAILED, PublicState.EXPIRED)
    (ended,) = (await lab.engine.list_attempts(execution_id=waiting.execution_id)).items
    assert ended.attempt_index == 0


@told
async def test_resume_keeps_the_attempt_through_many_episodes(lab: Lab) -> None:
    """The same id and index, a new lease; each episode is history."""
    claimed = await lab.started()
    for number in range(4):
        waiting = await suspended(lab, claimed=claimed)
        assert await waiting.effect(payload=b"%d" % number) is SignalEffect.RESUMED
        again = await lab.claim()
        assert again.handle.kind is HandleKind.RESUMED
        assert (again.attempt_index, again.attempt_id) == (0, claimed.attempt_id)
        assert again.lease_epoch == claimed.lease_epoch + 2  # one for the release, one anew
        assert again.lease_id != claimed.lease_id
        (seen,) = await lab.engine.observe_signals(again.handle)
        assert seen.payload == b"%d" % number
        claimed = again
    rows = (await lab.engine.list_suspensions(execution_id=claimed.execution_id)).items
    assert len(rows) == 4
    assert len(await signals(lab, claimed.execution_id)) == 4
    await lab.engine.complete(claimed.handle, result=b"done")
    (attempt,) = (await lab.engine.list_attempts(execution_id=claimed.execution_id)).items
    assert attempt.attempt_index == 0


@told
async def test_a_lost_lease_after_a_resume_is_another_attempt(lab: Lab) -> None:
    """Reclaim is a different path, with a new attempt."""
    waiting = await suspended(lab)
    await waiting.send()
    await lab.claim()
    await lab.after(TTL_MS)
    newer = await lab.claim("w2")
    assert (newer.attempt_index, newer.handle.kind) == (1, HandleKind.FRESH)
    assert await lab.engine.observe_signals(newer.handle) == ()
    request = SuspendRequest(resume_condition=Single("a"))
    await lab.engine.suspend(newer.handle, request)


@told
async def test_an_episode_says_in_words_what_it_waited_for(lab: Lab) -> None:
    waiting = await suspended(lab, BOTH)
    await waiting.send(at="b")
    shown = await episode(lab, waiting.execution_id)
    assert shown.waited_for == "signal go on a and signal go on b (came)"
