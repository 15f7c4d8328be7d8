"""A suspension with its waitpoints, and the one way in which it ends."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.kernel.decision import Decision, Moment
from flowfabric.model.event import SignalEvent
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record, replace
from flowfabric.model.state import (
    AttemptState,
    BlockingReason,
    TerminalOutcome,
    delayed,
    waiting,
)
from flowfabric.model.suspension import (
    Contribution,
    ResumeCause,
    ResumeSignal,
    SignalRow,
    SuspensionRow,
    WaitpointRow,
    WaitpointState,
)

OWN_SOURCES = ("operator", "system")  # no token holder may claim to be one of these


class Episode(Record, frozen=True):
    """A suspension and its waitpoints."""

    row: SuspensionRow
    waitpoints: tuple[WaitpointRow, ...]

    @property
    def rows(self) -> tuple[Record, ...]:
        """Everything it is kept in."""
        return (self.row, *self.waitpoints)


def contribution(signal: SignalRow, waitpoint_key: str) -> Contribution:
    """A signal as conditions see it."""
    return Contribution(
        waitpoint_key,
        signal.signal_id,
        signal.signal_name,
        signal.source_type,
        signal.source_identity,
    )


def signal_event(execution: Execution, signal: SignalRow) -> SignalEvent:
    """What is published of a signal: all but its payload."""
    return SignalEvent(
        execution.execution_id,
        signal.waitpoint_id,
        signal.signal_id,
        signal.signal_name,
        signal.source_type,
        signal.source_identity,
        signal.effect.value,
        execution.namespace,
        execution.tags,
        signal.accepted_at,
    )


def closed_row(
    row: SuspensionRow, cause: ResumeCause, actor: str, reason: str, at: Moment
) -> SuspensionRow:
    """The episode with its end: what ended it, by which actor, and when."""
    return replace(row, closed_at=at.now, close_reason=reason, cause=cause, actor=actor)


def closed_waitpoint(waitpoint: WaitpointRow, reason: str, at: Moment) -> WaitpointRow:
    """A waitpoint that takes no more signals."""
    if waitpoint.state is WaitpointState.CLOSED:
        return waitpoint
    return replace(
        waitpoint,
        state=WaitpointState.CLOSED,
        closed_at=at.now,
        close_reason=reason,
        due_at=None,
    )


def ended(episode: Episode, cause: ResumeCause, actor: str, reason: str, at: Moment) -> Episode:
    """Close an episode with every binding of it, whatever the cause."""
    waitpoints = tuple(closed_waitpoint(each, reason, at) for each in episode.waitpoints)
    return Episode(closed_row(episode.row, cause, actor, reason, at), waitpoints)


def leaves_wait(before: Execution, after: Execution) -> bool:
    """Whether an execution that was suspended is so no longer."""
    return before.suspension_id is not None and after.suspension_id is None


def end_beside(episode: Episode | None, after: Execution, at: Moment) -> Decision[None]:
    """Close an episode because something else ended its execution's wait: a cancel, a deadline."""
    if episode is None or not episode.row.is_open:
        return Decision(None)
    cause, reason = ResumeCause.OPERATOR, "resumed"
    if after.state.terminal_outcome is TerminalOutcome.CANCELLED:
        cause, reason = ResumeCause.CANCELLED, "cancelled"
    elif after.is_terminal:
        cause, reason = ResumeCause.EXPIRED, f"expired:{after.failure_reason or 'ended'}"
    over = ended(episode, cause, after.cancelled_by or "system", reason, at)
    return Decision(None, saves=over.rows)


def signals_of(
    row: SuspensionRow, waitpoints: Sequence[WaitpointRow], signals: Sequence[SignalRow]
) -> tuple[ResumeSignal, ...]:
    """The signals that met a condition, in the order they came."""
    keys = {each.waitpoint_id: each.waitpoint_key for each in waitpoints}
    by_id = {each.signal_id: each for each in signals}
    return tuple(
        resume_signal(signal, keys.get(signal.waitpoint_id, each.waitpoint_key))
        for each in row.progress
        if (signal := by_id.get(each.signal_id)) is not None
    )


def resume_signal(signal: SignalRow, waitpoint_key: str) -> ResumeSignal:
    """A signal as a handler sees it."""
    return ResumeSignal(
        signal.signal_id,
        signal.signal_name,
        signal.signal_category,
        signal.source_type,
        signal.source_identity,
        signal.correlation_id,
        signal.accepted_at,
        waitpoint_key,
        signal.payload,
        signal.payload_encoding,
    )


def awake(execution: Execution, delay_ms: int, why: str, at: Moment) -> Execution:
    """The execution waits for a worker again, with the same attempt; perhaps after a delay."""
    state, detail, until = waiting(AttemptState.ATTEMPT_INTERRUPTED), "", at.now
    if delay_ms > 0:
        reason = BlockingReason.WAITING_FOR_RESUME_DELAY
        state = delayed(reason, AttemptState.ATTEMPT_INTERRUPTED)
        detail, until = f"resume delay {delay_ms} ms after {why}", at.now + delay_ms
    return replace(
        execution,
        state=state,
        blocking_detail=detail,
        eligible_at=until,
        suspension_id=None,
        blocked_until=None,
        last_transition_at=at.now,
        last_mutation_at=at.now,
    )
