"""What the owner of a lease was answered when it let go, kept for its repeated call."""

from __future__ import annotations

from flowfabric.model.flow_results import ChildrenAwaited
from flowfabric.model.record import Record
from flowfabric.model.results import Cancelled, Completed, Delayed, RetryScheduled, TerminalFailed

Answer = Completed | RetryScheduled | TerminalFailed | Cancelled | Delayed | ChildrenAwaited


class AnswerRow(Record, frozen=True):
    """The end of one lease: whose it was, and what the call that ended it was answered.

    The image of an execution knows only its last lease. When the execution goes on, this row is
    how a worker whose reply was lost is told the same again.
    """

    execution_id: str
    lease_epoch: int
    lease_id: str
    attempt_id: str
    answer: Answer
    due_at: int  # forgotten then

    def __repr__(self) -> str:
        return f"AnswerRow({self.execution_id}, {self.lease_epoch}, {self.answer})"
