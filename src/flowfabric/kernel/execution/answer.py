"""Repeated calls: a worker that lost a reply asks again and gets the same one.

While an execution still shows how it ended, its image gives the reply. Where it goes on (another
attempt, the same one later, a replay), the reply is kept in a row under the epoch of the lease.
"""

from __future__ import annotations

from flowfabric import limits
from flowfabric.kernel.decision import Moment
from flowfabric.kernel.execution.fence import same_lease
from flowfabric.model.answer import Answer, AnswerRow
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.results import Cancelled, Completed, TerminalFailed
from flowfabric.model.state import PublicState, TerminalOutcome


def kept(execution: Execution, lease_epoch: int, answer: Answer, at: Moment) -> AnswerRow:
    """The reply that the owner of the lease in this image got."""
    return AnswerRow(
        execution.execution_id,
        lease_epoch,
        execution.lease_id or "",
        execution.attempt_id or "",
        answer,
        at.now + limits.ANSWER_TTL_MS,
    )


def kept_end(execution: Execution, at: Moment) -> AnswerRow | None:
    """The reply an ended execution still shows, kept for when it is replayed."""
    answer = end_of(execution)
    if answer is None or execution.lease_id is None:
        return None
    return kept(execution, execution.lease_epoch - 1, answer, at)


def end_of(execution: Execution) -> Completed | TerminalFailed | Cancelled | None:
    """The reply to the call that ended an execution; None if no call can have done so."""
    match execution.state.terminal_outcome:
        case TerminalOutcome.SUCCESS:
            return completed(execution)
        case TerminalOutcome.FAILED:
            return TerminalFailed()
        case TerminalOutcome.CANCELLED:
            return cancelled(execution)
        case _:
            return None


def completed(execution: Execution) -> Completed:
    """The reply to the owner of a completed execution."""
    ended_at = execution.completed_at or 0
    return Completed(execution.execution_id, PublicState.COMPLETED, ended_at)


def cancelled(execution: Execution) -> Cancelled:
    """The reply to the cancel of an execution."""
    return Cancelled(execution.execution_id, PublicState.CANCELLED)


def answered_before(
    row: AnswerRow | None, fence: Fence, kinds: tuple[type, ...], at: Moment
) -> Answer | None:
    """The first reply to a call of this kind under this very lease, if there was one."""
    if row is None or row.due_at <= at.now or not isinstance(row.answer, kinds):
        return None
    return row.answer if same_lease(row, fence) else None
