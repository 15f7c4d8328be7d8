"""The end of a wait without a signal: an operator's word, or a timeout."""

from __future__ import annotations

from flowfabric.errors import (
    ExecutionNotSuspended,
)
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.transition import finish, operator_event
from flowfabric.kernel.wait.episode import (
    Episode,
    EpisodeDecision,
    awake,
    contribution,
    ended,
    signal_event,
)
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import Event, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.results import Moved
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
    SuspensionRow,
    WaitpointRow,
)
from flowfabric.model.words import TimeoutBehavior

TIMEOUT_SIGNAL = "timeout"
OPERATOR = "operator"  # who ended a wait, where no name was given


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
) -> EpisodeDecision:
    """The only way out of a condition that no signal meets."""
    if execution is None:
        return EpisodeDecision(not_found(command.execution_id))
    if execution.suspension_id is None or episode is None:
        detail = f"execution is {execution.public_state.value}"
        return EpisodeDecision(Refused(ExecutionNotSuspended, detail))
    delay = command.resume_delay_ms or episode.row.resume_delay_ms
    after = awake(execution, delay, "an operator's word", at)
    row, waitpoints = ended(episode, ResumeCause.OPERATOR, command.actor or OPERATOR, "resumed", at)
    audit = operator_event(execution, OperatorEventType.RESUMED, at.now)
    reply = Resumed(after.public_state.value)
    return EpisodeDecision(reply, after, None, (audit,), row, waitpoints)


_TERMINAL = {
    TimeoutBehavior.FAIL: (TerminalOutcome.FAILED, AttemptOutcome.ENDED_FAILURE),
    TimeoutBehavior.CANCEL: (TerminalOutcome.CANCELLED, AttemptOutcome.ENDED_CANCELLED),
    TimeoutBehavior.EXPIRE: (TerminalOutcome.EXPIRED, AttemptOutcome.ENDED_FAILURE),
}


def expire_suspension(
    execution: Execution | None, episode: Episode | None, command: ExpireSuspension, at: Moment
) -> EpisodeDecision:
    """The timeout, if it is due: the end, a resume, or a call for an operator."""
    unchanged = EpisodeDecision(Moved(command.execution_id, "unchanged"))
    if execution is None or execution.state.lifecycle_phase is not LifecyclePhase.SUSPENDED:
        return unchanged
    if execution.blocked_until is None or execution.blocked_until > at.now or episode is None:
        return unchanged
    behavior = episode.row.timeout_behavior
    reply = Moved(execution.execution_id, f"suspension_timeout:{behavior.value}")
    if behavior is TimeoutBehavior.ESCALATE:
        return _escalated(execution, episode, reply, at)
    resumes = behavior in (
        TimeoutBehavior.AUTO_RESUME,
        TimeoutBehavior.AUTO_RESUME_WITH_TIMEOUT_SIGNAL,
    )
    word = "auto_resume" if resumes else behavior.value
    row, waitpoints = ended(episode, ResumeCause.TIMEOUT, "system", f"timed_out_{word}", at)
    if not resumes:
        return _timed_out(execution, behavior, reply, (row, waitpoints), at)
    audit = operator_event(execution, OperatorEventType.RESUMED, at.now, reason=f"timed_out_{word}")
    signal: SignalRow | None = None
    events: tuple[Event, ...] = (audit,)
    if behavior is TimeoutBehavior.AUTO_RESUME_WITH_TIMEOUT_SIGNAL:
        signal = _timeout_signal(execution, waitpoints[0], command.signal_id, at)
        events = (audit, signal_event(execution, signal))
        found = contribution(signal, waitpoints[0].waitpoint_key)
        row = replace(row, progress=(*row.progress, found))
        first = replace(waitpoints[0], signal_count=waitpoints[0].signal_count + 1)
        waitpoints = (first, *waitpoints[1:])
    after = awake(execution, 0, "", at)
    return EpisodeDecision(reply, after, None, events, row, waitpoints, signal)


def _timed_out(
    execution: Execution,
    behavior: TimeoutBehavior,
    reply: Moved,
    closed: tuple[SuspensionRow, tuple[WaitpointRow, ...]],
    at: Moment,
) -> EpisodeDecision:
    """The timeout is the execution's end."""
    outcome, attempt_outcome = _TERMINAL[behavior]
    why = f"suspension_timeout:{behavior.value}"
    is_cancel = outcome is TerminalOutcome.CANCELLED
    done = finish(
        execution,
        outcome,
        at,
        attempt_outcome=attempt_outcome,
        reason=why,
        failure_reason=None if is_cancel else why,
        failure_category=None if is_cancel else "timeout",
        cancellation_reason=why if is_cancel else None,
        cancelled_by="system_timeout" if is_cancel else None,
        reply=reply,
    )
    return EpisodeDecision(reply, done.execution, done.attempt, done.events, *closed)


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


def _escalated(execution: Execution, episode: Episode, reply: Moved, at: Moment) -> EpisodeDecision:
    """Nobody answered in time: an operator must look; signals may still resume it."""
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
    return EpisodeDecision(reply, after, None, (audit,), row)
