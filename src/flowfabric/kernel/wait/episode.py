"""A suspension with its waitpoints, and the one way in which it ends."""

from __future__ import annotations

from typing import Any

from flowfabric.kernel.decision import AnyEvent, Moment
from flowfabric.model.attempt import Attempt
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
    SignalKeyRow,
    SignalRow,
    SuspendKeyRow,
    SuspensionRow,
    WaitpointRow,
    WaitpointState,
)

OWN_SOURCES = ("operator", "system")  # no token holder may claim to be one of these


class Episode(Record, frozen=True):
    """A suspension and its waitpoints."""

    row: SuspensionRow
    waitpoints: tuple[WaitpointRow, ...]


class EpisodeDecision(Record, frozen=True):
    """The reply to a command about a suspension, and everything it writes."""

    reply: Any
    execution: Execution | None = None
    attempt: Attempt | None = None
    events: tuple[AnyEvent, ...] = ()
    episode: SuspensionRow | None = None
    waitpoints: tuple[WaitpointRow, ...] = ()
    signal: SignalRow | None = None
    signal_key: SignalKeyRow | None = None
    suspend_key: SuspendKeyRow | None = None


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
    """The episode with its end: what ended it, who, and when."""
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


def ended(
    episode: Episode, cause: ResumeCause, actor: str, reason: str, at: Moment
) -> tuple[SuspensionRow, tuple[WaitpointRow, ...]]:
    """Close an episode with every binding of it, whatever the cause."""
    waitpoints = tuple(closed_waitpoint(each, reason, at) for each in episode.waitpoints)
    return closed_row(episode.row, cause, actor, reason, at), waitpoints


def ended_beside(
    episode: Episode, after: Execution, at: Moment
) -> tuple[SuspensionRow, tuple[WaitpointRow, ...]]:
    """Close an episode because something else ended its execution's wait: a cancel, a deadline."""
    cause, reason = ResumeCause.OPERATOR, "resumed"
    if after.state.terminal_outcome is TerminalOutcome.CANCELLED:
        cause, reason = ResumeCause.CANCELLED, "cancelled"
    elif after.is_terminal:
        cause, reason = ResumeCause.EXPIRED, f"expired:{after.failure_reason or 'ended'}"
    return ended(episode, cause, after.cancelled_by or "system", reason, at)


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
