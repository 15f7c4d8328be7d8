"""When and why a stream is closed: its attempt has ended.

Nothing is stored for it. Every end of an attempt writes the attempt's row in the transaction that
fences its owner off, so no end can forget to close the stream, and work without frames pays
nothing.
"""

from __future__ import annotations

from typing import Final

from flowfabric.kernel.execution.expire import ATTEMPT_TIMEOUT, EXECUTION_DEADLINE
from flowfabric.model.attempt import Attempt, AttemptOutcome
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record
from flowfabric.model.state import AttemptState, TerminalOutcome
from flowfabric.model.stream import ClosedReason

_LIVE: Final = (AttemptState.RUNNING_ATTEMPT, AttemptState.ATTEMPT_INTERRUPTED)
_REVOKED: Final = "lease revoked"  # how the reason of an attempt begins that lost its lease so
_TIMED_OUT: Final = (ATTEMPT_TIMEOUT, "suspension_timeout:")
_BY_OUTCOME: Final = {
    TerminalOutcome.SUCCESS: ClosedReason.COMPLETED,
    TerminalOutcome.FAILED: ClosedReason.FAILED,
    TerminalOutcome.CANCELLED: ClosedReason.CANCELLED,
    TerminalOutcome.EXPIRED: ClosedReason.EXPIRED,
    TerminalOutcome.SKIPPED: ClosedReason.SKIPPED,
}


class Closed(Record, frozen=True):
    """The end of a stream."""

    at: int
    reason: ClosedReason


def may_grow(execution: Execution, attempt_index: int) -> bool:
    """Whether frames may still come to the stream of an attempt: it lives, or has not begun."""
    if execution.attempt_index is None or attempt_index > execution.attempt_index:
        return not execution.is_terminal
    is_current = attempt_index == execution.attempt_index
    return is_current and execution.state.attempt_state in _LIVE


def closed_by(attempt: Attempt) -> Closed:
    """How an ended attempt closed its stream."""
    return Closed(attempt.ended_at, _reason_of(attempt))


def _reason_of(attempt: Attempt) -> ClosedReason:
    why = attempt.failure_reason or ""
    match attempt.outcome:
        case AttemptOutcome.ENDED_SUCCESS | AttemptOutcome.ENDED_CONTINUED:
            return ClosedReason.COMPLETED
        case AttemptOutcome.ENDED_CANCELLED:
            return ClosedReason.CANCELLED
        case AttemptOutcome.INTERRUPTED_RECLAIMED:
            is_revoked = why.startswith(_REVOKED)
            return ClosedReason.LEASE_REVOKED if is_revoked else ClosedReason.LEASE_EXPIRED
        case _ if attempt.failure_category != "timeout":
            return ClosedReason.FAILED
        case _ if why == EXECUTION_DEADLINE:
            return ClosedReason.EXPIRED
        case _:
            is_timeout = why.startswith(_TIMED_OUT)
            return ClosedReason.TIMED_OUT if is_timeout else ClosedReason.FAILED


def closed_with(execution: Execution) -> Closed | None:
    """The end of all streams of an execution, once it has ended."""
    if not execution.is_terminal:
        return None
    reason = _BY_OUTCOME[execution.state.terminal_outcome]
    return Closed(execution.completed_at or execution.last_transition_at, reason)
