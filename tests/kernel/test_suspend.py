"""Suspend, as pure decisions: who may, what it writes, and the one way in which it ends."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import (
    AlreadySuspended,
    ExecutionNotActive,
    ExecutionNotSuspended,
    InvalidWaitpointKey,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    PendingWaitpointExpired,
    StaleLease,
    WaitpointAlreadyExists,
    WaitpointInUse,
    WaitpointNotPending,
    WaitpointOfOtherAttempt,
)
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.wait.episode import (
    Episode,
    EpisodeDecision,
    ended,
)
from flowfabric.kernel.wait.resume import (
    ExpireSuspension,
    ResumeExecution,
    expire_suspension,
    resume_execution,
)
from flowfabric.kernel.wait.suspend import (
    Begun,
    Binding,
    CloseWaitpoint,
    CreateWaitpoint,
    SuspendExecution,
    close_waitpoint,
    create_waitpoint,
    suspend,
)
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.policy import ExecutionPolicy, SuspensionPolicy
from flowfabric.model.record import replace
from flowfabric.model.state import LifecyclePhase, PublicState
from flowfabric.model.suspension import (
    AllOf,
    ReasonCode,
    RequestedBy,
    ResumeCause,
    Single,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior
from tests.support.builders import (
    EXECUTION_ID,
    NOW,
    SITUATIONS,
    cancel_by_operator,
    created,
    fence_of,
    image,
    leased,
)

BOTH = AllOf((Single("a"), Single("b")))
AT = Moment(NOW)


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
        "token_kid": "k1",
        "idempotency_key": None,
        "idempotency_ttl_ms": 1000,
        "digest": "d",
    }
    return SuspendExecution(**{**given, **fields})


def waiting(now: int = NOW, **fields: Any) -> tuple[Execution, Episode]:
    """A suspended execution and its episode."""
    running = leased(now, **fields.pop("created", {}))
    decision = suspend(running, {}, [], None, None, command_of(fence_of(running), **fields), AT)
    assert decision.execution is not None
    assert decision.episode is not None
    return decision.execution, Episode(decision.episode, decision.waitpoints)


def refused(decision: EpisodeDecision) -> type:
    """The refusal, which must write nothing."""
    assert isinstance(decision.reply, Refused), decision.reply
    assert decision == EpisodeDecision(decision.reply)
    return decision.reply.error


def any_fence(execution: Execution) -> Fence:
    return Fence(execution.lease_id or "l", execution.lease_epoch, execution.attempt_id or "a")


@pytest.mark.parametrize("situation", SITUATIONS)
def test_only_a_live_owner_suspends(situation: str) -> None:
    execution = SITUATIONS[situation]()
    decision = suspend(execution, {}, [], None, None, command_of(any_fence(execution)), AT)
    if situation == "leased":
        assert isinstance(decision.reply, Begun)
        return
    wanted = {"lapsed": LeaseExpired, "revoked": LeaseRevoked}
    assert refused(decision) is wanted.get(situation, ExecutionNotActive)


def test_an_absent_and_a_suspended_execution_are_refused() -> None:
    fence = Fence("l", 1, "a")
    assert refused(suspend(None, {}, [], None, None, command_of(fence), AT)) is NotFound
    parked, _ = waiting()
    again = command_of(any_fence(parked), suspension_id="s2")
    assert refused(suspend(parked, {}, [], None, None, again, AT)) is AlreadySuspended


@pytest.mark.parametrize("part", ["lease_id", "lease_epoch", "attempt_id"])
def test_every_part_of_the_fence_counts(part: str) -> None:
    running = leased()
    wrong: Any = 99 if part == "lease_epoch" else "other"
    fence = replace(fence_of(running), **{part: wrong})
    assert refused(suspend(running, {}, [], None, None, command_of(fence), AT)) is StaleLease
    make = CreateWaitpoint(
        execution_id=EXECUTION_ID,
        fence=fence,
        waitpoint_id="w",
        waitpoint_key="k",
        token_kid="k1",
        expires_in_ms=10,
    )
    assert refused(create_waitpoint(running, None, make, AT)) is StaleLease


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


@pytest.mark.parametrize("cause", ResumeCause)
def test_an_end_closes_everything_whatever_its_cause(cause: ResumeCause) -> None:
    _, episode = waiting()
    row, waitpoints = ended(episode, cause, "ann", "because", Moment(NOW + 7))
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
    assert expiry.reply.what == "unchanged"


def test_a_timeout_is_not_early() -> None:
    parked, episode = waiting()
    command = ExpireSuspension(execution_id=EXECUTION_ID, signal_id="x")
    early = expire_suspension(parked, episode, command, Moment(NOW + 999))
    assert early == EpisodeDecision(early.reply)
    due = expire_suspension(parked, episode, command, Moment(NOW + 1000))
    assert due.execution is not None
    assert due.execution.public_state is PublicState.FAILED


@pytest.mark.parametrize("behavior", TimeoutBehavior)
def test_every_behaviour_leaves_a_state_that_agrees_with_itself(behavior: TimeoutBehavior) -> None:
    """Either over, or awake with the same attempt, or suspended and not closed."""
    parked, episode = waiting(timeout_behavior=behavior)
    command = ExpireSuspension(execution_id=EXECUTION_ID, signal_id="x")
    done = expire_suspension(parked, episode, command, Moment(NOW + 1000))
    after, row = done.execution, done.episode
    assert after is not None
    assert row is not None
    assert after.blocked_until is None
    waits = after.state.lifecycle_phase is LifecyclePhase.SUSPENDED
    assert waits == row.is_open == (behavior is TimeoutBehavior.ESCALATE)
    assert waits == (after.suspension_id is not None)
    assert done.events
    if not after.is_terminal:
        assert after.attempt_id == parked.attempt_id
    signalled = behavior is TimeoutBehavior.AUTO_RESUME_WITH_TIMEOUT_SIGNAL
    assert (done.signal is not None) == signalled


def test_spent_time_adds_up_over_episodes() -> None:
    running = leased()
    first = suspend(
        running, {}, [], None, None, command_of(fence_of(running)), Moment(NOW + 400)
    ).execution
    assert first is not None
    assert first.attempt_spent_ms == 400


def a_waitpoint(state: WaitpointState, **fields: Any) -> WaitpointRow:
    made = create_waitpoint(
        leased(),
        None,
        CreateWaitpoint(
            execution_id=EXECUTION_ID,
            fence=fence_of(leased()),
            waitpoint_id="w",
            waitpoint_key="a",
            token_kid="k1",
            expires_in_ms=500,
        ),
        AT,
    )
    (row,) = made.waitpoints
    return replace(row, state=state, **fields)


def test_a_waitpoint_is_made_pending_with_its_end() -> None:
    row = a_waitpoint(WaitpointState.PENDING)
    assert (row.expires_at, row.due_at, row.suspension_id) == (NOW + 500, NOW + 500, None)
    running = leased()
    again = CreateWaitpoint(
        execution_id=EXECUTION_ID,
        fence=fence_of(running),
        waitpoint_id="w",
        waitpoint_key="a",
        token_kid="k1",
        expires_in_ms=500,
    )
    assert refused(create_waitpoint(running, row, again, AT)) is WaitpointAlreadyExists


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (None, NotFound),
        (a_waitpoint(WaitpointState.PENDING, execution_id="another"), NotFound),
        (a_waitpoint(WaitpointState.PENDING, waitpoint_key="other"), InvalidWaitpointKey),
        (a_waitpoint(WaitpointState.CLOSED), WaitpointNotPending),
        (a_waitpoint(WaitpointState.ACTIVE), WaitpointNotPending),
        (a_waitpoint(WaitpointState.PENDING, attempt_index=7), WaitpointOfOtherAttempt),
        (a_waitpoint(WaitpointState.PENDING, expires_at=NOW), PendingWaitpointExpired),
        (a_waitpoint(WaitpointState.PENDING), None),
    ],
)
def test_only_a_pending_waitpoint_of_this_attempt_is_waited_on(
    row: WaitpointRow | None, error: type | None
) -> None:
    """Each other reason has a code of its own."""
    running = leased()
    pending = (Binding("w", "a", True),)
    command = command_of(fence_of(running), bindings=pending, condition=Single("a"))
    known = {} if row is None else {"w": row}
    decision = suspend(running, known, [], None, None, command, AT)
    assert (refused(decision) if isinstance(decision.reply, Refused) else None) is error


def test_a_new_waitpoint_takes_no_id_that_exists() -> None:
    running = leased()
    new = (Binding("w", "a"),)
    command = command_of(fence_of(running), bindings=new, condition=Single("a"))
    known = {"w": a_waitpoint(WaitpointState.PENDING)}
    decision = suspend(running, known, [], None, None, command, AT)
    assert refused(decision) is WaitpointAlreadyExists


@pytest.mark.parametrize("situation", SITUATIONS)
def test_only_a_live_owner_hands_out_addresses(situation: str) -> None:
    execution = SITUATIONS[situation]()
    command = CreateWaitpoint(
        execution_id=EXECUTION_ID,
        fence=any_fence(execution),
        waitpoint_id="w",
        waitpoint_key="a",
        token_kid="k1",
        expires_in_ms=500,
    )
    decision = create_waitpoint(execution, None, command, AT)
    assert isinstance(decision.reply, WaitpointRow) == (situation == "leased")


@pytest.mark.parametrize("state", WaitpointState)
def test_closing_depends_on_the_state(state: WaitpointState) -> None:
    row = a_waitpoint(state)
    decision = close_waitpoint(
        leased(), row, CloseWaitpoint(execution_id=EXECUTION_ID, waitpoint_id="w", reason="why"), AT
    )
    if state is WaitpointState.ACTIVE:
        assert refused(decision) is WaitpointInUse
    elif state is WaitpointState.CLOSED:
        assert decision == EpisodeDecision(row)
    else:
        (closed,) = decision.waitpoints
        assert (closed.state, closed.close_reason) == (WaitpointState.CLOSED, "why")


def test_a_foreign_waitpoint_cannot_be_closed() -> None:
    row = replace(a_waitpoint(WaitpointState.PENDING), execution_id="other")
    for known in (row, None):
        decision = close_waitpoint(
            created(),
            known,
            CloseWaitpoint(execution_id=EXECUTION_ID, waitpoint_id="w", reason="x"),
            AT,
        )
        assert refused(decision) is NotFound


def test_a_cancel_of_a_suspended_execution_forgets_the_wait() -> None:
    parked, _ = waiting()
    over = image(parked, cancel_by_operator())
    assert (over.suspension_id, over.blocked_until) == (None, None)
