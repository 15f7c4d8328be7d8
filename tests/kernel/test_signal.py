"""Deliver, as a pure decision: a signal touches the suspension it is bound to, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import SignalLimitExceeded, TargetNotSignalable, WaitpointClosed
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.wait.episode import Episode
from flowfabric.kernel.wait.signal import DeliverSignal, deliver
from flowfabric.kernel.wait.suspend import Facts, SuspendExecution, suspend
from flowfabric.kernel.wait.waitpoint import Binding
from flowfabric.model.execution import Execution
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.record import replace
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import (
    AllOf,
    ReasonCode,
    RequestedBy,
    ResumeCause,
    ResumeCondition,
    SignalAccepted,
    SignalDuplicate,
    SignalEffect,
    SignalKeyRow,
    SignalRow,
    Single,
    SuspensionRow,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior
from tests.support.builders import EXECUTION_ID, NOW, SECRET, SITUATIONS, fence_of, leased
from tests.support.decisions import saved, the

BOTH = AllOf((Single("a", "go"), Single("b", "go")))
AT = Moment(NOW)


def waiting(condition: ResumeCondition = BOTH, **created: Any) -> tuple[Execution, Episode]:
    running = leased(**created)
    command = SuspendExecution(
        execution_id=EXECUTION_ID,
        fence=fence_of(running),
        suspension_id="s1",
        bindings=(Binding("wa", "a"), Binding("wb", "b")),
        condition=condition,
        reason_code=ReasonCode.WAITING_FOR_SIGNAL,
        requested_by=RequestedBy.WORKER,
        timeout_at=None,
        timeout_behavior=TimeoutBehavior.FAIL,
        resume_delay_ms=0,
        continuation_metadata_pointer=None,
        idempotency_key=None,
        idempotency_ttl_ms=0,
        digest="",
    )
    decision = suspend(running, Facts(SECRET), command, AT)
    assert decision.execution is not None
    return decision.execution, episode_of(decision)


def episode_of(decision: Decision[Any]) -> Episode:
    return Episode(the(decision, SuspensionRow), saved(decision, WaitpointRow))


def command_of(waitpoint: str = "wa", name: str = "go", **fields: Any) -> DeliverSignal:
    given: dict[str, Any] = {
        "execution_id": EXECUTION_ID,
        "waitpoint_id": waitpoint,
        "presented": None,
        "signal_id": "sig",
        "signal_name": name,
        "signal_category": "",
        "source_type": "user",
        "source_identity": "ann",
        "correlation_id": "",
        "payload": None,
        "payload_encoding": "json",
        "created_at": None,
        "idempotency_key": None,
        "dedup_ttl_ms": 10,
        "resume_delay_ms": 0,
    }
    return DeliverSignal(**{**given, **fields})


def a_waitpoint(state: WaitpointState, **fields: Any) -> WaitpointRow:
    _, episode = waiting()
    return replace(episode.waitpoints[0], state=state, **fields)


def effect_of(decision: Decision[Any]) -> SignalEffect:
    assert isinstance(decision.reply, SignalAccepted), decision.reply
    return decision.reply.effect


@pytest.mark.parametrize("state", WaitpointState)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_signal_never_moves_an_execution_that_does_not_wait(
    situation: str, state: WaitpointState
) -> None:
    """Buffered, or a late answer; never a transition."""
    execution = SITUATIONS[situation]()
    waitpoint = a_waitpoint(state)
    decision = deliver(execution, waitpoint, None, None, command_of(), AT)
    if execution.is_terminal:
        assert isinstance(decision.reply, Refused)
        assert decision.reply.error is TargetNotSignalable
    elif state is WaitpointState.PENDING:
        assert effect_of(decision) is SignalEffect.BUFFERED
        assert decision.execution is not None
        assert decision.execution.state == execution.state
    else:
        assert isinstance(decision.reply, Refused)
        assert decision.reply.error is WaitpointClosed
        assert decision == Decision(decision.reply)


def test_a_waitpoint_of_another_suspension_moves_nothing() -> None:
    """Its state says active, its suspension is not the open one."""
    execution, episode = waiting()
    stray = replace(episode.waitpoints[0], suspension_id="older")
    decision = deliver(execution, stray, episode, None, command_of(), AT)
    assert isinstance(decision.reply, Refused)
    assert decision.reply.error is WaitpointClosed


def test_each_effect_and_what_it_writes() -> None:
    execution, episode = waiting()
    first = deliver(execution, episode.waitpoints[0], episode, None, command_of(), AT)
    assert effect_of(first) is SignalEffect.APPENDED
    row = the(first, SuspensionRow)
    assert len(row.progress) == 1
    assert first.execution is not None
    noted = Episode(row, (the(first, WaitpointRow), episode.waitpoints[1]))
    again = deliver(first.execution, noted.waitpoints[0], noted, None, command_of(), AT)
    assert effect_of(again) is SignalEffect.DUPLICATE
    assert saved(again, SuspensionRow) == ()
    other = deliver(first.execution, noted.waitpoints[0], noted, None, command_of(name="x"), AT)
    assert effect_of(other) is SignalEffect.MATCHER_FAILED
    last = deliver(first.execution, noted.waitpoints[1], noted, None, command_of("wb"), AT)
    assert effect_of(last) is SignalEffect.RESUMED
    over = episode_of(last)
    assert (over.row.cause, over.row.actor) == (ResumeCause.SIGNAL, "user:ann")
    assert [each.signal_count for each in over.waitpoints] == [1, 1]
    assert {each.state for each in over.waitpoints} == {WaitpointState.CLOSED}
    assert last.execution is not None
    assert last.execution.public_state is PublicState.WAITING
    assert last.execution.attempt_id == execution.attempt_id
    for decision in (first, again, other, last):
        assert the(decision, SignalRow).signal_id == "sig"
        assert len(decision.events) == 1
        assert decision.execution is not None
        assert decision.execution.signal_count > 0


def test_a_known_key_is_answered_before_anything_is_looked_at() -> None:
    """State and caps come after it."""
    execution, episode = waiting(policy=ExecutionPolicy(max_signals_per_execution=1))
    full = replace(execution, signal_count=1)
    seen = SignalKeyRow("wa", "k", "first", SignalEffect.RESUMED, NOW + 10)
    command = command_of(idempotency_key="k")
    closed = replace(episode.waitpoints[0], state=WaitpointState.CLOSED)
    for target in (episode.waitpoints[0], closed):
        decision = deliver(full, target, episode, seen, command, AT)
        assert decision == Decision(SignalDuplicate("first", SignalEffect.RESUMED))
    capped = deliver(full, episode.waitpoints[0], episode, None, command, AT)
    assert isinstance(capped.reply, Refused)
    assert capped.reply.error is SignalLimitExceeded
    late = deliver(full, closed, episode, None, command, AT)
    assert isinstance(late.reply, Refused)
    assert late.reply.error is WaitpointClosed


@pytest.mark.parametrize(
    ("key", "ttl", "kept"), [("k", 10, True), ("k", 0, False), (None, 9, False)]
)
def test_a_key_is_kept_only_if_there_is_one_and_time_for_it(
    key: str | None, ttl: int, kept: bool
) -> None:
    execution, episode = waiting()
    command = command_of(idempotency_key=key, dedup_ttl_ms=ttl)
    decision = deliver(execution, episode.waitpoints[0], episode, None, command, AT)
    assert len(saved(decision, SignalKeyRow)) == kept


def test_an_expired_key_counts_as_missing() -> None:
    execution, episode = waiting()
    command = command_of(idempotency_key="k")
    for due_at, is_known in ((NOW + 1, True), (NOW, False)):
        seen = SignalKeyRow("wa", "k", "first", SignalEffect.RESUMED, due_at)
        decision = deliver(execution, episode.waitpoints[0], episode, seen, command, AT)
        assert isinstance(decision.reply, SignalDuplicate) == is_known


def test_a_lapsed_pending_waitpoint_takes_nothing() -> None:
    waitpoint = a_waitpoint(WaitpointState.PENDING, expires_at=NOW, suspension_id=None)
    decision = deliver(leased(), waitpoint, None, None, command_of(), AT)
    assert isinstance(decision.reply, Refused)
    assert decision.reply.error is WaitpointClosed


@pytest.mark.parametrize(("own", "theirs", "wait"), [(0, 0, 0), (5, 0, 5), (0, 7, 7), (5, 7, 7)])
def test_the_delay_of_a_resume(own: int, theirs: int, wait: int) -> None:
    """The signal's, else the suspension's."""
    execution, episode = waiting(Single("a"))
    row = replace(episode.row, resume_delay_ms=own)
    command = command_of(resume_delay_ms=theirs)
    done = deliver(
        execution, episode.waitpoints[0], Episode(row, episode.waitpoints), None, command, AT
    )
    assert done.execution is not None
    assert done.execution.eligible_at == NOW + wait
    assert (done.execution.public_state is PublicState.DELAYED) == (wait > 0)
