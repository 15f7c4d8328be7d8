"""The end of a wait without a signal: an operator's word, or a timeout."""

from __future__ import annotations

from flowfabric.errors import ExecutionNotSuspended
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, refuse
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.operate import Release
from flowfabric.kernel.execution.transition import finish, operator_event
from flowfabric.kernel.wait.episode import (
    Episode,
    awake,
    contribution,
    ended,
    signal_event,
)
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.results import Moved, Unblocked
from flowfabric.model.state import (
    BlockingReason,
    LifecyclePhase,
    TerminalOutcome,
    suspended,
)
from flowfabric.model.suspension import (
    ReasonCode,
    ResumeCause,
    Resumed,
    SignalEffect,
    SignalRow,
    WaitpointRow,
)
from flowfabric.model.words import TimeoutBehavior

TIMEOUT_SIGNAL = "timeout"
OPERATOR = "operator"  # where an operator that ended a wait gave no name
UNREADABLE_RETRY_MS = 60_000  # when to look again at a timeout that cannot be applied


class ResumeExecution(ExecutionCommand[Resumed], frozen=True, kw_only=True):
    """An operator ends the wait, whatever the condition says."""

    resume_delay_ms: int

    def needs(self, need: Needs) -> None:
        """The execution and its open suspension."""
        need.executions.add(self.execution_id)
        need.waits = True


class ExpireSuspension(ExecutionCommand[Moved], frozen=True, kw_only=True):
    """A suspension may have waited too long."""

    signal_id: str  # for the timeout signal

    def needs(self, need: Needs) -> None:
        """The execution and its open suspension."""
        need.executions.add(self.execution_id)
        need.waits = True


def resume_execution(
    execution: Execution | None, episode: Episode | None, command: ResumeExecution, at: Moment
) -> Decision[Resumed]:
    """The only way out of a condition that no signal meets."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    if execution.suspension_id is None or episode is None:
        return refuse(ExecutionNotSuspended, f"execution is {execution.public_state.value}")
    delay = command.resume_delay_ms or episode.row.resume_delay_ms
    after = awake(execution, delay, "an operator's word", at)
    over = ended(episode, ResumeCause.OPERATOR, command.actor or OPERATOR, "resumed", at)
    audit = operator_event(execution, OperatorEventType.RESUMED, at.now)
    return Decision(Resumed(after.public_state.value), after, None, (audit,), over.rows)


def release(
    execution: Execution, episode: Episode, command: Release, at: Moment
) -> Decision[Unblocked]:
    """An execution that is held because its code did not fit its journal goes on."""
    after = awake(execution, 0, "its release", at)
    over = ended(episode, ResumeCause.OPERATOR, command.actor or OPERATOR, "released", at)
    audit = operator_event(execution, OperatorEventType.RELEASED, at.now)
    reply = Unblocked(execution.execution_id, after.public_state)
    return Decision(reply, after, None, (audit,), over.rows)


_TERMINAL = {
    TimeoutBehavior.FAIL: (TerminalOutcome.FAILED, AttemptOutcome.ENDED_FAILURE),
    TimeoutBehavior.CANCEL: (TerminalOutcome.CANCELLED, AttemptOutcome.ENDED_CANCELLED),
    TimeoutBehavior.EXPIRE: (TerminalOutcome.EXPIRED, AttemptOutcome.ENDED_FAILURE),
}


def is_timed_out(execution: Execution, now: int) -> bool:
    """Whether the time of a suspension is over."""
    until = execution.blocked_until
    waits = execution.state.lifecycle_phase is LifecyclePhase.SUSPENDED
    return waits and until is not None and until <= now


def expire_suspension(
    execution: Execution | None, episode: Episode | None, command: ExpireSuspension, at: Moment
) -> Decision[Moved]:
    """The timeout, if it is due: the end, a resume, or a call for an operator."""
    if execution is None or episode is None or not is_timed_out(execution, at.now):
        return Decision(Moved(command.execution_id, "unchanged"))
    behavior = episode.row.timeout_behavior
    reply = Moved(execution.execution_id, f"suspension_timeout:{behavior.value}")
    if behavior is TimeoutBehavior.ESCALATE:
        return _escalated(execution, episode, reply, at)
    if behavior in _TERMINAL:
        return _timed_out(execution, episode, reply, at)
    over = ended(episode, ResumeCause.TIMEOUT, "system", "timed_out_auto_resume", at)
    audit = operator_event(
        execution,
        OperatorEventType.RESUMED,
        at.now,
        reason="timed_out_auto_resume",
    )
    done = Decision(reply, awake(execution, 0, "", at), None, (audit,), over.rows)
    if behavior is TimeoutBehavior.AUTO_RESUME:
        return done
    return _with_signal(done, execution, over, command.signal_id, at)


def _with_signal(
    done: Decision[Moved], execution: Execution, over: Episode, signal_id: str, at: Moment
) -> Decision[Moved]:
    """The handler finds the timeout among its signals."""
    first, *others = over.waitpoints
    signal = _timeout_signal(execution, first, signal_id, at)
    found = contribution(signal, first.waitpoint_key)
    row = replace(over.row, progress=(*over.row.progress, found))
    first = replace(first, signal_count=first.signal_count + 1)
    told = replace(done, saves=(row, first, *others, signal))
    return told.audited(signal_event(execution, signal))


def _timed_out(execution: Execution, episode: Episode, reply: Moved, at: Moment) -> Decision[Moved]:
    """The timeout is the execution's end."""
    behavior = episode.row.timeout_behavior
    outcome, attempt_outcome = _TERMINAL[behavior]
    why = f"suspension_timeout:{behavior.value}"
    is_cancel = outcome is TerminalOutcome.CANCELLED
    done = finish(
        execution,
        outcome,
        at,
        attempt_outcome=attempt_outcome,
        failure_reason=None if is_cancel else why,
        failure_category=None if is_cancel else "timeout",
        cancellation_reason=why if is_cancel else None,
        cancelled_by="system_timeout" if is_cancel else None,
        reply=reply,
    )
    over = ended(episode, ResumeCause.TIMEOUT, "system", f"timed_out_{behavior.value}", at)
    return replace(done, saves=over.rows)


def look_again_later(execution: Execution, at: Moment) -> Decision[None]:
    """A timeout that is due while its episode cannot be read: nothing is known of what it shall
    do, and it must not keep the loop busy."""
    return Decision(None, replace(execution, blocked_until=at.now + UNREADABLE_RETRY_MS))


def _timeout_signal(
    execution: Execution, waitpoint: WaitpointRow, signal_id: str, at: Moment
) -> SignalRow:
    return SignalRow(
        waitpoint.waitpoint_id,
        waitpoint.signal_count,
        execution.execution_id,
        signal_id,
        TIMEOUT_SIGNAL,
        "timeout",
        "system",
        "suspension_timeout",
        "",
        None,
        "json",
        at.now,
        at.now,
        SignalEffect.RESUMED,
    )


def _escalated(execution: Execution, episode: Episode, reply: Moved, at: Moment) -> Decision[Moved]:
    """No answer came in time: an operator must look; signals may still resume it."""
    when = execution.blocked_until
    after = replace(
        execution,
        state=suspended(BlockingReason.PAUSED_BY_OPERATOR),
        blocking_detail=f"suspension escalated: timeout at {when}",
        blocked_until=None,
        last_transition_at=at.now,
        last_mutation_at=at.now,
    )
    row = replace(episode.row, reason_code=ReasonCode.WAITING_FOR_OPERATOR_REVIEW, timeout_at=None)
    audit = operator_event(execution, OperatorEventType.ESCALATED, at.now, timeout_at=when)
    return Decision(reply, after, None, (audit,), (row,))
