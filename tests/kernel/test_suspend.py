"""Suspend, as pure decisions: who may, what it writes, and the one way in which it ends."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import (
    AlreadySuspended,
    ExecutionNotActive,
    ExecutionNotSuspended,
    InvalidInput,
    KeyringEmpty,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    StaleLease,
    SuspendConflict,
)
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.wait.episode import (
    Episode,
    contribution,
    end_beside,
    ended,
    leaves_wait,
    signals_of,
)
from flowfabric.kernel.wait.resume import (
    UNREADABLE_RETRY_MS,
    ExpireSuspension,
    ResumeExecution,
    expire_suspension,
    is_timed_out,
    look_again_later,
    resume_execution,
)
from flowfabric.kernel.wait.suspend import Facts, SuspendExecution, suspend
from flowfabric.kernel.wait.token import mint
from flowfabric.kernel.wait.waitpoint import (
    Binding,
    CreateWaitpoint,
    create_waitpoint,
)
from flowfabric.limits import TIMEOUT_SKEW_MS
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.policy import ExecutionPolicy, SuspensionPolicy
from flowfabric.model.record import replace
from flowfabric.model.results import Moved
from flowfabric.model.state import LifecyclePhase, PublicState
from flowfabric.model.suspension import (
    AllOf,
    AlreadyMet,
    ReasonCode,
    RequestedBy,
    ResumeCause,
    SignalEffect,
    SignalRow,
    Single,
    Suspended,
    SuspendKeyRow,
    SuspensionRow,
    TimeoutOnly,
    WaitpointDetails,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior
from tests.support.builders import (
    EXECUTION_ID,
    NOW,
    SECRET,
    SITUATIONS,
    cancel_by_operator,
    fence_of,
    image,
    leased,
)
from tests.support.decisions import saved, the

BOTH = AllOf((Single("a"), Single("b")))
AT = Moment(NOW)
FACTS = Facts(SECRET)


def command_of(fence: Fence, **fields: Any) -> SuspendExecution:
    given: dict[str, Any] = {
        "execution_id": EXECUTION_ID,
        "fence": fence,
        "suspension_id": "s1",
        "bindings": (Binding("wa", "a"), Binding("wb", "b")),
        "condition": BOTH,
        "reason_code": ReasonCode.WAITING_FOR_SIGNAL,
        "requested_by": RequestedBy.WORKER,
        "timeout_at": NOW + 1000,
        "timeout_behavior": TimeoutBehavior.FAIL,
        "resume_delay_ms": 0,
        "continuation_metadata_pointer": None,
        "idempotency_key": None,
        "idempotency_ttl_ms": 1000,
        "digest": "d",
    }
    return SuspendExecution(**{**given, **fields})


def waiting(now: int = NOW, **fields: Any) -> tuple[Execution, Episode]:
    """A suspended execution and its episode."""
    running = leased(now, **fields.pop("created", {}))
    decision = suspend(running, FACTS, command_of(fence_of(running), **fields), AT)
    assert decision.execution is not None
    return decision.execution, episode_of(decision)


def episode_of(decision: Decision[Any]) -> Episode:
    return Episode(the(decision, SuspensionRow), saved(decision, WaitpointRow))


def refused(decision: Decision[Any]) -> type:
    """The refusal, which must write nothing."""
    assert isinstance(decision.reply, Refused), decision.reply
    assert decision == Decision(decision.reply)
    return decision.reply.error


def any_fence(execution: Execution) -> Fence:
    return Fence(execution.lease_id or "l", execution.lease_epoch, execution.attempt_id or "a")


@pytest.mark.parametrize("situation", SITUATIONS)
def test_only_a_live_owner_suspends(situation: str) -> None:
    execution = SITUATIONS[situation]()
    decision = suspend(execution, FACTS, command_of(any_fence(execution)), AT)
    if situation == "leased":
        assert isinstance(decision.reply, Suspended)
        return
    wanted = {"lapsed": LeaseExpired, "revoked": LeaseRevoked}
    assert refused(decision) is wanted.get(situation, ExecutionNotActive)


def test_an_absent_and_a_suspended_execution_are_refused() -> None:
    fence = Fence("l", 1, "a")
    assert refused(suspend(None, FACTS, command_of(fence), AT)) is NotFound
    parked, _ = waiting()
    again = command_of(any_fence(parked), suspension_id="s2")
    assert refused(suspend(parked, FACTS, again, AT)) is AlreadySuspended


@pytest.mark.parametrize("part", ["lease_id", "lease_epoch", "attempt_id"])
def test_every_part_of_the_fence_counts(part: str) -> None:
    running = leased()
    wrong: Any = 99 if part == "lease_epoch" else "other"
    fence = replace(fence_of(running), **{part: wrong})
    assert refused(suspend(running, FACTS, command_of(fence), AT)) is StaleLease
    make = CreateWaitpoint(
        execution_id=EXECUTION_ID,
        fence=fence,
        waitpoint_id="w",
        waitpoint_key="k",
        expires_in_ms=10,
    )
    assert refused(create_waitpoint(running, None, SECRET, make, AT)) is StaleLease


def test_a_suspended_execution_has_no_owner_and_one_timer() -> None:
    running = leased()
    parked, episode = waiting()
    assert parked.public_state is PublicState.SUSPENDED
    assert parked.lease_epoch == running.lease_epoch + 1
    assert not parked.is_leased
    assert (parked.suspension_id, parked.blocked_until) == ("s1", NOW + 1000)
    assert parked.attempt_due_at is None
    assert episode.row.is_open
    assert {each.state for each in episode.waitpoints} == {WaitpointState.ACTIVE}


def test_the_policys_timeout_fills_in_only_what_is_missing() -> None:
    rules = ExecutionPolicy(
        suspension_policy=SuspensionPolicy(
            default_timeout_ms=5, timeout_behavior=TimeoutBehavior.EXPIRE
        )
    )
    _, usual = waiting(created={"policy": rules}, timeout_at=None)
    _, own = waiting(created={"policy": rules})
    assert (usual.row.timeout_at, usual.row.timeout_behavior) == (NOW + 5, TimeoutBehavior.EXPIRE)
    assert (own.row.timeout_at, own.row.timeout_behavior) == (NOW + 1000, TimeoutBehavior.FAIL)


def test_nothing_is_suspended_without_a_signing_key() -> None:
    running = leased()
    command = command_of(fence_of(running))
    assert refused(suspend(running, Facts(None), command, AT)) is KeyringEmpty


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"timeout_at": NOW - TIMEOUT_SKEW_MS - 1}, "timeout_at: is in the past"),
        (
            {"timeout_at": None, "condition": TimeoutOnly(), "bindings": (Binding("w", "wait"),)},
            "timeout_at: TimeoutOnly needs a timeout",
        ),
        ({"timeout_at": NOW - TIMEOUT_SKEW_MS}, ""),
        ({"timeout_at": None}, ""),
    ],
)
def test_a_timeout_is_judged_by_the_time_of_the_transaction(
    fields: dict[str, Any], detail: str
) -> None:
    running = leased()
    decision = suspend(running, FACTS, command_of(fence_of(running), **fields), AT)
    if not detail:
        assert isinstance(decision.reply, Suspended)
        return
    assert decision.reply == Refused(InvalidInput, detail, {"field": "timeout_at"})
    assert decision == Decision(decision.reply)


def test_the_answer_has_a_token_for_each_waitpoint() -> None:
    running = leased()
    decision = suspend(running, FACTS, command_of(fence_of(running)), AT)
    assert isinstance(decision.reply, Suspended)
    assert decision.reply.suspension_id == "s1"
    assert decision.reply.waitpoints == tuple(
        WaitpointDetails(each.waitpoint_id, each.waitpoint_key, mint(each, SECRET))
        for each in saved(decision, WaitpointRow)
    )


def signal_at(waitpoint_id: str, signal_id: str, accepted_at: int) -> SignalRow:
    return SignalRow(
        waitpoint_id,
        0,
        EXECUTION_ID,
        signal_id,
        "go",
        "",
        "user",
        "ann",
        "",
        b"{}",
        "json",
        accepted_at,
        accepted_at,
        SignalEffect.BUFFERED,
    )


def met_early() -> tuple[Execution, SuspendExecution, Decision[Any], Facts]:
    """A suspend on a waitpoint that has its signals already."""
    running = replace(leased(), side_holds=1)
    pending = the(
        create_waitpoint(
            running,
            None,
            SECRET,
            CreateWaitpoint(
                execution_id=EXECUTION_ID,
                fence=fence_of(running),
                waitpoint_id="w",
                waitpoint_key="a",
                expires_in_ms=5000,
            ),
            AT,
        ),
        WaitpointRow,
    )
    signals = (signal_at("w", "late", NOW + 2), signal_at("w", "early", NOW + 1))
    facts = Facts(SECRET, {"w": pending}, signals)
    command = command_of(
        fence_of(running),
        bindings=(Binding("w", "a", is_pending=True),),
        condition=Single("a"),
        idempotency_key="once",
    )
    return running, command, suspend(running, facts, command, AT), facts


def test_early_signals_meet_a_condition_and_the_lease_stays() -> None:
    running, _, decision, _ = met_early()
    assert decision.execution == replace(running, side_holds=0)
    assert isinstance(decision.reply, AlreadyMet)
    assert [each.signal_id for each in decision.reply.signals] == ["early"]
    over = episode_of(decision)
    assert (over.row.cause, over.row.is_open) == (ResumeCause.SIGNAL, False)
    assert {each.state for each in over.waitpoints} == {WaitpointState.CLOSED}


@pytest.mark.parametrize("later", [0, 999, 1000])
def test_a_repeated_call_is_answered_again_while_its_key_is_known(later: int) -> None:
    running, command, first, facts = met_early()
    seen, made = the(first, SuspendKeyRow), episode_of(first)
    known = replace(facts, seen=seen, made=made)
    again = suspend(running, known, command, Moment(NOW + later))
    if later < 1000:
        assert again == Decision(first.reply)
        other = suspend(running, known, replace(command, digest="other"), AT)
        assert refused(other) is SuspendConflict
    else:  # the key is forgotten: this is a new suspension
        assert again.execution is not None


def test_signals_are_told_in_the_order_they_counted() -> None:
    _, episode = waiting()
    found = [signal_at("wa", "one", NOW), signal_at("wb", "two", NOW)]
    progress = tuple(
        contribution(signal, key) for signal, key in zip(found, ("a", "b"), strict=True)
    )
    row = replace(episode.row, progress=progress[::-1])
    told = signals_of(row, episode.waitpoints, found)
    assert [(each.signal_id, each.waitpoint_key) for each in told] == [("two", "b"), ("one", "a")]
    assert signals_of(episode.row, episode.waitpoints, found) == ()


@pytest.mark.parametrize("cause", ResumeCause)
def test_an_end_closes_everything_whatever_its_cause(cause: ResumeCause) -> None:
    _, episode = waiting()
    over = ended(episode, cause, "ann", "because", Moment(NOW + 7))
    row, waitpoints = over.row, over.waitpoints
    assert (row.cause, row.actor, row.close_reason, row.closed_at) == (
        cause,
        "ann",
        "because",
        NOW + 7,
    )
    assert len(waitpoints) == 2
    for each in waitpoints:
        assert (each.state, each.closed_at, each.due_at) == (WaitpointState.CLOSED, NOW + 7, None)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_else_can_be_resumed_or_timed_out(situation: str) -> None:
    """Each transition is guarded by the phase."""
    execution = SITUATIONS[situation]()
    resume = ResumeExecution(execution_id=EXECUTION_ID, actor="ann", resume_delay_ms=0)
    assert refused(resume_execution(execution, None, resume, AT)) is ExecutionNotSuspended
    expiry = expire_suspension(
        execution, None, ExpireSuspension(execution_id=EXECUTION_ID, signal_id="x"), AT
    )
    assert expiry.execution is None
    assert expiry.reply == Moved(EXECUTION_ID, "unchanged")


def test_a_timeout_is_not_early() -> None:
    parked, episode = waiting()
    command = ExpireSuspension(execution_id=EXECUTION_ID, signal_id="x")
    early = expire_suspension(parked, episode, command, Moment(NOW + 999))
    assert early == Decision(early.reply)
    due = expire_suspension(parked, episode, command, Moment(NOW + 1000))
    assert due.execution is not None
    assert due.execution.public_state is PublicState.FAILED


@pytest.mark.parametrize("behavior", TimeoutBehavior)
def test_every_behaviour_leaves_a_state_that_agrees_with_itself(behavior: TimeoutBehavior) -> None:
    """Either over, or awake with the same attempt, or suspended and not closed."""
    parked, episode = waiting(timeout_behavior=behavior)
    command = ExpireSuspension(execution_id=EXECUTION_ID, signal_id="x")
    done = expire_suspension(parked, episode, command, Moment(NOW + 1000))
    after, row = done.execution, the(done, SuspensionRow)
    assert after is not None
    assert after.blocked_until is None
    waits = after.state.lifecycle_phase is LifecyclePhase.SUSPENDED
    assert waits == row.is_open == (behavior is TimeoutBehavior.ESCALATE)
    assert waits == (after.suspension_id is not None)
    assert done.events
    if not after.is_terminal:
        assert after.attempt_id == parked.attempt_id
    signalled = behavior is TimeoutBehavior.AUTO_RESUME_WITH_TIMEOUT_SIGNAL
    assert len(saved(done, SignalRow)) == signalled


def test_spent_time_adds_up_over_episodes() -> None:
    running = leased()
    first = suspend(running, FACTS, command_of(fence_of(running)), Moment(NOW + 400)).execution
    assert first is not None
    assert first.attempt_spent_ms == 400


def test_an_unreadable_episode_is_looked_at_again_later() -> None:
    parked, _ = waiting()
    assert is_timed_out(parked, NOW + 1000)
    later = look_again_later(parked, Moment(NOW + 1000)).execution
    assert later == replace(parked, blocked_until=NOW + 1000 + UNREADABLE_RETRY_MS)
    assert not is_timed_out(later, NOW + 1000)


def test_what_ends_the_execution_ends_its_episode() -> None:
    parked, episode = waiting()
    over = image(parked, cancel_by_operator())
    assert leaves_wait(parked, over)
    assert not leaves_wait(parked, parked)
    closed = episode_of(end_beside(episode, over, AT))
    assert (closed.row.cause, closed.row.close_reason) == (ResumeCause.CANCELLED, "cancelled")
    assert {each.state for each in closed.waitpoints} == {WaitpointState.CLOSED}
    assert end_beside(closed, over, AT) == end_beside(None, over, AT) == Decision(None)


def test_a_cancel_of_a_suspended_execution_forgets_the_wait() -> None:
    parked, _ = waiting()
    over = image(parked, cancel_by_operator())
    assert (over.suspension_id, over.blocked_until) == (None, None)
