"""The reply a lease ended with, kept for the owner's repeated call."""

from __future__ import annotations

from flowfabric.model.columns import Instant
from flowfabric.model.flow_results import ChildrenAwaited
from flowfabric.model.journal import Continued
from flowfabric.model.record import Record
from flowfabric.model.results import Cancelled, Completed, Delayed, RetryScheduled, TerminalFailed

Answer = (
    Completed | RetryScheduled | TerminalFailed | Cancelled | Delayed | ChildrenAwaited | Continued
)


class AnswerRow(Record, frozen=True):
    """The end of one lease: its fence and the reply of the call that ended it.

    An execution remembers only its last lease. Once it runs again, this row lets a worker that lost
    the reply get the same one again.
    """

    execution_id: str
    lease_epoch: int
    lease_id: str
    attempt_id: str
    answer: Answer
    due_at: Instant  # when the row expires

    def __repr__(self) -> str:
        return f"AnswerRow({self.execution_id}, {self.lease_epoch}, {self.answer})"
